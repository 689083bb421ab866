"""Whatever somebody writes into a file of settings: the answer is the model, or one error that says where.

A key that appears twice would be taken by the last word. Of that kind are keys that are equal once they are read (`1`,
`0x1`, `"1"`, `true`), keys that `<<` merges, anchors and documents. What a model takes by name or folds (ids, prefixes,
credentials) is the files' own: `registry/test_last_word.py` and `config/sections/`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import Registry
from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.config.yaml import StrictModel, parse_model
from sterna.errors import RegistryError, ServicesError, SternaError

KEYS = [*Services.model_fields, *Registry.model_fields, "name", "tables", "readerz", "<<"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.sampled_from(KEYS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
PIECES = [
    "\n",
    "\n  ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "!!int ",
    "!!set ",
    "? ",
    "'",
    '"',
    "\\ud800",
]
TEXTS = st.lists(st.sampled_from([*PIECES, *KEYS, "0", "2024-99-99", "#", "|", ">"]) | st.text(max_size=3)).map("".join)
ODD = ["a: 2024-99-99", "a: !!int x", "a: !!bool x", "a: !!int ''", "a: 9e99999999", f"a: {'9' * 5000}"]
RECURSIVE = ["a: &a {b: *a}", "regions: &r [*r]", "readers: &r [*r]", "a: " + "[" * 1000]


def answer(text: str) -> None:
    for parse, error in ((parse_registry, RegistryError), (parse_services, ServicesError)):
        try:
            parse(text, "f.yaml")
        except error as raised:
            lines = str(raised).splitlines()
            assert lines and all(line.startswith("f.yaml:") for line in lines), lines


@given(TEXTS | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    answer(text)


@given(VALUES | st.fixed_dictionaries({"version": VALUES, "readers": VALUES, "regions": VALUES, "policies": VALUES}))
@example({"\ud800\n": 1})
def test_any_content_is_read_or_refused(value: Any) -> None:
    answer(yaml.safe_dump(value))
    answer(json.dumps(value, default=str))


@pytest.mark.parametrize("text", ODD + RECURSIVE)
def test_odd_values_and_endless_ones(text: str) -> None:
    answer(text)


def test_doubling_references_take_no_time() -> None:
    rows = [f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]" for number in range(1, 60)]
    answer("a0: &a0 [x]\n" + "\n".join(rows))


class Inner(StrictModel):
    count: int = 0
    most: int = 9


class Whole(StrictModel):
    rows: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    by_number: dict[int, int] = Field(default_factory=dict)


def refused(text: str) -> list[str]:
    with pytest.raises(SternaError) as raised:
        parse_model(text, "f.yaml", Whole, ServicesError)
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows:\n- count: 1\n- count: x", "f.yaml:3: rows[1].count: expected an integer"),
        ("rows:\n- count: 1\n  more: 2", "f.yaml:3: rows[0].more: no such setting here"),
        ("by_name:\n  x:\n    count: y", "f.yaml:3: by_name.x.count: expected an integer"),
        ("base: &b\n  count: z\nby_name:\n  x:\n    <<: *b", "f.yaml:2: by_name.x.count:"),
        ("rows: {}", "f.yaml:1: rows: expected a list"),
        ("rows: [[]]", "f.yaml:1: rows[0]: expected a mapping"),
        ("by_name: 7", "f.yaml:1: by_name: expected a mapping"),
        ("rows: [{count: 1.5}]", "f.yaml:1: rows[0].count: expected an integer"),
        ("\n\nmore: 1", "f.yaml:3: more: no such setting; there are rows, by_name, by_number"),
        ('"a\\nb": 1', "f.yaml:1: a\\nb: no such setting"),
        ("- rows", "f.yaml:1: expected a mapping with rows, by_name, by_number"),
        ("rows: [", "f.yaml:1: column 8: "),
        ("\nrows: 2024-99-99", "f.yaml:2: column 7: this is no timestamp"),
        ("rows: " + "[" * 1000, "f.yaml:1: nested too deeply"),
        ("rows: []\n\x00", "f.yaml:2: unacceptable character #x0000"),
    ],
)
def test_a_fault_is_named_with_file_line_and_field(text: str, said: str) -> None:
    assert any(line.startswith(said) for line in refused(text)), refused(text)


def test_a_key_that_stands_twice_is_refused_with_all_other_faults() -> None:
    text = "rows: []\nby_name:\n  x: {count: 1}\n  x: {count: 2}\nrows: [{count: 3}]\n"
    twice = [
        "f.yaml:4: by_name.x: appears twice, first in line 3: keep one",
        "f.yaml:5: rows: appears twice, first in line 1: keep one",
    ]
    assert refused(text) == twice
    assert refused(text + "more: 1")[:2] == twice and len(refused(text + "more: 1")) == 3


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("rows: [{count: 1, count: 1}]", "rows[0].count"),
        ("rows: [{count: 1, 'count': 2}]", "rows[0].count"),
        ('{"rows": [{"count": 1, "c\\u006funt": 2}]}', "rows[0].count"),
        ("by_name: {a.b: {count: 1, !!str count: 2}}", "by_name.a.b.count"),
        ("by_name: {x: {}, ? x : {}}", "by_name.x"),
        ('by_name: {"\\n": {}, "\\n": {}}', "by_name.\\n"),
        ("by_number: {1: 1, 1: 2}", "by_number.1"),
        ("by_number: {1: 1, 0x1: 2}", "by_number.0x1"),
        ("by_number: {8: 1, 010: 2}", "by_number.010"),
        ("by_number: {1: 1, '1': 2}", "by_number.1"),
        ("by_number: {0x1: 1, '1': 2}", "by_number.1"),
        ("by_number: {1: 1, 1.0: 2}", "by_number.1.0"),
        ("by_number: {1: 1, true: 2}", "by_number.true"),
        ("by_number: {true: 1, True: 2}", "by_number.True"),
        ("by_number: {yes: 1, on: 2}", "by_number.on"),
        ("by_number: {true: 1, 'True': 2}", "by_number.True"),
        ("by_number: {~: 1, null: 2}", "by_number.null"),
        ("by_number: {2024-01-01: 1, '2024-01-01': 2}", "by_number.2024-01-01"),
        ("by_number: !!set {1, 1}", "by_number.1"),
        ("unknown: [[{a: {b: 1, b: 2}}]]", "unknown[0][0].a.b"),
        ("rows: [{<<: {count: 1}, count: 2}]", "rows[0].count"),
        ("rows: [{count: 2, <<: {count: 1}}]", "rows[0].count"),
        ("rows: [{<<: [{count: 1}, {count: 2}]}]", "rows[0].count"),
        ("rows: [{<<: {most: 1}, <<: {count: 2}}]", "rows[0].<<"),
        ("rows: [{<<: {count: 1, count: 2}}]", "rows[0].<<.count"),
        ("rows: [{<<: {<<: {count: 1}, most: 1}, most: 2}]", "rows[0].most"),
        ("rows: [&a {count: 1}, {<<: [*a, *a]}]", "rows[1].count"),
        ("rows: [&a {count: 1, <<: *a}]", "rows[0].count"),
        ("rows: [{'<<': 1, <<: {count: 1}}]", "rows[0].<<"),
    ],
)
def test_a_key_stands_once_however_it_is_spelled_or_merged(text: str, field: str) -> None:
    assert f"f.yaml:1: {field}: appears twice, first in line 1: keep one" in refused(text)


def test_what_a_merge_brings_twice_is_told_where_it_is_merged() -> None:
    text = "rows:\n- &a\n  count: 1\n- most: 1\n  count: 2\n  <<: *a\n"
    assert refused(text) == ["f.yaml:6: rows[1].count: appears twice, first in line 5: keep one"]


@pytest.mark.parametrize(
    "text",
    [
        "rows: [&a {count: 7}, {<<: *a, most: 1}]",
        "rows: [&a {count: 7}, &b {most: 1}, {<<: [*a, *b]}]",
        "rows: [{<<: {<<: {count: 7}}, most: 1}]",
        "by_name: {a: &a {count: 7, most: 1}, b: *a, A: {count: 7, most: 1}}",
    ],
)
def test_a_merge_that_adds_is_taken(text: str) -> None:
    parsed = parse_model(text, "f.yaml", Whole, ServicesError)
    assert Inner(count=7, most=1) in (*parsed.rows, *parsed.by_name.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: &a []\nby_name: &a {}", "f.yaml:2: column 10: this anchor appears twice: give it another name"),
        ("rows: []\n---\nrows: [1]", "f.yaml:2: column 1: a second document begins: keep one"),
        ("? [rows]\n: []", "f.yaml:1: column 3: a key has to be a single value, not a list or mapping"),
        ("%YAML 1.1\n%YAML 1.1\n---\nrows: []", "f.yaml:2: column 1: found duplicate YAML directive"),
        ("2024-99-99: 1", "f.yaml:1: column 1: this is no timestamp"),
    ],
)
def test_what_else_could_stand_twice(text: str, said: str) -> None:
    assert refused(text) == [said]


def test_doubling_merges_take_no_time() -> None:
    rows = [f"a{number}: &a{number} {{<<: [*a{number - 1}, *a{number - 1}]}}" for number in range(1, 60)]
    assert "a1.x: appears twice" in refused("a0: &a0 {x: 1}\n" + "\n".join(rows))[0]


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.dates() | st.text(max_size=2)
SPELLED = SCALARS.map(lambda value: json.dumps(value, default=str)) | st.sampled_from(
    [
        "0x1",
        "01",
        "+1",
        "1_0",
        "10",
        "1e0",
        "1.",
        "~",
        "Null",
        "yes",
        "NO",
        "off",
        "1:0",
        "60",
        "!!str 1",
        "!!float 1",
        "=",
    ]
)


@given(SPELLED, SPELLED)
@example("1:0", "60")
@example("1", "!!float 1")
def test_of_two_keys_that_become_one_in_python_none_is_dropped(one: str, other: str) -> None:
    text = f"by_number: {{? {one}\n : 1, ? {other}\n : 2}}"
    try:
        kept = len(yaml.safe_load(text)["by_number"])  # the parser itself says which are one
    except yaml.YAMLError:
        kept = 1
    lines = refused(text) if kept < 2 else []
    assert kept == 2 or any("appears twice" in line or "column" in line for line in lines)


@pytest.mark.parametrize("text", ["", "# only a remark\n", "---\n", "null", "{}"])
def test_without_content_all_is_default(text: str) -> None:
    assert parse_model(text, "f.yaml", Whole, ServicesError) == Whole()
