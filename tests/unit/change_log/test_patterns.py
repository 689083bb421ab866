"""A client's patterns mean what the registry's mean, and no pattern takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.catalog.model import key_name
from sterna.config.registry.policy import matching_pattern
from sterna.notifications.change_log import table_filters
from sterna.notifications.change_log.table_filters import TablePattern

NAMES = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda parts: key_name(tuple(parts))
)
PATTERNS = st.lists(st.sampled_from(["a", "b", ".", "*", "**", "***", "?"]), max_size=7).map("".join)


@given(PATTERNS, NAMES)
def test_it_matches_what_the_registry_would(pattern: str, name: str) -> None:
    assert TablePattern(pattern).matches(name) == (matching_pattern([pattern], name) is not None)


def test_an_escaped_dot_is_a_letter_of_a_name() -> None:
    name = key_name(("a.b", "c"))
    assert TablePattern("*.c").matches(name) and TablePattern(r"a\.b.*").matches(name)
    assert TablePattern("a?b.c").matches(name) and TablePattern("**").matches(name)
    assert not TablePattern("*.*.c").matches(name) and not TablePattern("**.b.c").matches(name)


HOSTILE = ("**" * 128, "**" * 127 + "zz", "*?" * 127 + "zz", "*" + "**" * 126 + "z.", "**a" * 80 + "b")


def _steps(work: Callable[[], object]) -> int:
    """Count the lines of the module that some work runs."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != table_filters.__file__:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("text", HOSTILE)
def test_a_letter_of_a_name_costs_the_same_whatever_the_pattern(text: str) -> None:
    name = "warehouse.sales.fact_events_by_day_and_shop"
    pattern, simple = TablePattern(text), TablePattern("**q")
    assert _steps(lambda: pattern.matches(name)) <= _steps(lambda: simple.matches(name)) + 10
    assert _steps(lambda: simple.matches(name)) <= 20 * len(name)


@given(st.lists(PATTERNS, max_size=4), NAMES)
def test_several_patterns_are_looked_for_at_once(texts: list[str], name: str) -> None:
    assert TablePattern(*texts).matches(name) == any(TablePattern(text).matches(name) for text in texts)
