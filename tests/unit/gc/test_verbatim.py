"""Verbatim copies go with the versions that need them, and never before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sterna.config.metadata_names import without_digest
from sterna.config.verbatim_copies import verbatim_uri
from sterna.errors import StoreUnreachable
from sterna.maintenance.gc.model import GcReport
from sterna.operations.status.gather import gather_status
from sterna.storage.objects import Objects
from sterna.text.status import status_text
from tests.support.gc import clean, later, much_later, rewritten, strict
from tests.support.rest_address import read_json
from tests.support.small_world import World, run, with_registry
from tests.support.verbatim import copies, keeping, markers, originals, path_of, without_first


def needed(world: World, name: str = "a") -> set[str]:
    """The copies that the newest version of a table needs: its metadata.json, and all below it."""
    metadata = world.writer.load_table(("ns", name)).metadata_location
    folder = f"us-lake/{name}/metadata/"
    names = {metadata.rpartition("/")[2]}
    for snapshot in read_json(metadata)["snapshots"]:
        names.add(snapshot["manifest-list"].rpartition("/")[2])
    table = world.writer.load_table(("ns", name))
    names |= {path.rpartition("/")[2] for path in table.inspect.all_manifests()["path"].to_pylist()}
    return {folder + one for one in names}


def collected(world: World, **options: Any) -> GcReport:
    """Two passes, long after whatever was kept for a while."""
    clean(world, later(), **options)
    return clean(world, much_later(), **options)


def test_exactly_the_copies_of_kept_versions_stay(world: World) -> None:
    kept = keeping(world, "eu")
    rewritten(kept)
    kept.commit(a=kept.write("a"))
    run(kept)
    before = set(copies(kept))
    assert needed(kept) < before
    report = collected(kept)
    assert set(copies(kept)) == needed(kept)
    assert report.strange.files == 0
    assert markers(kept) == {path for path in needed(kept) if path.endswith(".json")}
    assert report.verbatim.files == len(needed(kept)) + 1
    stored = gather_status(kept.context()).stored
    assert stored is not None
    assert stored.verbatim == report.verbatim
    assert "; verbatim copies " in status_text(gather_status(kept.context()))


def test_copies_of_older_heads_stay_as_long_as_these(world: World) -> None:
    kept = keeping(world, "eu")
    rewritten(kept)
    before = copies(kept)
    now = datetime.now(UTC)
    for hours in (2, 30):
        clean(kept, now + timedelta(hours=hours))
    assert copies(kept) == before


def test_without_the_setting_all_copies_are_garbage(world: World) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    assert copies(kept)
    collected(keeping(world))
    assert (copies(kept), markers(kept)) == ({}, set())


def test_a_files_copy_that_is_needed_again_is_never_deleted(world: World) -> None:
    """A pass found it unreachable; before the next one a version that needs it is published."""
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    content = next(iter(kept.catalog.contents("main", kept.catalog.reference("main").hash, [("ns", "a")]).values()))
    kept.commit(a=None)
    run(kept)
    clean(kept, later())
    kept.commit(a=content.metadata_location)
    run(kept)
    clean(kept, much_later())
    assert copies(kept) == without_first(originals(kept))


def test_copies_of_refused_tables_go_with_them(world: World) -> None:
    kept = keeping(world, "eu")
    for name in ("a", "secret"):
        kept.commit(**{name: kept.write(name)})
    run(kept)
    refused = strict(kept)
    run(refused)
    clean(refused, evict=True)
    assert {path.split("/")[1] for path in copies(kept)} == {"a"}


def test_a_clean_up_that_ends_in_the_middle_leaves_no_marker_without_its_copies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeping(world, "eu")
    rewritten(kept)
    kept.commit(a=kept.write("a"))
    run(kept)
    before = copies(kept)
    clean(kept, later())
    plain = Objects.delete

    def delete(objects: Objects, uris: Sequence[str], **options: Any) -> Any:
        if any("/_sterna/verbatim/" in uri and without_digest(uri) == uri for uri in uris):
            raise StoreUnreachable("no answer")
        return plain(objects, uris, **options)

    monkeypatch.setattr(Objects, "delete", delete)
    with pytest.raises(StoreUnreachable):
        clean(kept, much_later())
    assert needed(kept) < set(before)
    assert copies(kept) == before
    assert markers(kept) == {path for path in needed(kept) if path.endswith(".json")}


def test_what_is_no_copy_is_left_alone(world: World) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    unknown = kept.folder / "eu/replica/_sterna/verbatim/unknown/x.avro"
    unknown.parent.mkdir()
    unknown.write_text("x")
    assert collected(kept).strange.files == 1
    assert unknown.exists()


def test_all_of_it_is_found_by_the_names_of_what_is_localized(world: World) -> None:
    kept = with_registry(keeping(world, "eu"), policies=[{"tables": ["**"], "history": {"latest": 1}}])
    for _ in range(3):
        kept.commit(a=kept.write("a"))
        run(kept)
    collected(kept)
    table = kept.writer.load_table(("ns", "a"))
    newest = table.current_snapshot()
    assert newest is not None
    assert path_of(table.metadata_location, kept).exists()
    lists = {path for path in copies(kept) if "/snap-" in path}
    assert {path.rpartition("/")[2] for path in lists} == {newest.manifest_list.rpartition("/")[2]}
    assert verbatim_uri(kept.context().mapping, newest.manifest_list)
