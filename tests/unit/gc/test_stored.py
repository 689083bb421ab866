"""What a sync leaves is bounded by what changed and by `--keep`, and `status` says what it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import StoreUnreachable
from sterna.operations.status.gather import gather_status
from sterna.operations.status.read import read_alarm_status
from sterna.storage.objects import Objects
from sterna.text.status import status_text
from tests.support.gc import clean
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.small_world import World, run


def metadata(world: World) -> dict[str, int]:
    """Name and size of each metadata.json below the replica root."""
    root = world.folder / "eu/replica" / LOCALIZED_FOLDER
    return {path.name: path.stat().st_size for path in root.rglob("*.metadata.json")}


def stored(world: World, *without: str) -> int:
    root: Path = world.folder / "eu/replica"
    files = (path for path in root.rglob("*") if path.is_file() and not set(without) & set(path.parts))
    return sum(path.stat().st_size for path in files)


def grown(world: World, commits: int = 4) -> None:
    for _ in range(commits):
        world.commit(a=world.write("a"))
        run(world)


def soon(hours: float = 0.0) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


SHORT = {"keep": timedelta(hours=1), "grace": timedelta(hours=1)}


def test_superseded_metadata_goes_with_keep(world: World) -> None:
    grown(world)
    assert len(metadata(world)) == 4
    clean(world, soon(), **SHORT)
    assert len(metadata(world)) == 4, "older heads within --keep need theirs"
    clean(world, soon(3), **SHORT)
    clean(world, soon(5), **SHORT)
    assert len(metadata(world)) == 1
    assert stored(world, "collect") == sum(
        path.stat().st_size
        for path in (world.folder / "eu/replica").rglob("*")
        if path.is_file() and ("_sterna" not in path.parts or "delays" in path.parts)
    ), "no evidence is left but that of clean-ups, and the index of delays"


def test_status_tells_what_the_newest_clean_up_counted(world: World) -> None:
    grown(world)
    assert gather_status(world.context()).stored is None
    before = metadata(world)
    at = soon()
    clean(world, at, delete=False, **SHORT)
    totals = gather_status(world.context()).stored
    assert totals
    assert totals.at == at.isoformat()
    assert (totals.superseded.files, totals.unreachable.files) == (3, 0)
    assert totals.superseded.bytes == sum(before.values()) - before[max(before)]
    evidence = [path for path in (world.folder / "eu/replica/_sterna").rglob("*") if path.is_file()]
    assert {path.relative_to(world.folder / "eu/replica/_sterna").parts[0] for path in evidence} >= {"runs", "delays"}
    before_pass = [path for path in evidence if "collect" not in path.parts]
    assert totals.evidence.bytes == sum(path.stat().st_size for path in before_pass)
    for hours in (3, 5):
        clean(world, soon(hours), delete=False, **SHORT)
    would_go = gather_status(world.context()).stored
    assert would_go
    assert would_go.superseded.files == 0
    assert 0 < would_go.garbage.files <= would_go.unreachable.files
    clean(world, soon(7), **SHORT)
    gone = read_alarm_status(world.context()).stored
    assert gone
    assert (gone.garbage.files, gone.superseded.files) == (0, 0)
    text = status_text(read_alarm_status(world.context()))
    assert f"stored at the clean-up of {gone.at}: {gone.objects.files} files" in text


def test_status_answers_where_the_records_of_clean_ups_can_not_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(world, 1)
    clean(world, soon(), delete=False)
    (report,) = (world.folder / "eu/replica/_sterna/collect").glob("*.json")
    report.write_text("{")
    assert gather_status(world.context()).stored is None

    def dark(*args: Any, **options: Any) -> Any:
        raise StoreUnreachable("is dark")

    monkeypatch.setattr(Objects, "list", dark)
    assert any("records of clean-ups" in what for what in gather_status(world.context()).unseen)
