"""Merges by key whose source isn't what a key promises, and whose names and values are odd.

A second row of a key may lie in a file that no step reads: when it came and went, the key was gone from the target and
still in the source. What else falls under it: the first row goes and the second stays, both change, they are equal,
the SQL leaves one of them out, and the key is null. Names of ours must not meet the user's, in whatever column.
The oracle is the source itself: the target has what the SQL gives of it, or the step says `NotAKey`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sterna.errors import NotAKey, Remedy, ServicesError
from tests.integration.transforms.test_transforms import Layers, layers
from tests.support.often import often

__all__ = ["layers"]

COLUMNS = "id BIGINT, v STRING"
SQL = "SELECT id, v FROM changes WHERE v <> 'hidden'"


def _source(layers: Layers, columns: str = COLUMNS) -> None:
    modes = ", ".join(f"'write.{mode}.mode'='merge-on-read'" for mode in ("delete", "update", "merge"))
    layers.create("src", columns, properties=modes)


_STEPS = [
    ["(1, 'a')", "(1, 'b')", "DELETE FROM {} WHERE v = 'b'"],
    ["(1, 'a')", "(1, 'b')", "DELETE FROM {} WHERE v = 'a'"],
    ["(1, 'a')", "(1, 'a')", "DELETE FROM {}"],
    ["(1, 'hidden')", "(1, 'b')", "UPDATE {} SET v = 'c' WHERE v = 'hidden'", "DELETE FROM {} WHERE v = 'c'"],
    ["(NULL, 'a')", "(NULL, 'b')", "DELETE FROM {} WHERE v = 'b'"],
    ["(1, 'a')", "(2, 'a')", "UPDATE {} SET id = 1 WHERE id = 2", "UPDATE {} SET id = 3, v = 'd' WHERE v = 'a'"],
]


@pytest.mark.parametrize("steps", often(_STEPS, [_STEPS[3], _STEPS[5]]))
def test_a_second_row_of_a_key_is_told_and_no_key_vanishes(layers: Layers, steps: Sequence[str]) -> None:
    _source(layers)
    layers.create("dst", COLUMNS)
    flow = layers.flow("dst", "src", "merge(id)", SQL)
    refusals = 0
    for step in steps:
        layers.insert(step, "src") if step.startswith("(") else layers.sql(step, "src")
        try:
            layers.sync_and_step(flow)
        except NotAKey as error:
            refusals += 1
            assert error.remedy is not Remedy.RETRY
            continue
        right = layers.sql("SELECT id, v FROM {} WHERE v <> 'hidden'", "src")
        assert layers.rows("dst") == sorted(right, key=str), step
    assert refusals


@pytest.mark.parametrize("mode", often(["merge(k)", "merge(c0, w0, stays)"], ["merge(c0, w0, stays)"]))
def test_no_column_has_a_name_that_is_taken(layers: Layers, mode: str) -> None:
    names = ("k", "k0", "c0", "w0", "n", "s", "stays", "known", "given", "sterna_stays", "t", "a`b", "changes")
    columns = ", ".join(f"`{name.replace('`', '``')}` BIGINT" for name in names)
    _source(layers, columns)
    layers.create("dst", columns)
    flow = layers.flow("dst", "src", mode, "SELECT * FROM changes")
    row = ", ".join(map(str, range(1, len(names))))
    layers.insert(f"(1, {row}), (2, {row.replace('2', '20')})", "src")
    layers.sync_and_step(flow)
    layers.sql("UPDATE {} SET t = 99 WHERE k = 1", "src")
    layers.insert(f"(3, {row.replace('2', '30')})", "src")
    layers.sql("DELETE FROM {} WHERE k = 2", "src")
    layers.sync_and_step(flow)
    assert layers.rows("dst") == layers.rows("src")


def test_a_key_that_sql_makes_is_refused_since_it_may_collide(layers: Layers) -> None:
    _source(layers)
    layers.create("dst", COLUMNS)
    flow = layers.flow("dst", "src", "merge(id)", "SELECT abs(id) AS id, v FROM changes")
    layers.insert("(1, 'a')", "src")
    layers.insert("(-1, 'c')", "src")
    with pytest.raises(ServicesError, match="the key has to be the source's column") as raised:
        layers.sync_and_step(flow)
    assert raised.value.remedy is not Remedy.RETRY
    assert layers.rows("dst") == []
