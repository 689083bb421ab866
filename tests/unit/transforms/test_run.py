"""Flows one after another, how far a stream has come, and what upkeep keeps for a flow."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from sterna.config.sections.maintenance import Maintenance
from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, ServicesError, UsageError
from sterna.maintenance.tables.facts import ConsumerPosition
from sterna.maintenance.tables.gather import read_inputs
from sterna.pipelines.transforms.failure import read_failure
from sterna.pipelines.transforms.run import read_sql, run_transforms, select_transforms
from sterna.pipelines.transforms.sink import StreamPosition, decide_batch
from tests.support.small_world import make_world, run


def flow(name: str, **more: str) -> Transform:
    settings = {
        "name": name,
        "from": "ns.ods",
        "into": f"ns.{name}",
        "mode": "append",
        "sql": "SELECT 1",
        "every": "30s",
    }
    return Transform.model_validate({**settings, **more})


@pytest.mark.parametrize("broken", ["missing", "empty", "folder", "latin-1", "long", "name"])
def test_a_flow_whose_sql_cannot_be_read_is_its_own_trouble(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "b.sql"
    if broken == "folder":
        file.mkdir()
    elif broken != "missing":
        file.write_bytes(
            {"empty": b" ", "latin-1": "SELECT 'é'".encode("latin-1"), "long": b"x" * 100_001}.get(broken, b"")
        )
    world, flows = make_world(tmp_path), [flow("b", sql="b\0.sql" if broken == "name" else "b.sql"), flow("a")]
    schema, folder = pa.schema([("id", pa.int64())]), f"file://{tmp_path}/us/lake"
    tables = {name: world.writer.create_table(("ns", name), schema, location=f"{folder}/{name}") for name in "ab"}
    tables["ods"] = world.writer.create_table(("ns", "ods"), schema, location=f"{folder}/ods")
    world.commit(**{name: table.metadata_location for name, table in tables.items()})
    run(world)
    summary = run_transforms(world.context, flows, tmp_path, print)
    assert (summary.idle, list(summary.errors)) == ({"a": "the source has no rows yet"}, ["b"])
    assert (summary.stopped, summary.exit_code) == (("b",), ServicesError.exit_code)
    # A status in another process, where the file is right, has the record.
    written = read_failure(world.context(), "b", "")
    assert written is not None
    assert (written.kind, written.exit_code) == ("ServicesError", ServicesError.exit_code)
    if broken == "missing":
        file.write_text("SELECT 2")
        again = run_transforms(world.context, flows, tmp_path, print)
        assert (again.failed, sorted(again.idle)) == ({}, ["a", "b"])


def test_flows_by_name_and_sql_from_a_file(tmp_path: Path) -> None:
    flows = [flow("a"), flow("b", sql="b.sql")]
    assert [selected.name for selected in select_transforms(flows, ["b"])] == ["b"]
    assert select_transforms(flows, []) == flows
    with pytest.raises(UsageError, match=r"no transform c: there are a, b"):
        select_transforms(flows, ["c"])
    with pytest.raises(UsageError, match="no section transforms"):
        select_transforms([], [])
    with pytest.raises(ServicesError, match=r"can't read b\.sql"):
        read_sql(flows[1], tmp_path)
    (tmp_path / "b.sql").write_text(" \n")
    with pytest.raises(ServicesError, match="is empty"):
        read_sql(flows[1], tmp_path)
    (tmp_path / "b.sql").write_text("SELECT 2")
    assert [read_sql(selected, tmp_path) for selected in flows] == ["SELECT 1", "SELECT 2"]


def test_a_batch_comes_next_or_was_there_or_is_refused() -> None:
    at = StreamPosition(4, ('{"t":{"0":7}}',))
    assert StreamPosition.parse(at.text) == at
    assert decide_batch(None, 0, ("",), ("a",))
    assert decide_batch(at, 5, at.offsets, ("b",))
    assert not decide_batch(at, 4, ("a",), at.offsets)
    with pytest.raises(FlowStopped, match="restore"):
        decide_batch(at, 0, ("",), ("b",))
    with pytest.raises(FlowStopped, match="recreated"):
        decide_batch(None, 3, ("a",), ("b",))
    for mark in ("yesterday", "{}", "[]", '{"batch": "x", "offsets": []}'):
        with pytest.raises(FlowStopped):
            StreamPosition.parse(mark)


def test_upkeep_knows_what_a_flow_goes_on_from(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.write("ods")
    world.write("dwd")
    table = world.writer.load_table(("ns", "dwd"))
    table.transaction().set_properties({"sterna.applied.flow.all.dwd": "41/2"}).commit_transaction()
    names = ("ods", "dwd")
    world.commit(**{name: world.writer.load_table(("ns", name)).metadata_location for name in names})
    run(world)
    settings = Maintenance.model_validate({"tables": [{"match": ["**"]}]})
    flows = (flow("dwd"), flow("none"), flow("unmarked", into="ns.ods", **{"from": "ns.x"}))
    now = datetime.now(UTC)
    facts, _ = read_inputs(world.context(), settings.with_dependents(flows), now)
    assert facts.consumer_positions == (ConsumerPosition("ns.ods", 41, "dwd"),)
    assert read_inputs(world.context(), settings, now)[0].consumer_positions == ()
