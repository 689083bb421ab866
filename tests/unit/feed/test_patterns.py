"""A client's patterns mean what the registry's mean, and no pattern takes long."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from sterna.catalog.model import key_name
from sterna.feed.patterns import TablePattern
from sterna.registry.policy import matching

NAMES = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda parts: key_name(tuple(parts))
)
PATTERNS = st.lists(st.sampled_from(["a", "b", ".", "*", "**", "?"]), max_size=7).map("".join)


@given(PATTERNS, NAMES)
def test_it_matches_what_the_registry_would(pattern: str, name: str) -> None:
    assert TablePattern(pattern).matches(name) == (matching([pattern], name) is not None)


def test_an_escaped_dot_is_a_letter_of_a_name() -> None:
    name = key_name(("a.b", "c"))
    assert TablePattern("*.c").matches(name) and TablePattern(r"a\.b.*").matches(name)
    assert TablePattern("a?b.c").matches(name) and TablePattern("**").matches(name)
    assert not TablePattern("*.*.c").matches(name) and not TablePattern("**.b.c").matches(name)


def test_a_hostile_pattern_is_quick() -> None:
    started = time.perf_counter()
    assert not TablePattern("**a" * 80 + "b").matches("a" * 1000)
    assert time.perf_counter() - started < 2
