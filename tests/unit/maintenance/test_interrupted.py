"""An old primary that is cut off deletes nothing: it may not know who the primary is by now.

The kind: an epoch that is read from the regions that answer may be an old one. Of the same kind are a region that
answers and accepts no connections, two regions with the same number, a primary that has lost its own epoch, one that is
in no registry, a region that falls silent between the decision and the deletion, and one that has no replica: it is out
of the horizon, and may still become the primary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sterna.config.sections.maintenance import Maintenance
from sterna.errors import Busy, CredentialError, SternaError, UpkeepBlocked
from sterna.maintenance.tables.expire import expire_snapshots
from sterna.maintenance.tables.orphan_files import MainScope, sweep
from sterna.maintenance.tables.results import SweepReport
from sterna.postgres.term import Term
from sterna.replication.replica.region import RegionContext
from tests.support.epochs import OURS, REFUSES, SILENT, THEIRS, Answers, postgres_answers, with_copies
from tests.support.gc import after
from tests.support.small_world import World, make_world, run

UNASKED = CredentialError("no credential eu-pg")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Region us can be swept, and has a table of three snapshots and a file that is nobody's; no copies yet."""
    world = make_world(tmp_path)
    for _ in range(3):
        world.commit(a=world.write("a"))
    run(world)
    orphan = world.folder / "us" / "lake" / "a" / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody's")
    return world


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return postgres_answers(monkeypatch)


def settings(*gone: str, without: Sequence[str] = ()) -> Maintenance:
    fields = {"tables": [{"match": ["**"], "keep": "1s"}], "keep_heads": "1s", "grace": "24h"}
    return Maintenance.model_validate({**fields, "exclude_regions": ["us", *without], "gone": list(gone)})


def swept(world: World, *gone: str, without: Sequence[str] = (), hours: int = 26, delete: bool = True) -> SweepReport:
    return sweep(world.context("us"), settings(*gone, without=without), delete=delete, now=after(hours=hours))


def expired(context: RegionContext, done: list[Any]) -> None:
    def remove(key: str, metadata: str, snapshots: Any) -> bool:
        done.append((key, tuple(snapshots)))
        return True

    expire_snapshots(context, settings(), remove=remove, now=after(hours=26))


def files(world: World) -> set[str]:
    return {str(path) for path in (world.folder / "us" / "lake").rglob("*") if path.is_file()}


def test_where_every_region_was_seen_garbage_goes(world: World, answers: Answers) -> None:
    world = with_copies(world)
    done: list[Any] = []
    swept(world, hours=2)
    assert swept(world).deleted.files == 1
    expired(world.context("us"), done)
    assert len(done[0][1]) == 2


UNCERTAIN: list[tuple[Answers, str]] = [
    ({"eu": SILENT}, "eu was not seen: .*does not answer"),
    ({"eu": REFUSES}, "eu was not seen: .*refused the login"),
    ({"eu": UNASKED}, "no credential eu-pg"),
    ({"us": THEIRS, "eu": None}, "eu itself does not know its term 2-eu"),
    ({"us": Term(2, "us"), "eu": Term(2, "eu")}, "both began a term 2"),
    ({"us": Term(2, "ap"), "eu": OURS}, "ap was not seen: it is not in this registry"),
    ({"us": None, "eu": None}, "no region has a term"),
]


@pytest.mark.parametrize(("said", "why"), UNCERTAIN, ids=[why for _, why in UNCERTAIN])
def test_where_another_may_be_the_primary_nothing_goes(world: World, answers: Answers, said: Answers, why: str) -> None:
    world = with_copies(world)
    swept(world, hours=2)
    before, done, context = files(world), list[Any](), world.context("us")
    assert context.ports.primary_region.name == "us", "connected while all was well"
    answers.update(said)
    for delete in (True, False):
        with pytest.raises(UpkeepBlocked, match=why):
            sweep(context, settings(), delete=delete, now=after(hours=26))
    with pytest.raises(UpkeepBlocked, match=why) as caught:
        expired(context, done)
    assert "maintenance.gone" in caught.value.hint
    assert (files(world), done) == (before, [])


def test_an_old_primary_that_sees_only_itself_believes_nothing(world: World, answers: Answers) -> None:
    """As a run that begins while the region is cut off: the epoch of the regions that answer is its own."""
    world = with_copies(world)
    swept(world, hours=2)
    answers["eu"] = SILENT
    before = files(world)
    with pytest.raises(UpkeepBlocked, match="eu was not seen"):
        swept(world)
    assert files(world) == before
    answers["eu"] = OURS
    assert swept(world).deleted.files == 1, "it goes on once eu answers"


def test_one_that_has_no_replica_has_to_be_seen(world: World, answers: Answers) -> None:
    """It may become the primary, as any other: only one that is gone for good can't."""
    world = with_copies(world)
    swept(world, hours=2)
    answers["eu"] = SILENT
    with pytest.raises(UpkeepBlocked, match="eu was not seen"):
        swept(world, without=["eu"])
    assert swept(world, "eu").deleted.files == 1


def test_one_that_an_operator_left_out_may_be_silent_and_not_at_work(world: World, answers: Answers) -> None:
    world = with_copies(world)
    swept(world, hours=2)
    answers["eu"] = REFUSES
    with pytest.raises(UpkeepBlocked, match="eu was not seen"):
        swept(world, "eu")
    answers |= {"eu": SILENT, "us": THEIRS}
    with pytest.raises((UpkeepBlocked, Busy)):
        swept(world, "eu")
    answers |= {"us": OURS}
    assert swept(world, "eu").deleted.files == 1


@pytest.mark.parametrize(("said", "why"), [(SILENT, UpkeepBlocked), (THEIRS, Busy)], ids=["silent", "promoted"])
def test_what_changes_between_decision_and_deletion_ends_it(
    world: World,
    answers: Answers,
    said: Term | SternaError,
    why: type[SternaError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_copies(world)
    swept(world, hours=2)
    before, real = files(world), MainScope.build_report

    def changed(*arguments: Any, **options: Any) -> SweepReport:
        answers["eu"] = said
        return real(*arguments, **options)

    monkeypatch.setattr(MainScope, MainScope.build_report.__name__, changed)
    with pytest.raises(why):
        swept(world)
    assert files(world) == before
