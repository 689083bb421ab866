"""Names on the wire, and lists in pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog.names import (
    identifier_json,
    parse_identifier,
    parse_namespace,
    parse_namespace_segment,
    parse_parents,
    read_identifier,
    read_namespace,
)
from sterna.serving.rest_catalog.pages import PageRequest, parse_page, take_page

ODD = "a.b/ä %25+'\"\\ 木 ~"


@pytest.mark.parametrize(
    ("segment", "key"),
    [
        ("a", ("a",)),
        ("a%1Fb%1fc", ("a", "b", "c")),
        ("a.b", ("a.b",)),
        ("with+space", ("with space",)),
        ("with%20space", ("with space",)),
        ("1%2B1", ("1+1",)),
        ("a%2Fb", ("a/b",)),
        ("%E6%9C%A8", ("木",)),
        ("%2525", ("%25",)),
    ],
)
def test_a_segment_is_decoded_once(segment: str, key: tuple[str, ...]) -> None:
    assert parse_namespace_segment(segment) == key


def test_odd_names_come_back() -> None:
    assert parse_identifier(quote(f"{ODD}\x1f{ODD}", safe=""), quote(ODD, safe="")) == (ODD, ODD, ODD)
    assert parse_namespace(f"{ODD}\x1f{ODD}") == (ODD, ODD)
    assert read_identifier(identifier_json((ODD, ODD, ODD))) == (ODD, ODD, ODD)


@pytest.mark.parametrize(
    "segment", ["", "a%1F", "%1Fa", "a%00", "a%0A", "%FF", "%C2%85", "a" * 501, "%1F".join("a" * 21)]
)
def test_what_the_catalog_can_not_have_is_refused(segment: str) -> None:
    with pytest.raises(BadUpdate):
        parse_namespace_segment(segment)


@pytest.mark.parametrize(
    "identifier",
    [None, "a.b", {}, {"namespace": "a", "name": "b"}, {"namespace": [1], "name": "b"}, {"namespace": [""]}],
)
def test_an_identifier_of_another_shape_is_refused(identifier: Any) -> None:
    with pytest.raises(BadUpdate):
        read_identifier(identifier)
    with pytest.raises(BadUpdate):
        read_namespace(identifier)


@pytest.mark.parametrize(
    ("text", "parents"),
    [
        ("", ((),)),
        ("a\x1fb", (("a", "b"),)),
        ("a+b", (("a+b",),)),
        ("a\x1fb%20c", (("a", "b%20c"), ("a", "b c"))),
        ("a%00", (("a%00",),)),
        ("a%FF", (("a%FF",),)),
    ],
)
def test_a_parent_may_be_encoded_once_more(text: str, parents: tuple[tuple[str, ...], ...]) -> None:
    assert parse_parents(text) == parents


KEYS = [("n", f"t{number:02}") for number in range(10)]


def test_without_a_token_all_come_at_once() -> None:
    assert parse_page(None, "3") is None
    assert take_page(KEYS, None) == (KEYS, None)


def test_pages_have_each_key_once() -> None:
    seen, token = [], ""
    while token is not None:
        page, token = take_page(KEYS, parse_page(token, "3"))
        assert len(page) <= 3
        seen += page
    assert seen == KEYS


def test_a_list_that_changes_between_pages_repeats_nothing() -> None:
    page, token = take_page(KEYS, parse_page("", "5"))
    rest, last = take_page([*KEYS[2:4], *KEYS[6:], ("n", "z")], parse_page(token, "100"))
    assert [*page, *rest] == [*KEYS[:5], *KEYS[6:], ("n", "z")]
    assert last is None


@pytest.mark.parametrize(
    ("token", "size"),
    [("!", None), ("e30", None), ("W10", None), ("WzFd", None), ("", "0"), ("", "-1"), ("", "x"), ("A" * 5000, None)],
)
def test_odd_pages_are_refused(token: str, size: str | None) -> None:
    with pytest.raises(BadUpdate):
        parse_page(token, size)


def test_a_page_has_a_largest_size() -> None:
    assert parse_page("", "999999") == PageRequest(None, 1000)
