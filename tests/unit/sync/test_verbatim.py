"""Verbatim copies of other regions' path-bearing files: all that a head needs, whole, and without delaying anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, Put
from sterna.errors import StoreUnreachable
from sterna.operations.status.gather import gather_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.text.status import status_text
from tests.support.small_world import World, here, refusing, run, view
from tests.support.verbatim import copies, keeping, markers, originals, path_of, without_first
from tests.unit.sync.test_bulk_copy import LARGE, with_lanes


def test_copies_are_made_where_the_region_keeps_them(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    assert copies(world) == {}
    kept = keeping(world, "us")
    kept.commit(a=kept.write("a"))
    run(kept)
    assert copies(kept) == {}, "another region's setting"


def test_each_file_that_a_head_needs_is_copied_byte_for_byte(world: World) -> None:
    kept = keeping(world, "eu")
    first = kept.write("a")
    kept.commit(a=first)
    report = run(kept)
    assert copies(kept) == without_first(originals(kept))
    kept.commit(a=kept.write("a"))
    lines: list[str] = []
    sync(kept.context(), SyncOptions(), lines.append, engine=here)
    assert copies(kept) == without_first(originals(kept))
    # The metadata.json and the list; the manifest was written as the plan read it.
    assert next(line for line in lines if "verbatim" in line).startswith("verbatim copies: 2 files, ")
    assert report.held == ()


def test_a_views_metadata_is_copied(world: World) -> None:
    kept = keeping(world, "eu")
    entry = Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(kept, "v"), "versionId": 1, "schemaId": 0})
    head = kept.commit(a=kept.write("a"))
    kept.catalog.commit("main", head, [Put(("ns", "v"), entry)], "write")
    assert "ns.v" in run(kept).published
    assert copies(kept) == without_first(originals(kept)) | {
        path: content for path, content in originals(kept).items() if "/v/" in path
    }


def test_versions_from_before_get_their_copies_by_a_later_sync(world: World) -> None:
    for name in "ab":
        world.commit(**{name: world.write(name)})
    run(world)
    kept = keeping(world, "eu")
    assert run(kept).published == (), "nothing changed on main"
    assert copies(kept) == without_first(originals(kept))
    for path in (kept.folder / "eu/replica/_sterna/verbatim/us-lake/a").rglob("*.json"):
        path.unlink()
    assert run(kept).outcome == "idle"
    assert copies(kept) != without_first(originals(kept)), "a sync with nothing to do looks at nothing"
    run(kept, full=True)
    assert copies(kept) == without_first(originals(kept))


def test_nothing_waits_for_a_copy_and_the_metadata_json_is_the_last_one(world: World, unreadable: list[str]) -> None:
    kept = keeping(world, "eu")
    location = kept.write("a")
    kept.commit(a=location, b=kept.write("b"))
    unreadable.append(next(iter((kept.folder / "us/lake/a").rglob("snap-*.avro"))).name)
    lines: list[str] = []
    report = sync(kept.context(), SyncOptions(), lines.append, engine=here)
    assert (set(report.published), report.held) == ({"ns", "ns.a", "ns.b"}, ())
    assert next(line for line in lines if "incomplete" in line).startswith("verbatim copies of ns.a are incomplete: ")
    assert not path_of(location, kept).exists()
    assert {path.split("/")[1] for path in copies(kept) if path.endswith(".json")} == {"b"}
    status = gather_status(kept.context())
    assert (status.uncopied, status.unseen) == (("ns.a",), ())
    assert "verbatim copies are incomplete of 1 tables and views: ns.a" in status_text(status)
    with refusing(f"file://{kept.folder}/eu/replica/_sterna/verbatim", StoreUnreachable):
        (unseen,) = gather_status(kept.context()).unseen
    assert unseen.startswith("whether verbatim copies are complete: ")
    unreadable.clear()
    run(kept, full=True)
    assert copies(kept) == without_first(originals(kept))
    assert gather_status(kept.context()).uncopied == ()


def test_a_version_after_an_incomplete_one_is_complete_only_with_what_that_one_lacks(
    world: World, unreadable: list[str]
) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    first = next(iter((kept.folder / "us/lake/a").rglob("snap-*.avro"))).name
    unreadable.append(first)
    run(kept)
    assert (markers(kept), gather_status(kept.context()).uncopied) == (set(), ("ns.a",))
    lost = next((kept.folder / "eu/replica/_sterna/verbatim").rglob("*-m0.avro"))
    lost.unlink()
    # The next version doesn't reuse the manifest: only the list of the one before names it.
    table = kept.writer.load_table(("ns", "a"))
    table.overwrite(table.scan().to_arrow())
    kept.commit(a=table.metadata_location)
    run(kept)
    assert (markers(kept), gather_status(kept.context()).uncopied) == (set(), ("ns.a",))
    unreadable.clear()
    kept.commit(a=kept.write("a"))
    run(kept)
    avro = {path for path in originals(kept) if path.endswith(".avro")}
    assert avro <= {*copies(kept)}
    assert len(markers(kept)) == 1
    assert gather_status(kept.context()).uncopied == ()


def test_a_lost_copy_is_brought_by_a_sync_of_everything_and_seen_until_then(
    world: World, unreadable: list[str]
) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"), b=kept.write("b"))
    run(kept)
    assert len(markers(kept)) == 2
    lost = next((kept.folder / "eu/replica/_sterna/verbatim/us-lake/a").rglob("*-m0.avro"))
    content = lost.read_bytes()
    lost.unlink()
    unreadable.append(lost.name)
    run(kept, full=True)
    assert gather_status(kept.context()).uncopied == ("ns.a",)
    assert path_of(kept.writer.load_table(("ns", "a")).metadata_location, kept).exists(), "commits may do without it"
    unreadable.clear()
    run(kept, full=True)
    assert lost.read_bytes() == content
    assert gather_status(kept.context()).uncopied == ()


@pytest.mark.parametrize(
    ("name", "pattern", "garbage"),
    [
        ("snap-*.avro", rb"(?s).+", b"x"),
        ("*.json", rb"(?s).+", b"x"),
        # What reads as if another version had written it, or as more than the limits allow.
        ("*.json", rb'(?<="format-version":)2', b"9"),
        ("*.json", rb"(?s).+", b"["),
        ("snap-*.avro", rb"deflate", b"q"),
    ],
)
def test_a_garbled_list_or_metadata_json_is_written_again_by_a_sync_of_everything(
    world: World, name: str, pattern: bytes, garbage: bytes
) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    garbled = [path for path in (kept.folder / "eu/replica/_sterna/verbatim").rglob(name) if path.stat().st_size > 9]
    for path in garbled:
        content, count = re.subn(pattern, lambda match: garbage * len(match[0]), path.read_bytes())
        assert count
        path.write_bytes(content)
    assert garbled
    run(kept, full=True)
    assert copies(kept) == without_first(originals(kept))
    assert gather_status(kept.context()).uncopied == ()


def test_a_table_whose_newest_metadata_json_is_this_regions_own_needs_copies_of_the_rest(
    world: World, unreadable: list[str]
) -> None:
    """As after a commit by the region's address: lists and manifests of the table's home are still needed."""
    kept = keeping(world, "eu")
    location = kept.write("a")
    own = kept.folder / "eu/lake/near/00001-own.metadata.json"
    own.parent.mkdir(parents=True)
    own.write_bytes(Path(location.removeprefix("file://")).read_bytes())
    unreadable.append(next(iter((kept.folder / "us/lake/a").rglob("snap-*.avro"))).name)
    kept.commit(a=f"file://{own}")
    run(kept)
    assert gather_status(kept.context()).uncopied == ("ns.a",)
    unreadable.clear()
    run(kept, full=True)
    assert gather_status(kept.context()).uncopied == ()


def test_a_copy_that_is_not_whole_is_written_again(world: World) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    manifest = next((kept.folder / "eu/replica/_sterna/verbatim").rglob("*-m0.avro"))
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-7])
    for metadata in (kept.folder / "eu/replica/_sterna/verbatim").rglob("*.json"):
        metadata.unlink()
    run(kept, full=True)
    assert manifest.read_bytes() == content


def test_a_table_that_the_large_lane_copies_gets_its_copies(world: World) -> None:
    kept = with_lanes(keeping(world, "eu"))
    kept.commit(a=kept.write("a", LARGE))
    report = run(kept)
    assert (report.transit, report.held) == ((), ())
    assert copies(kept) == without_first(originals(kept))


def test_a_source_that_is_gone_ends_nothing(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    for path in (world.folder / "us/lake/a").rglob("*.avro"):
        path.unlink()
    lines: list[str] = []
    report = sync(keeping(world, "eu").context(), SyncOptions(), lines.append, engine=here)
    assert report.held == ()
    assert any("verbatim copies of ns.a are incomplete" in line for line in lines)
    assert copies(world) == {}
