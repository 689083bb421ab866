"""Channels whose applied position goes back with a table stop as `Rewound`; others go on."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sterna.errors import Rewound
from sterna.iceberg.metadata.new_version import new_metadata_uri, with_properties
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.positions import rewound_channels
from sterna.maintenance.restore.run import restore
from sterna.pipelines.publish.decide import Published, Stage, decide, is_rewound, lacks_snapshot_reference
from sterna.pipelines.publish.model import RESTORED_REFERENCE, Channel, Step, TableState, transform_channel
from tests.support.gc import assert_closed
from tests.support.rest_address import read_json
from tests.support.small_world import World, make_world, quiet, run

CLICKS = Channel("eu", "acme", "clicks")
FLOW = transform_channel("orders")
UID = UUID(int=7)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def applied(world: World, positions: Mapping[Channel, str]) -> str:
    """A new version of the table, as what publishes a step of each channel leaves it; its metadata.json."""
    world.write("t")
    table = world.writer.load_table(("ns", "t"))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    properties = {channel.position_property: position for channel, position in positions.items()}
    properties |= {
        channel.snapshot_property: f"{snapshot.snapshot_id}/{snapshot.sequence_number}" for channel in positions
    }
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    return world.writer.load_table(("ns", "t")).metadata_location


def restored(world: World, as_of: str, **options: Any) -> RestoreReport:
    return restore(world.context(), RestoreRequest(as_of, ("ns.t",), **options), quiet, apply=True)


def state(world: World, key: str = "t") -> TableState:
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [("ns", key)])[("ns", key)]
    return TableState.parse(read_json(content.metadata_location or ""))


def step(channel: Channel, number: int) -> Step:
    return Step.of_batch(channel, number, number - 1)


def test_a_channel_that_had_gone_on_stops_and_another_does_not(world: World) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3", FLOW: "17"}))
    run(world)
    world.commit(t=applied(world, {CLICKS: "4", FLOW: "17"}))
    run(world)
    report = restored(world, had, over=True)
    assert report.tables[0].rewinds == (str(CLICKS),)
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [("ns", "t")])[("ns", "t")]
    assert report.tables[0].metadata == content.metadata_location
    with pytest.raises(Rewound, match="restored as of an earlier commit"):
        decide(state(world), step(CLICKS, 4))
    assert isinstance(decide(state(world), Step("x", FLOW, "17", is_numbered=False)), Published)
    # An operator's two ways on: the position is judged as one that can be set again, and all rows may come again.
    assert is_rewound(state(world), CLICKS) and lacks_snapshot_reference(state(world), CLICKS)
    assert isinstance(decide(state(world), Step("y", CLICKS, "4", "3", is_full_reload=True)), Stage)
    run(world)
    assert_closed(world)


def test_a_second_restore_leaves_the_channel_stopped(world: World) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3", FLOW: "17"}))
    world.commit(t=applied(world, {CLICKS: "4", FLOW: "17"}))
    for _ in range(2):
        assert restored(world, had, over=True).tables[0].rewinds == (str(CLICKS),)
        with pytest.raises(Rewound, match="restored as of an earlier commit"):
            decide(state(world), step(CLICKS, 4))
    world.commit(t=None)
    assert restored(world, had).tables[0].rewinds == (str(CLICKS),), "dropped before an operator decided"


@pytest.mark.parametrize("purge", [False, True])
def test_nothing_stops_where_a_table_comes_back_as_it_was_dropped(world: World, purge: bool) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3"}))
    run(world)
    world.commit(t=None)
    if purge:
        shutil.rmtree(world.folder / "us" / "lake" / "t")
    assert restored(world, had).tables[0].rewinds == ()
    assert isinstance(decide(state(world), step(CLICKS, 3)), Published)


def test_what_was_lost_is_known_from_copies(world: World) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3", FLOW: "17"}))
    run(world)
    world.commit(t=applied(world, {CLICKS: "4", FLOW: "17"}))
    run(world)
    world.commit(t=None)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    report = restored(world, had)
    assert (report.tables[0].files_from, report.tables[0].rewinds) == ("eu", (str(CLICKS),))
    with pytest.raises(Rewound):
        decide(state(world), step(CLICKS, 4))
    for region in ("eu", "us"):
        run(world, region)
    assert_closed(world)


def test_a_dry_run_says_it_and_writes_nothing(world: World) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3"}))
    world.commit(t=applied(world, {CLICKS: "4"}))
    before = set(world.folder.rglob("*"))
    report = restore(world.context(), RestoreRequest(had, ("ns.t",), over=True), quiet, apply=False)
    assert report.tables[0].rewinds == (str(CLICKS),)
    assert set(world.folder.rglob("*")) == before


def test_a_table_beside_has_no_channel(world: World) -> None:
    had = world.commit(t=applied(world, {CLICKS: "3"}))
    world.commit(t=applied(world, {CLICKS: "4"}))
    assert restored(world, had, new_name="ns.old").tables[0].rewinds == ()


@pytest.mark.parametrize(
    ("back", "last", "rewound"),
    [
        ({CLICKS: "3"}, {CLICKS: "3"}, []),
        ({CLICKS: "3"}, {CLICKS: "4"}, [CLICKS]),
        ({}, {CLICKS: "4"}, [CLICKS]),
        ({CLICKS: "3"}, {}, [CLICKS]),
        ({CLICKS: "3", FLOW: "1"}, None, [CLICKS, FLOW]),
        ({}, None, []),
    ],
)
def test_positions_are_compared(
    back: Mapping[Channel, str], last: Mapping[Channel, str] | None, rewound: list[Channel]
) -> None:
    def properties(positions: Mapping[Channel, str]) -> dict[str, str]:
        return {"owner": "x", **{channel.position_property: position for channel, position in positions.items()}}

    def marked(positions: Mapping[Channel, str]) -> dict[str, str]:
        return {**properties(positions), FLOW.snapshot_property: "7/1", CLICKS.snapshot_property: RESTORED_REFERENCE}

    if last is not None:
        assert rewound_channels(properties(back), marked(last)) == (str(CLICKS),), "an earlier restore's mark"
    assert rewound_channels(properties(back), None if last is None else properties(last)) == tuple(map(str, rewound))


@pytest.mark.parametrize("properties", ["", '"properties": {},', '"properties": {"a": "1", "b" : "2"},'])
@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json"])
def test_only_properties_and_the_time_change(properties: str, ending: str) -> None:
    text = f'{{ {properties} "last-updated-ms" : 5, "location": "s3://x/t/", "odd": 1.10 }}'
    uri = f"s3://x/t/metadata/00004-a{ending}"
    data = gzip.compress(text.encode()) if ".gz" in ending else text.encode()
    written = with_properties(data, uri, {"b": "3", "c": "é"}, 9)
    plain = (gzip.decompress(written) if ".gz" in ending else written).decode()
    expected = {**json.loads(text), "last-updated-ms": 9}
    expected["properties"] = {**expected.get("properties", {}), "b": "3", "c": "é"}
    assert json.loads(plain) == expected and '"odd": 1.10' in plain
    assert json.loads(with_properties(text.encode(), "x", {}, 3))["last-updated-ms"] == 5
    assert new_metadata_uri(data, uri, UID) == f"s3://x/t/metadata/00005-{UID}{ending}"


def test_a_new_version_goes_where_writers_put_it() -> None:
    data = b'{"location": "s3://x/t", "properties": {"write.metadata.path": "s3://y/m/"}}'
    assert new_metadata_uri(data, "s3://x/t/metadata/v3.metadata.json", UID) == f"s3://y/m/00004-{UID}.metadata.json"
    assert new_metadata_uri(data, "s3://x/odd.json", UID) == f"s3://y/m/00000-{UID}.metadata.json"
