"""The services file: what is wrong in it is refused with its place."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from sterna.config.sections.load import parse_services
from sterna.config.sections.model import SECTIONS, Services
from sterna.config.services_file import DEFAULT_SERVICES, find_services, read_services
from sterna.errors import Remedy, ServicesError

SECRET = "wJalrXUtnFEMIsecret"


def refused(text: str) -> list[str]:
    with pytest.raises(ServicesError) as raised:
        parse_services(text, "s.yaml")
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert raised.value.exit_code == 2 and raised.value.remedy is Remedy.STOP
    return str(raised.value).splitlines()


def test_the_sections_are_those_of_the_rooms() -> None:
    assert SECTIONS == (
        "readers",
        "sinks",
        "queries",
        "features",
        "ingest",
        "cdc",
        "transforms",
        "maintenance",
        "catalog",
    )


@pytest.mark.parametrize(
    "text",
    ["", "# none yet\n", "version: 1\n", '{"version": 1, "transforms": []}', *(f"{name}:\n" for name in SECTIONS)]
    + [f"{name}: {empty}\n" for name in SECTIONS for empty in ("[]", "{}", "null")],
)
def test_an_absent_section_and_an_empty_one_are_the_same(text: str) -> None:
    read = parse_services(text, "s.yaml")
    assert read == Services()
    assert read.configured_sections == []


@pytest.mark.parametrize("version", ["2", "0", "'1'", "1.0", "true", "null", "[1]", ""])
def test_another_version_is_refused(version: str) -> None:
    assert refused(f"# first\nversion: {version}\n") == [
        "s.yaml:2: version: this sterna reads version 1 of the file, no other"
    ]


def test_an_unknown_section_is_answered_with_those_that_exist() -> None:
    (line,) = refused("readers: []\nreaderz: []\n")
    assert line == f"s.yaml:2: readerz: no such setting; there are version, {', '.join(SECTIONS)}"


def test_every_fault_is_named_at_once() -> None:
    lines = refused("version: 3\ntransforms: []\nfeatures: x\nflow: []\ntransforms: [1]\n")
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in lines] == [
        "s.yaml:1 version",
        "s.yaml:3 features",
        "s.yaml:4 flow",
        "s.yaml:5 transforms",  # appears twice
        "s.yaml:5 transforms[0]",
    ]


@pytest.mark.parametrize("text", ["- readers", "readers", "readers: [", "a: b: c", "\x00", "--- {}\n--- {}"])
def test_what_is_no_services_file_at_all(text: str) -> None:
    assert refused(text)[0].startswith("s.yaml:")


@pytest.mark.parametrize(
    "text",
    [f"sinks: [{{secret: {SECRET}}}]", f"sinks: [{SECRET}", f"version: {SECRET}", f'sinks: "\\{SECRET}"'],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str) -> None:
    assert refused(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("named", [None, ""])
def test_a_missing_file_that_nobody_named_means_none(folder: Path, named: str | None) -> None:
    assert find_services(named) is None
    assert read_services(named) == Services()


@pytest.mark.parametrize("named", [None, ""])
def test_the_file_in_the_current_folder_is_read_when_none_is_named(folder: Path, named: str | None) -> None:
    DEFAULT_SERVICES.write_text("transforms: [1]\n")
    with pytest.raises(ServicesError, match=r"^sterna_services\.yaml:1: transforms"):
        read_services(named)
    (folder / "other.json").write_text(json.dumps({"version": 1}))
    assert read_services("other.json") == Services()


def test_a_file_that_was_named_must_be_there(folder: Path) -> None:
    DEFAULT_SERVICES.write_text("version: 1\n")
    with pytest.raises(ServicesError, match=r"absent\.yaml.*--services, STERNA_SERVICES or \[sterna\] services"):
        read_services("absent.yaml")


def test_what_can_t_be_read_is_no_missing_file(folder: Path) -> None:
    DEFAULT_SERVICES.symlink_to("nowhere")
    with pytest.raises(ServicesError, match="can't read"):
        read_services(None)
    DEFAULT_SERVICES.unlink()
    DEFAULT_SERVICES.mkdir()
    with pytest.raises(ServicesError, match="can't read"):
        read_services(None)
    (folder / "latin.yaml").write_bytes(b"# \xe9\n")
    with pytest.raises(ServicesError, match=r"latin\.yaml"):
        read_services("latin.yaml")


def test_rules_for_readers_are_read() -> None:
    read = parse_services("readers:\n  - tables: [finance.**, hr.*]\n    roles: [audit]\n", "s.yaml")
    assert [(rule.tables, rule.roles) for rule in read.readers] == [(["finance.**", "hr.*"], ["audit"])]
    assert read.configured_sections == ["readers"]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ("{tables: [a]}", "readers[0].roles"),
        ("{roles: [a]}", "readers[0].tables"),
        ("{tables: [], roles: [a]}", "readers[0].tables"),
        ("{tables: [a], roles: []}", "readers[0].roles"),
        ("{tables: [a], roles: ['a b']}", "readers[0].roles[0]"),
        ("{tables: [''], roles: [a]}", "readers[0].tables[0]"),
        ("{tables: [a], roles: [b], users: [c]}", "readers[0].users"),
        ("a", "readers[0]"),
    ],
)
def test_a_rule_for_readers_that_says_nothing_clear_is_refused(rule: str, field: str) -> None:
    lines = refused(f"readers:\n  - {rule}\n")
    assert any(line.startswith(f"s.yaml:2: {field}: ") for line in lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("readers: []\nreaders: []\n", "s.yaml:2: readers: appears twice, first in line 1: keep one"),
        (
            '{"queries": {"kpi": {"sql": "SELECT 1", "sql": "SELECT 2"}}}',
            "s.yaml:1: queries.kpi.sql: appears twice, first in line 1: keep one",
        ),
        (
            "maintenance:\n  tables: [{match: [a.*]}]\n  time_travel:\n    a.b: 1d\n    'a.b': 2d\n",
            "s.yaml:5: maintenance.time_travel.a.b: appears twice, first in line 4: keep one",
        ),
        (
            "sinks:\n  a: &a\n    credential_id: k\n    target: {webhook: {url: 'https://h'}}\n  b:\n    <<: *a\n"
            "    credential_id: l\n",
            "s.yaml:7: sinks.b.credential_id: appears twice, first in line 3: keep one",
        ),
        (
            "sinks:\n  a: &a\n    credential_id: k\n    target: {webhook: {url: 'https://h'}}\n"
            "maintenance: {credential_id: K, tables: [{match: [a.*]}]}\n",
            "s.yaml:5: maintenance.credential_id: 'K' and 'k' are one variable, AIRFLOW_CONN_K: rename one",
        ),
    ],
)
def test_what_would_be_taken_by_the_last_word_is_refused(text: str, said: str) -> None:
    assert refused(text) == [said]
