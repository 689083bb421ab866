"""Broken and unknown metadata.

The table is held with the file and the reason, the others go through, and it recovers by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Put
from tests.support.own_region import (
    OwnRegion,
    commit,
    drop_all,
    own_region,
    put_object,
    read_metadata,
    read_object,
    remove_object,
)
from tests.support.world import MERGE_ON_READ, World


@dataclass(frozen=True)
class Damage:
    """Something wrong with a table of main.

    Args:
        kind, reason: what is said of it.
        break_it: does the damage to a table and returns the URI to be named, and how to undo it.
    """

    kind: str
    reason: str
    break_it: Callable[[World, str], tuple[str, Callable[[], None]]]


@pytest.fixture
def ns(world: World) -> Iterator[str]:
    with world.namespace("broken") as name:
        try:
            yield name
        finally:
            drop_all(world, name)


def make(world: World, name: str) -> None:
    world.sql(f"CREATE TABLE main_us.broken.{name} (id BIGINT) USING iceberg {MERGE_ON_READ}")
    change(world, name)


def change(world: World, name: str) -> None:
    """Append some rows and delete one of them, so that there is a file of every kind."""
    world.sql(f"INSERT INTO main_us.broken.{name} SELECT id FROM range(0, 10, 1, 1)")
    world.sql(f"DELETE FROM main_us.broken.{name} WHERE id = 3")


def newest(world: World, name: str, what: str) -> str:
    """Return the URI of a file of a table's newest commit, which only that commit needs."""
    metadata = read_metadata(world, world.content(("broken", name)))
    if what == "manifest list":
        return str(metadata["snapshots"][-1]["manifest-list"])
    snapshot = metadata["current-snapshot-id"]
    manifest, data = (f"main_us.broken.{name}.{part}" for part in ("manifests", "entries"))
    if what == "manifest":
        (newest_row,) = world.sql(f"SELECT path FROM {manifest} WHERE added_snapshot_id = {snapshot} AND content = 1")
    else:
        (newest_row,) = world.sql(
            f"SELECT data_file.file_path FROM {data} WHERE snapshot_id = {snapshot} AND data_file.content = 1"
        )
    return str(newest_row[0])


def located(world: World, name: str) -> str:
    return world.content(("broken", name)).metadata_location or ""


def missing(what: str) -> Damage:
    def break_it(world: World, name: str) -> tuple[str, Callable[[], None]]:
        uri = located(world, name) if what == "metadata" else newest(world, name, what)
        data = read_object(world, uri)
        remove_object(world, uri)
        return uri, lambda: put_object(world, uri, data)

    return Damage("SourceGone", "gone", break_it)


def spoilt(what: str, kind: str, reason: str, spoil: Callable[[bytes], bytes]) -> Damage:
    def break_it(world: World, name: str) -> tuple[str, Callable[[], None]]:
        uri = located(world, name) if what == "metadata" else newest(world, name, what)
        data = read_object(world, uri)
        changed = spoil(data)
        assert changed != data
        put_object(world, uri, changed)
        return uri, lambda: put_object(world, uri, data)

    return Damage(kind, reason, break_it)


def committed(kind: str, reason: str, alter: Callable[[dict[str, Any]], None]) -> Damage:
    """A writer commits a metadata.json that sterna can't take; the next commit is a good one again."""

    def break_it(world: World, name: str) -> tuple[str, Callable[[], None]]:
        content = world.content(("broken", name))
        metadata = read_metadata(world, content)
        alter(metadata)
        uri = located(world, name).replace(".metadata.json", "-altered.metadata.json")
        put_object(world, uri, json.dumps(metadata).encode())
        commit(world, Put(("broken", name), content.with_metadata_location(uri)))
        return uri, lambda: commit(world, Put(("broken", name), content))

    return Damage(kind, reason, break_it)


DAMAGES = {
    "no_metadata": missing("metadata"),
    "no_list": missing("manifest list"),
    "no_manifest": missing("manifest"),
    "no_deletes": missing("position delete"),
    "garbage": spoilt("metadata", "BrokenMetadata", "", lambda data: b'{"format-version": 2, garbage'),
    "empty": spoilt("metadata", "BrokenMetadata", "", lambda data: b""),
    "list_garbage": spoilt("manifest list", "BrokenMetadata", "", lambda data: b"\x00" * len(data)),
    "codec": spoilt("manifest", "Unsupported", "codec", lambda data: data.replace(b"\x0edeflate", b"\x0ebrotli9", 1)),
    "shorter": spoilt("manifest", "SizeDiffers", "bytes", lambda data: data[:-20]),
    "flipped": spoilt("manifest", "BrokenMetadata", "", lambda data: data[:-30] + b"\xff" * 14 + data[-16:]),
    "version": committed("Unsupported", "version 4", lambda metadata: metadata.update({"format-version": 4})),
    "no_location": committed("BrokenMetadata", "location", lambda metadata: metadata.pop("location")),
}


_OTHERS = ("no_list", "empty", "list_garbage", "no_location")
"""A second kind of a file that is gone, is no JSON, is no Avro, or was committed so."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in DAMAGES if name not in _OTHERS], id="decisive"),
        pytest.param(_OTHERS, id="others", marks=pytest.mark.rare),
    ],
)
def test_broken_tables_are_held_one_by_one_and_recover_by_themselves(
    world: World, ns: str, tmp_path: Path, names: Sequence[str]
):
    region = own_region(world, tmp_path, f"broken{len(names)}")
    damages = {name: DAMAGES[name] for name in names}
    for name in (*damages, "good"):
        make(world, name)
    report = region.sync()
    assert report.held == ()
    rows = replica_rows(region, *damages)
    for name in (*damages, "good"):
        change(world, name)
    broken = {name: damage.break_it(world, name) for name, damage in damages.items()}
    report = region.sync()
    assert report.published == ("broken.good",)
    held = region.held()
    assert {key: (item.kind, item.file) for key, item in held.items()} == {
        f"broken.{name}": (damages[name].kind, uri) for name, (uri, _) in broken.items()
    }
    for name, damage in damages.items():
        assert damage.reason in held[f"broken.{name}"].reason
        assert held[f"broken.{name}"].good, "the replica still shows an older version"
    assert replica_rows(region, *damages) == rows
    region.assert_equal("broken.good")
    assert region.sync().published == ()
    for _, mend in broken.values():
        mend()
    report = region.sync()
    assert report.held == ()
    assert set(report.published) == {f"broken.{name}" for name in damages}
    assert replica_rows(region, *damages) == main_rows(world, *damages) != rows
    region.assert_closed(*(f"broken.{name}" for name in damages))


def test_a_table_that_was_never_good_is_absent_until_it_is(world: World, ns: str, tmp_path: Path):
    region = own_region(world, tmp_path, "nevergood")
    make(world, "bad")
    make(world, "good")
    uri, mend = missing("manifest").break_it(world, "bad")
    report = region.sync()
    assert [(item.key, item.kind, item.file, item.good) for item in report.held] == [
        ("broken.bad", "SourceGone", uri, "")
    ]
    assert region.replica().keys() == {"broken", "broken.good"}
    mend()
    assert region.sync().published == ("broken.bad",)
    region.assert_equal("broken.bad", "broken.good")


def test_a_broken_table_that_is_renamed_or_dropped(world: World, ns: str, tmp_path: Path):
    region = own_region(world, tmp_path, "renamed")
    for name in ("bad", "worse"):
        make(world, name)
    region.sync()
    rows = replica_rows(region, "bad")
    mends = []
    for name in ("bad", "worse"):
        change(world, name)
        mends.append(missing("manifest").break_it(world, name)[1])
    region.sync()
    world.sql("ALTER TABLE main_us.broken.bad RENAME TO main_us.broken.moved")
    report = region.sync()
    assert {item.key: item.waits_for for item in report.held} == {
        "broken.bad": "broken.moved",
        "broken.moved": "",
        "broken.worse": "",
    }
    assert replica_rows(region, "bad") == rows, "its last good version stays, under the name that it had"
    world.sql("DROP TABLE main_us.broken.worse")
    region.sync()
    assert region.held().keys() == {"broken.bad", "broken.moved"}
    assert "broken.worse" not in region.replica()
    mends[0]()
    assert region.sync().held == ()
    assert region.replica().keys() == {"broken", "broken.moved"}
    region.assert_equal("broken.moved")


def test_a_view_that_is_broken(world: World, ns: str, tmp_path: Path):
    region = own_region(world, tmp_path, "brokenview")
    make(world, "base")
    world.sql("CREATE VIEW main_us.broken.seen AS SELECT 1 AS id")
    region.sync()
    world.sql("CREATE OR REPLACE VIEW main_us.broken.seen AS SELECT 2 AS id")
    uri = located(world, "seen")
    data = read_object(world, uri)
    put_object(world, uri, data[:-9])
    (held,) = region.sync().held
    assert (held.key, held.kind, held.file) == ("broken.seen", "BrokenMetadata", uri)
    assert replica_rows(region, "seen") == [("seen", 1)]
    put_object(world, uri, data)
    assert region.sync().published == ("broken.seen",)
    assert replica_rows(region, "seen") == [("seen", 2)]


@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest", "position delete"])
def test_a_fault_that_is_known_is_no_news(world: World, ns: str, tmp_path: Path, what: str):
    region = own_region(world, tmp_path, f"nonews{what.replace(' ', '')}")
    make(world, "bad")
    missing(what).break_it(world, "bad")
    assert [item.key for item in region.sync().held] == ["broken.bad"]
    head = world.catalog.reference(region.branch).hash
    assert region.sync().outcome == "idle"
    assert world.catalog.reference(region.branch).hash == head


def test_what_breaks_after_it_was_brought_is_no_fault(world: World, ns: str, tmp_path: Path):
    region = own_region(world, tmp_path, "brokenlater")
    make(world, "old")
    region.sync()
    rows = replica_rows(region, "old")
    for uri in [newest(world, "old", what) for what in ("manifest list", "manifest", "position delete")]:
        remove_object(world, uri)
    world.sql("ALTER TABLE main_us.broken.old SET TBLPROPERTIES ('k'='v')")
    report = region.sync()
    assert report.held == ()
    assert report.published == ("broken.old",)
    assert replica_rows(region, "old") == rows
    region.assert_closed("broken.old")


def replica_rows(region: OwnRegion, *names: str) -> list[tuple[Any, ...]]:
    """Return (table, id) of all rows of some tables of the replica, with us dark."""
    return sorted(region.rows(union("{0}", *names)))


def main_rows(world: World, *names: str) -> list[tuple[Any, ...]]:
    return sorted(world.sql(union("main_us", *names)))


def union(catalog: str, *names: str) -> str:
    return " UNION ALL ".join(f"SELECT '{name}', id FROM {catalog}.broken.{name}" for name in names)
