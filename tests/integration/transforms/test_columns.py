"""A source whose columns change under a flow: it goes on where a rebuild would give the same rows, and stops else.

The oracle is the rebuild, and plain SQL on the source. Kinds of changes: `tests/unit/transforms/test_columns.py`.
"""

from __future__ import annotations

import pytest

from sterna.errors import EngineRefused, FlowStopped, Remedy
from sterna.pipelines.transforms.step import StepSummary
from tests.integration.transforms.test_transforms import Layers, layers
from tests.support.iceberg_java import load_table

__all__ = ["layers"]


def test_a_flow_stops_where_its_columns_are_others_and_goes_on_where_they_are_not(layers: Layers) -> None:
    layers.create("src", "id BIGINT, a INT, b INT, c INT, d INT", properties="'format-version'='2'")
    layers.create("out", "id BIGINT, x INT, y INT, n BIGINT")
    layers.create("days", "d INT, n BIGINT", "PARTITIONED BY (d)")
    sql = "WITH r AS (SELECT * EXCEPT (c, d) FROM changes) SELECT id, a AS x, b AS y, size(array(id)) AS n FROM r"
    out = layers.flow("out", "src", "append", sql.replace("size(array(id))", "id * 2"))
    days = layers.flow("days", "src", "replace(d)", "SELECT d, count(*) AS n FROM changes GROUP BY d")
    flows = (out, days)
    altered = "ALTER TABLE {} "
    layers.insert("(1, 1, 10, 5, 1)", "src")
    layers.world.sync("eu")
    for flow in flows:
        layers.step(flow)

    def after(*changes: str, row: str) -> None:
        for change in changes:
            layers.sql(altered + change, "src")
        layers.insert(row, "src")
        layers.world.sync("eu")

    # `c` is nobody's, and `e` wasn't there before.
    after("DROP COLUMN c", "ADD COLUMN c STRING", "ALTER COLUMN b COMMENT 'said'", row="(2, 2, 20, 1, 'c')")
    for flow in flows:
        assert isinstance(layers.step(flow), StepSummary)
    # Names are swapped: only who reads them stops.
    swap = ("RENAME COLUMN a TO t", "RENAME COLUMN b TO a", "RENAME COLUMN t TO b")
    after(*swap, row="(3, 3, 30, 2, 'c')")
    with pytest.raises(FlowStopped, match="b was a, a was b") as stopped:
        layers.step(out)
    assert "rebuild" in (stopped.value.hint or "")
    assert isinstance(layers.step(days), StepSummary)
    layers.rebuild(out)
    assert layers.rows("out") == sorted(layers.sql("SELECT id, a, b, id * 2 FROM {}", "src"), key=str)
    # What a partition is made of is read, too.
    after("ALTER COLUMN d TYPE BIGINT", row="(4, 4, 40, 3, 'c')")
    assert isinstance(layers.step(out), StepSummary)
    with pytest.raises(FlowStopped, match="d was int and is long"):
        layers.step(days)
    # Dropped and added anew.
    after("DROP COLUMN b", "ADD COLUMN b INT", row="(5, 50, 4, 'c', 5)")
    with pytest.raises(FlowStopped, match="b was dropped and added again"):
        layers.step(out)
    layers.rebuild(out)
    assert layers.rows("out") == sorted(layers.sql("SELECT id, a, b, id * 2 FROM {}", "src"), key=str)


def test_a_column_that_spark_does_not_read_is_told_of_the_source_and_no_run_repeats_it(layers: Layers) -> None:
    """One has the name of a metadata column of Iceberg's. It was `EngineError: retry`, of the target."""
    layers.create("odd", "id BIGINT, v INT")
    layers.create("of_odd", "id BIGINT, v INT")
    table = load_table(layers.world.spark, f"main_us.{layers.namespace}.odd")
    table.updateSchema().renameColumn("v", "_file").commit()
    layers.insert("(1, 2)", "odd")
    layers.world.sync("eu")
    flow = layers.flow("of_odd", "odd", "append", "SELECT id, _file AS v FROM changes")
    with pytest.raises(EngineRefused, match="it has a column _file, and Iceberg has") as refused:
        layers.step(flow)
    assert (refused.value.table, refused.value.remedy) == (f"{layers.namespace}.odd", Remedy.STOP)
    assert "\n" not in str(refused.value)
    layers.sql("ALTER TABLE {} RENAME COLUMN _file TO v", "odd")
    layers.insert("(3, 4)", "odd")
    layers.world.sync("eu")
    layers.step(layers.flow("of_odd", "odd", "append", "SELECT id, v FROM changes"))
    assert layers.rows("of_odd") == [(1, 2), (3, 4)]


def test_fields_of_a_struct_that_a_flow_does_not_read_may_change(layers: Layers) -> None:
    layers.create("nested", "id BIGINT, p STRUCT<x: INT, y: INT>, xs ARRAY<STRUCT<a: INT, b: INT>>")
    layers.create("flat", "id BIGINT, x INT, a INT")
    flow = layers.flow("flat", "nested", "append", "SELECT id, p.x, xs[0].a AS a FROM changes")
    layers.insert("(1, struct(10, 20), array(struct(30, 40)))", "nested")
    layers.world.sync("eu")
    layers.step(flow)
    for change in ("DROP COLUMN p.y", "ADD COLUMN p.z STRING", "ALTER COLUMN xs.element.b TYPE BIGINT"):
        layers.sql(f"ALTER TABLE {{}} {change}", "nested")
    layers.insert("(2, named_struct('x', 11, 'z', 'z'), array(struct(31, 41L)))", "nested")
    layers.world.sync("eu")
    assert isinstance(layers.step(flow), StepSummary)
    expected = sorted(layers.sql("SELECT id, p.x, xs[0].a FROM {}", "nested"), key=str)
    assert layers.rows("flat") == expected
    assert len(expected) == 2
    layers.sql("ALTER TABLE {} RENAME COLUMN p.x TO w", "nested")
    layers.sql("ALTER TABLE {} ADD COLUMN p.x INT", "nested")
    layers.insert("(3, named_struct('w', 12, 'z', 'z', 'x', 5), array(struct(32, 42L)))", "nested")
    layers.world.sync("eu")
    with pytest.raises(FlowStopped, match=r"p\.x was dropped and added again"):
        layers.step(flow)


def test_a_star_that_stands_for_other_columns_stops_a_flow_where_a_rebuild_would_differ(layers: Layers) -> None:
    """A partition that isn't touched keeps what was made of the columns that there were."""
    layers.create("wide", "id BIGINT, d INT, a STRING, b STRING")
    layers.create("texts", "d INT, n STRING", "PARTITIONED BY (d)")
    layers.create("kinds", "d INT, n BIGINT", "PARTITIONED BY (d)")
    layers.create("named", "id BIGINT, a STRING")
    layers.create("all_of", "id BIGINT, d INT, a STRING, b STRING")
    by_day = "SELECT d, {} AS n FROM {} GROUP BY d"
    texts = layers.flow("texts", "wide", "replace(d)", by_day.format("max(to_json(struct(*)))", "changes"))
    kinds = layers.flow("kinds", "wide", "replace(d)", by_day.format("count(*)", "(SELECT DISTINCT * FROM changes)"))
    named = layers.flow("named", "wide", "append", "SELECT id, a FROM (SELECT * FROM changes)")
    all_of = layers.flow("all_of", "wide", "append", "SELECT * FROM changes")
    flows = (texts, kinds, named, all_of)

    def after(change: str, row: str) -> None:
        if change:
            layers.sql(f"ALTER TABLE {{}} {change}", "wide")
        layers.insert(row, "wide")
        layers.world.sync("eu")

    after("", "(1, 1, 'a', 'b')")
    for flow in flows:
        layers.step(flow)
    after("ALTER COLUMN b AFTER id", "(2, 'b', 2, 'a')")
    with pytest.raises(FlowStopped, match=r"`\*` means d, id, b, a, and meant d, id, a, b"):
        layers.step(texts)
    for flow in flows[1:]:
        assert isinstance(layers.step(flow), StepSummary)
    layers.rebuild(texts)
    after("ADD COLUMN c STRING", "(3, 'b', 2, 'a', 'c')")
    with pytest.raises(FlowStopped, match=r"`\*` means d, id, b, a, c"):
        layers.step(texts)
    for flow in flows[1:3]:
        assert isinstance(layers.step(flow), StepSummary)
    assert layers.rows("kinds") == sorted(
        layers.sql("SELECT d, count(*) FROM (SELECT DISTINCT * FROM {}) GROUP BY d", "wide"), key=str
    )
    layers.sql("ALTER TABLE {} ADD COLUMN c STRING", "all_of")
    assert isinstance(layers.step(all_of), StepSummary)
    after("DROP COLUMN c", "(4, 'b', 3, 'a')")
    for flow in (kinds, all_of):
        with pytest.raises(FlowStopped, match="c went"):
            layers.step(flow)
    assert isinstance(layers.step(named), StepSummary)
