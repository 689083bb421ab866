"""Tables that an operator has paused stay as they are in a region, whatever main does, until they are resumed.

The kinds of changes: a new version, a drop, a rename, a first version, a view, another metadata version, another rule
of the registry. What moves together with a paused table waits for it, and nothing else does. What the
registry keeps off a region leaves it all the same.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, Put
from sterna.config.registry.model import digest
from sterna.errors import SternaError, StoreUnreachable, UsageError
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.operations.status.explain_table import explain_table
from sterna.operations.status.read import read_status
from sterna.replication.replica import pauses
from sterna.replication.replica.model import Report
from sterna.storage.objects import Objects
from tests.support.small_world import World, planned, refusing, ruled, run, view


@pytest.fixture
def seeded(world: World) -> World:
    """Tables a and b, which are in eu as main has them."""
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    run(world)
    return world


def pause(world: World, *names: str, reason: str = "backfill until noon") -> tuple[pauses.Pause, ...]:
    return pauses.pause(world.context(), names, reason, apply=True)


def resume(world: World, *names: str) -> tuple[pauses.Pause, ...]:
    return pauses.resume(world.context(), names, apply=True)


def held(report: Report) -> dict[str, str]:
    return {entry.key: entry.kind for entry in report.held}


def shown(world: World, name: str = "ns.a") -> str | None:
    content = world.replica().get(name)
    return content.metadata_location if content else None


def folder(world: World) -> Path:
    return world.folder / "eu" / "replica" / "_sterna" / "paused"


def test_a_paused_table_stays_as_it_is_while_others_go_on(seeded: World) -> None:
    before = shown(seeded)
    pause(seeded, "ns.a")
    assert run(seeded).outcome == "idle"  # nothing has changed yet
    seeded.commit(a=seeded.write("a"))
    seeded.commit(b=seeded.write("b"))
    report = run(seeded)
    assert report.published == ("ns.b",)
    [entry] = report.held
    assert (entry.key, entry.kind, shown(seeded)) == ("ns.a", "Paused", before)
    assert "backfill until noon" in entry.reason
    assert run(seeded).outcome == "idle"  # what is held is recorded once


def test_a_resumed_table_is_published_by_the_next_sync_without_a_commit_on_main(seeded: World) -> None:
    pause(seeded, "ns.a")
    seeded.commit(a=seeded.write("a"))
    run(seeded)
    assert [paused.key for paused in resume(seeded, "ns.a")] == ["ns.a"]
    report = run(seeded)
    assert (report.published, report.held) == (("ns.a",), ())
    assert pauses.read_pauses(seeded.context()) == ()


def test_a_paused_table_is_dropped_once_it_is_resumed(seeded: World) -> None:
    pause(seeded, "ns.a")
    seeded.commit(a=None)
    assert held(run(seeded)) == {"ns.a": "Paused"}
    assert shown(seeded)
    resume(seeded, "ns.a")
    run(seeded)
    assert shown(seeded) is None


def test_a_renamed_table_waits_with_its_old_name(seeded: World) -> None:
    pause(seeded, "ns.a")
    location = seeded.writer.load_table(("ns", "a")).metadata_location
    seeded.commit(a=None, c=location)
    assert held(run(seeded)) == {"ns.a": "Paused", "ns.c": "Waits"}
    assert (shown(seeded) is not None, shown(seeded, "ns.c")) == (True, None)


def test_what_was_committed_together_waits_together(seeded: World) -> None:
    pause(seeded, "ns.a")
    seeded.commit(a=seeded.write("a"), b=seeded.write("b"))
    assert held(run(seeded)) == {"ns.a": "Paused", "ns.b": "Waits"}
    resume(seeded, "ns.a")
    assert run(seeded).published == ("ns.a", "ns.b")


@pytest.mark.parametrize("options", [{"full": True}, {"tables": ("ns.a",)}, {"lane": "small"}, {"generation": 1}])
def test_no_option_of_a_sync_overrides_a_pause(seeded: World, options: dict[str, Any]) -> None:
    before = shown(seeded)
    pause(seeded, "ns.a")
    seeded.commit(a=seeded.write("a"))
    assert held(run(seeded, **options))["ns.a"] == "Paused"
    assert shown(seeded) == before


def test_a_table_is_paused_before_its_first_version_is_here(world: World) -> None:
    world.commit(a=world.write("a"))
    pause(world, "ns.a")
    assert held(run(world)) == {"ns.a": "Paused"}
    assert shown(world) is None
    resume(world, "ns.a")
    assert run(world).published == ("ns.a",)


def test_a_view_can_be_paused(world: World) -> None:
    head = world.commit(a=world.write("a"))
    made = Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(world, "v"), "versionId": 1, "schemaId": 0})
    world.catalog.commit("main", head, [Put(("ns", "v"), made)], "a view")
    pause(world, "ns.v")
    report = run(world)
    assert (report.published, held(report)["ns.v"]) == (("ns", "ns.a"), "Paused")


def test_another_metadata_version_is_not_written_for_a_paused_table(seeded: World) -> None:
    for name in "ab":
        seeded.commit(**{name: seeded.write(name)})
    run(seeded)
    before = shown(seeded)
    pause(seeded, "ns.a")
    report = run(ruled(seeded, policies=[{"tables": ["ns.*"], "history": {"latest": 1}}]))
    assert (report.published, held(report), shown(seeded)) == (("ns.b",), {"ns.a": "Paused"}, before)


def test_what_the_registry_keeps_off_the_region_leaves_it_though_it_is_paused(seeded: World) -> None:
    pause(seeded, "ns.a")
    run(ruled(seeded, residency=[{"tables": ["ns.a"], "only": ["us"]}]))
    assert shown(seeded) is None


@pytest.mark.parametrize("paused", [("ns.a",), ("ns.a", "ns.b")])
def test_what_the_registry_keeps_off_leaves_though_it_was_committed_together_with_a_paused_table(
    seeded: World, paused: tuple[str, ...]
) -> None:
    pause(seeded, *paused)
    seeded.commit(a=seeded.write("a"), b=seeded.write("b"))
    run(seeded)
    report = run(ruled(seeded, residency=[{"tables": ["ns.b"], "only": ["us"]}]))
    assert (shown(seeded, "ns.b"), held(report)) == (None, {"ns.a": "Paused"})


def test_a_marker_that_can_t_be_parsed_pauses_its_table(seeded: World) -> None:
    before = shown(seeded)
    pause(seeded, "ns.a")
    (marker,) = folder(seeded).iterdir()
    marker.write_bytes(b'{"key": "ns.b"')
    seeded.commit(a=seeded.write("a"), b=None)
    report = run(seeded)
    assert held(report)["ns.a"] == "Paused"
    assert shown(seeded) == before
    [paused] = pauses.read_pauses(seeded.context())
    assert (paused.key, paused.file.endswith(marker.name)) == ("", True)
    assert resume(seeded, "ns.a")
    assert not list(folder(seeded).iterdir())


def test_a_marker_of_a_newer_version_is_read(seeded: World) -> None:
    pause(seeded, "ns.a")
    (marker,) = folder(seeded).iterdir()
    marker.write_text('{"key": "ns.a", "since": "2027-01-01T00:00:00+00:00", "reason": "x", "until": "noon"}')
    assert [(paused.key, paused.reason) for paused in pauses.read_pauses(seeded.context())] == [("ns.a", "x")]


def test_there_is_no_plan_where_the_markers_can_t_be_listed(seeded: World) -> None:
    seeded.commit(a=seeded.write("a"))
    with refusing(f"file://{folder(seeded)}", StoreUnreachable) as asked, pytest.raises(StoreUnreachable):
        run(seeded)
    assert asked


def test_status_and_why_show_who_waits_for_whom_and_what_to_do(seeded: World) -> None:
    pause(seeded, "ns.a")
    seeded.commit(a=seeded.write("a"))
    run(seeded)
    [status] = read_status(seeded.context()).held
    assert "sterna resume" in status.do
    assert status.card.endswith("#paused")
    explained = explain_table(seeded.context(), "ns.a")
    assert (explained.state, explained.kind) == ("held", "Paused")


def test_a_clean_up_keeps_markers_and_what_a_paused_table_shows(seeded: World) -> None:
    pause(seeded, "ns.a")
    seeded.commit(a=None)
    run(seeded)
    (marker,) = folder(seeded).iterdir()
    os.utime(marker, (0, 0))
    options = GcOptions(keep=timedelta(0), grace=timedelta(hours=1), delete=True)
    report = run_gc(seeded.context(), options, lambda line: None)
    assert marker.exists()
    assert report.strange.files == 0
    location = shown(seeded)
    assert location and Path(location.removeprefix("file://")).exists()


@pytest.mark.parametrize(
    ("names", "words"),
    [((), "name a table"), (("ns.nowhere",), "no such table or view: ns.nowhere"), (("ns",), "neither a table")],
)
def test_what_can_t_be_paused_is_refused_and_nothing_is_written(
    seeded: World, names: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        pause(seeded, *names)
    assert not folder(seeded).exists()


def test_a_reason_is_made_printable_and_bounded(seeded: World) -> None:
    [paused] = pause(seeded, "ns.a", reason="see\x1b[31m me\n")
    assert paused.reason.isprintable()
    with pytest.raises(SternaError, match="501 characters"):
        pause(seeded, "ns.a", reason="x" * 501)


def test_a_dry_run_writes_and_deletes_nothing(seeded: World) -> None:
    assert [paused.key for paused in pauses.pause(seeded.context(), ["ns.a"], "", apply=False)] == ["ns.a"]
    assert not folder(seeded).exists()
    pause(seeded, "ns.a")
    assert [paused.key for paused in pauses.resume(seeded.context(), ["ns.a"], apply=False)] == ["ns.a"]
    assert len(list(folder(seeded).iterdir())) == 1


def test_pausing_twice_renews_the_reason_and_resuming_twice_is_no_error(seeded: World) -> None:
    pause(seeded, "ns.a", reason="one")
    pause(seeded, "ns.a", "ns.a", reason="two")
    assert [paused.reason for paused in pauses.read_pauses(seeded.context())] == ["two"]
    resume(seeded, "ns.a")
    assert resume(seeded, "ns.a") == ()


def test_a_pause_is_of_one_region(seeded: World) -> None:
    pause(seeded, "ns.a")
    assert pauses.read_pauses(seeded.context("us")) == ()
    seeded.commit(a=seeded.write("a"))
    assert not run(seeded, "us").held


def test_a_marker_is_named_by_the_key_alone(seeded: World) -> None:
    """Golden: markers of this version are read by the next."""
    [paused] = pause(seeded, "ns.a", reason="r")
    (marker,) = folder(seeded).iterdir()
    assert marker.name == f"{digest(['ns.a'])}.json" == "ec14b95d3d2b32fa.json"
    assert marker.read_text() == f'{{"key":"ns.a","since":"{paused.since}","reason":"r"}}'


def test_a_plan_lists_markers_only_where_something_would_change(seeded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objects, "list", lambda *arguments, **options: pytest.fail("listed"))
    assert planned(seeded).idle
