"""What a step or a rebuild refuses `flow check` says first, by the same error.

The kind: a check looks at less than a run needs. What a run refuses, and no row decides: the target's properties, its
partitions (that there are some, by which transform, of which type, and in which spec its files were written), the types
of its columns, the types of keys and partitions, where the flow has come to, and the source's columns. What only rows
decide is a run's alone: a division by zero, a key that stands twice, rows that went from the source of an append.

What is accepted is run: a first step, a second one, and a rebuild that changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, ServicesError, SternaError
from sterna.pipelines.transforms.status import check_transforms
from tests.integration.transforms.test_transforms import DWD, DWS, WAP, Layers, layers, ods

__all__ = ["layers"]

DAY = "PARTITIONED BY (day)"


class Case(NamedTuple):
    """A flow into a target of its own."""

    mode: str
    sql: str
    columns: str
    partitions: str = ""
    reason: str = ""
    partition: str = ""


PLACED = (
    "SELECT day, user, amount, row_number() OVER (PARTITION BY day ORDER BY user, amount) AS r, "
    "lag(amount) OVER (PARTITION BY day ORDER BY user, amount) AS b FROM changes"
)
CASES = {
    "no_partitions": Case("replace(day)", DWS, "day DATE, pv BIGINT, uv BIGINT", "", "isn't partitioned by"),
    "month": Case("replace(day)", DWS, "day DATE, pv BIGINT, uv BIGINT", "PARTITIONED BY (month(day))", "partitioned"),
    "text": Case("replace(day)", DWS, "day STRING, pv BIGINT, uv BIGINT", DAY, "has day as string, and the SQL gives"),
    "no_date": Case("replace(day)", DWS, "day DATE, pv BIGINT, uv DATE", DAY, "can't be written"),
    "nested": Case("append", DWD, "id BIGINT, day DATE, user STRING, cents ARRAY<INT>", "", "can't be written"),
    "key": Case("merge(id)", DWD, "id STRING, day DATE, user STRING, cents BIGINT", "", "has id as string"),
    "of_merge": Case("merge(id)", DWD, "id BIGINT, day DATE, user DATE, cents BIGINT", "", "can't be written"),
    "placed": Case("replace(day)", PLACED, "day DATE, user STRING, amount BIGINT, r INT, b BIGINT", DAY),
    "required": Case(
        "replace(day)", "SELECT day, max(id) AS m FROM changes GROUP BY day", "day DATE, m BIGINT NOT NULL", DAY
    ),
    "keyed": Case("merge(id)", "SELECT id, amount FROM changes", "id BIGINT NOT NULL, amount BIGINT"),
    "later": Case("replace(day)", DWS, "day TIMESTAMP, pv BIGINT, uv BIGINT", DAY),
    "narrow": Case(
        "replace(n)", "SELECT amount AS n, count(*) AS c FROM changes GROUP BY amount", "n INT, c BIGINT",
        "PARTITIONED BY (n)", "", "amount",
    ),
    "bytes": Case(
        "replace(b)", "SELECT CAST(user AS BINARY) AS b, count(*) AS c FROM changes GROUP BY CAST(user AS BINARY)",
        "b BINARY, c BIGINT", "PARTITIONED BY (b)", "", "CAST(user AS BINARY)",
    ),
    "exact": Case(
        "replace(d)",
        "SELECT CAST(amount AS DECIMAL(9, 2)) AS d, count(*) AS c FROM changes GROUP BY CAST(amount AS DECIMAL(9, 2))",
        "d DECIMAL(14, 4), c BIGINT", "PARTITIONED BY (d, bucket(2, c))", "", "CAST(amount AS DECIMAL(9, 2))",
    ),
}  # fmt: skip
_EXACT = ("later", "narrow", "bytes", "exact")
"""Partitions whose values have another type in the SQL than in the target."""


def check(layers: Layers, flow: Transform) -> str:
    with layers.world.context("eu") as context:
        return check_transforms(context, [flow], Path())[0].fault


def assert_refused(layers: Layers, flow: tuple[Transform, str], kind: type[SternaError], reason: str) -> None:
    """See that the check says what the step does."""
    with pytest.raises(kind, match=reason) as error:
        layers.step(flow)
    assert check(layers, flow[0]) == f"{kind.__name__}: {error.value}"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in CASES if name not in _EXACT or name == "narrow"], id="decisive"),
        pytest.param(_EXACT, id="partitions", marks=pytest.mark.rare),
    ],
)
def test_what_a_step_refuses_the_check_says_first(layers: Layers, names: Sequence[str]) -> None:
    flows, cases = {}, {name: CASES[name] for name in names}
    for name, case in cases.items():
        layers.create(name, case.columns, case.partitions)
        flows[name] = layers.flow(name, "ods", case.mode, case.sql, partition=case.partition)
    layers.insert(f"{ods(1, 1, 'a')}, {ods(2, 2, 'b', 7)}")
    layers.world.sync("eu")
    for name, case in cases.items():
        if case.reason:
            assert_refused(layers, flows[name], ServicesError, case.reason)
    taken = [name for name, case in cases.items() if not case.reason]
    for name in taken:
        assert check(layers, flows[name][0]) == ""
        layers.step(flows[name])
    layers.insert(f"{ods(3, 1, 'a')}, (4, NULL, NULL, NULL)")
    layers.sql("DELETE FROM {} WHERE id = 2")
    layers.world.sync("eu")
    for name in taken:
        layers.step(flows[name])
        increments = layers.rows(name)
        layers.rebuild(flows[name])
        assert layers.rows(name) == increments, name
    # Two rows tie in their window, and are equal in all that it has of them.
    if "placed" in names:
        assert layers.rows("placed") == sorted(layers.sql(PLACED.replace("changes", "{}")), key=str)


def test_where_a_flow_has_come_to_is_checked(layers: Layers) -> None:
    layers.create("dws", "day DATE, pv BIGINT, uv BIGINT", DAY)
    layers.create("own", "day DATE, pv BIGINT, uv BIGINT", DAY)
    dws, own = (layers.flow(name, "ods", "replace(day)", DWS) for name in ("dws", "own"))
    layers.insert(f"{ods(1, 1, 'a')}, {ods(2, 2, 'b')}")
    layers.insert("(DATE'2026-01-09', 1, 1)", "own")
    layers.sync_and_step(dws)
    assert_refused(layers, own, FlowStopped, "the target has rows, and no position")
    # Files of a time without that partition: a step can't replace a part of one.
    layers.sql("ALTER TABLE {} DROP PARTITION FIELD day", "dws")
    options = "options => map('rewrite-all', 'true')"
    layers.world.sql(f"CALL main_us.system.rewrite_data_files(table => '{layers.namespace}.dws', {options})")
    layers.sql("ALTER TABLE {} ADD PARTITION FIELD day", "dws")
    layers.insert(ods(3, 1, "c"))
    layers.world.sync("eu")
    assert_refused(layers, dws, FlowStopped, "from when it wasn't partitioned by the values of day")
    layers.rebuild(dws)
    assert check(layers, dws[0]) == ""
    assert [row[1:] for row in layers.rows("dws")] == [(2, 2), (1, 1)]
    # A column of the source became another one.
    layers.sql("ALTER TABLE {} DROP COLUMN user")
    layers.sql("ALTER TABLE {} ADD COLUMN user STRING")
    layers.insert("(4, DATE'2026-01-01', 1, 'd')")
    layers.world.sync("eu")
    assert_refused(layers, dws, FlowStopped, "user was dropped and added again")
    layers.sql(f"ALTER TABLE {{}} UNSET TBLPROPERTIES ({WAP.partition('=')[0]})", "dws")
    assert "NotStaged" in check(layers, dws[0])
