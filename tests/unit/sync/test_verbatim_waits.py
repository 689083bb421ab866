"""No table waits for a verbatim copy: what a version lacks is looked up once it is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import CatalogUnreachable, StoreUnreachable
from sterna.operations.status.gather import gather_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import read_head
from sterna.replication.sync import stages, verbatim
from sterna.replication.sync.run import sync
from tests.support.small_world import World, here, planned, quiet, refusing, run
from tests.support.verbatim import copies, keeping, markers, originals, without_first

BRANCH = "main_replica_eu"


@pytest.fixture
def looked_up(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """By table, the watermark that readers saw when all files of a version were looked up."""
    watermarks: dict[str, str] = {}
    plain = verbatim.read_metadata

    def look_up(context: Any, uri: str) -> Any:
        watermarks[Path(uri).parts[-3]] = read_head(world.catalog, BRANCH).watermark
        return plain(context, uri)

    monkeypatch.setattr(verbatim, "read_metadata", look_up)
    yield watermarks


def test_where_the_setting_is_turned_on_changes_are_published_first(world: World, looked_up: dict[str, str]) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    kept = keeping(world, "eu")
    before = without_first(originals(kept, "us"))
    head = kept.commit(a=kept.write("a"))
    assert "ns.a" in run(kept).published
    assert looked_up == {"a": head, "b": head}
    assert {path for path in before if path.endswith(".avro")} <= set(copies(kept))
    assert gather_status(kept.context()).uncopied == ()


def test_what_the_version_before_lacks_is_looked_up_once_the_new_one_is_published(
    world: World, looked_up: dict[str, str], unreadable: list[str]
) -> None:
    """As while the home is dark: a list of an older snapshot is read there."""
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    unreadable.append(next(iter((kept.folder / "us/lake/a").rglob("snap-*.avro"))).name)
    run(kept)
    assert looked_up.keys() == {"a"}
    looked_up.clear()
    head = kept.commit(a=kept.write("a"))
    with refusing(f"file://{kept.folder}/us/lake", StoreUnreachable, files=f"*{unreadable[0]}") as refused:
        assert run(kept).published == ("ns.a",)
    assert refused
    assert looked_up == {"a": head}
    assert gather_status(kept.context()).uncopied == ("ns.a",)
    unreadable.clear()
    kept.commit(a=kept.write("a"))
    run(kept)
    assert gather_status(kept.context()).uncopied == ()


def test_a_seed_looks_up_all_tables_once(world: World) -> None:
    kept = keeping(world, "eu")
    for name in "abc":
        kept.commit(**{name: kept.write(name)})
    first = planned(kept, seed_group=1)
    assert (first.more, first.verbatim) == (True, "")
    assert planned(kept, seed_group=9).verbatim == "unmarked"
    run(kept, seed_group=1)
    assert (len(markers(kept)), gather_status(kept.context()).uncopied) == (3, ())


def test_a_plan_that_is_left_to_others_looks_up_nothing(world: World, looked_up: dict[str, str]) -> None:
    world.commit(a=world.write("a"))
    run(world)
    kept = keeping(world, "eu")
    left = stages.plan(kept.context(), SyncOptions(lane="small"), quiet, lambda *_: "it is for others")
    assert (left.deferred, looked_up) == ("it is for others", {})
    run(kept)
    assert looked_up.keys() == {"a"}


def test_tables_of_many_files_don_t_wait_in_memory_for_one_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the last table is looked up, others are complete already."""
    world.commit(**{name: [world.write(name) for _ in range(3)][-1] for name in "abc"})
    run(world)
    kept = keeping(world, "eu")
    complete: list[int] = []
    plain = verbatim.read_metadata

    def look_up(context: Any, uri: str) -> Any:
        complete.append(len(markers(kept)))
        return plain(context, uri)

    monkeypatch.setattr(verbatim, "read_metadata", look_up)
    monkeypatch.setattr(verbatim, "MAX_FILES_AT_ONCE", 10)
    run(kept)
    assert complete == [0, 0, 2]
    assert gather_status(kept.context()).uncopied == ()


def test_of_a_table_that_continues_from_a_replica_nothing_is_read_where_it_was_born(world: World) -> None:
    """As after a promotion with tables: that region is lost."""
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"), b=kept.write("b"))
    run(kept)
    for lost in (kept.folder / "eu/replica/_sterna/verbatim/us-lake").rglob("snap-*.avro"):
        lost.unlink()
    kept.commit(a=kept.replica()["ns.a"].metadata_location)
    lines: list[str] = []
    with refusing(f"file://{kept.folder}/us/lake/a", StoreUnreachable) as refused:
        sync(kept.context(), SyncOptions(full=True), lines.append, engine=here)
    assert refused == []
    assert not any("incomplete" in line for line in lines)
    assert {path.split("/")[1] for path in copies(kept) if "/snap-" in path} == {"b"}


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_sync_is_done_though_copies_can_t_be_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch, is_idle: bool
) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    if not is_idle:
        kept.commit(a=kept.write("a"))

    def no_answer(*_: Any, **__: Any) -> Any:
        raise CatalogUnreachable("no answer")

    monkeypatch.setattr(verbatim, "read_copied_tables", no_answer)
    lines: list[str] = []
    report = sync(kept.context(), SyncOptions(full=True), lines.append, engine=here)
    assert report.outcome == ("idle" if is_idle else "published")
    assert "verbatim copies were not all looked up: no answer" in lines
