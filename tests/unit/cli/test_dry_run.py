"""What changes or deletes more than a sync does is a dry run until `--yes`; the flags of before keep their meaning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sterna.cli.main import app
from sterna.replication.replica.head import WATERMARK_RESET_FROM, read_head
from sterna.text.lines import NOTHING_CHANGED
from tests.support.replica_paths import version_of
from tests.support.small_world import World, run
from tests.unit.cli.conftest import Sterna

BRANCH = "main_replica_eu"


def commands(group: Any, name: str = "") -> dict[str, Any]:
    """All commands by their whole names, those of groups included."""
    by_name: dict[str, Any] = {}
    for word, command in group.commands.items():
        by_name |= commands(command, f"{word} ") if hasattr(command, "commands") else {name + word: command}
    return by_name


ALL = commands(typer.main.get_command(app))


def flags(command: Any) -> set[str]:
    return {flag for option in command.params for flag in option.opts}


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_an_example_and_says_what_it_does(name: str) -> None:
    assert ALL[name].help
    assert (ALL[name].epilog or "").startswith("Example")


def test_whatever_takes_yes_takes_dry_run() -> None:
    takes_yes = {name for name, command in ALL.items() if "--yes" in flags(command)}
    assert takes_yes == {
        "reset-watermark",
        "repair",
        "gc",
        "cdc resync",
        "transforms rebuild",
        "maintenance run",
        "ingest add",
        "features rebuild",
        *(f"events {it}" for it in ("replay", "forget")),
        "ingest replay",
        "restore",
        "pause",
        "resume",
        *(f"catalog {it}" for it in ("promote", "rejoin", "resync")),
        *(f"maintenance {it}" for it in ("expire", "sweep")),
    }
    assert {name for name, command in ALL.items() if "--dry-run" in flags(command)} == {*takes_yes, "sync"}
    acts_or_asks = {name for name in takes_yes if name.startswith("catalog ")} | {"reset-watermark"}
    run_book = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    listed = run_book.partition("* A dry run until `--yes`:")[2].partition("\n* ")[0]
    assert set(re.findall("`([^`]+)`", listed)) == takes_yes - acts_or_asks


def test_rewriting_metadata_is_shown_until_yes(world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    before = world.replica()
    answer = sterna("repair", "--rewrite-metadata", "ns.a")
    assert (answer.code, answer.last_line, world.replica()) == (0, NOTHING_CHANGED, before)
    assert "ns.a" in answer.out and "ns.b" not in answer.out
    assert sterna("repair", "--rewrite-metadata", "ns.a", "--yes").code == 0
    after = world.replica()
    assert after["ns.b"] == before["ns.b"]
    rewritten = version_of(after["ns.a"].metadata_location or "")
    assert rewritten is not None and rewritten.rewrite_count == 1
    assert sterna("repair", "--rewrite-metadata", "--table", "ns.a", "--generation", "1", "--yes").code == 0
    assert world.replica() == after, "it has that generation already"


@pytest.mark.parametrize("words", [("--rewrite-metadata", "--deep"), ("--generation", "3")])
def test_words_that_do_not_go_together_with_rewrite_metadata(
    words: tuple[str, ...], world: World, sterna: Sterna
) -> None:
    answer = sterna("repair", *words)
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize("command", [("gc",), ("repair",), ("reset-watermark", "--to", "ab" * 32)])
def test_both_words_at_once_are_refused(command: tuple[str, ...], world: World, sterna: Sterna) -> None:
    answer = sterna(*command, "--yes", "--dry-run")
    assert (answer.code, answer.out) == (2, "")
    assert "--yes and --dry-run don't go together" in answer.err


def facts(text: str) -> dict[str, Any]:
    """A clean-up's result, but for name and time of its pass, and its counts of the records that earlier ones left."""
    others = ("pass_id", "at", "objects", "evidence")
    return {name: value for name, value in json.loads(text).items() if name not in others}


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_gc_only_counts_until_yes(more: tuple[str, ...], world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.reference(BRANCH).hash
    shown = sterna("gc", *more)
    assert shown.code == 0
    assert "0 files, 0 bytes would be deleted now" in shown.out
    assert shown.last_line == NOTHING_CHANGED
    report = facts(sterna("gc", *more, "--json").out)
    assert report["dry_run"] and report["deleted"] == {"files": 0, "bytes": 0}
    assert report == facts(sterna("gc", "--json").out)
    assert world.catalog.reference(BRANCH).hash == head
    done = sterna("gc", "--yes")
    assert (done.code, "0 files, 0 bytes deleted, 0 failed" in done.out) == (0, True)
    assert NOTHING_CHANGED not in done.out


def test_a_sync_in_a_dry_run_shows_the_plan(world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"))
    planned = sterna("plan")
    assert "put iceberg_table ns.a: copy 1 files" in planned.out
    assert sterna("sync", "--dry-run").out == planned.out
    assert sterna("sync", "--dry-run", "--restore-branch", "--json").out == sterna("plan", "--full", "--json").out
    assert not read_head(world.catalog, BRANCH).exists
    assert sterna("sync").code == 0
    assert set(world.replica()) == {"ns", "ns.a"}


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_a_watermark_is_reset_to_the_hash_at_once(more: tuple[str, ...], world: World, sterna: Sterna) -> None:
    first = world.commit(a=world.write("a"))
    run(world)
    lost = world.commit(b=world.write("b"))
    run(world)
    world.catalog.assign("main", first)
    assert sterna("sync").code == 6
    shown = sterna("reset-watermark", "--to", first, "--dry-run")
    assert (shown.code, "drop iceberg_table ns.b" in shown.out) == (0, True)
    assert read_head(world.catalog, BRANCH).watermark == lost
    assert sterna("reset-watermark", "--to", first, *more).code == 0
    assert read_head(world.catalog, BRANCH).watermark == first
    assert next(iter(world.catalog.history(BRANCH, operations=False))).properties[WATERMARK_RESET_FROM] == lost


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_repair_only_shows_until_yes(more: tuple[str, ...], world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"))
    run(world)
    assert NOTHING_CHANGED not in sterna("repair", *more).out, "there is nothing that --yes would do"
    (data,) = (world.folder / "eu/replica/us-lake").rglob("*.parquet")
    before = data.read_bytes()
    data.unlink()
    shown = sterna("repair", *more)
    assert (shown.code, shown.last_line) == (7, NOTHING_CHANGED)
    assert not data.exists()
    done = sterna("repair", "--yes")
    assert (done.code, data.read_bytes()) == (0, before)
    assert "1 files copied again; 0 faults left" in done.out


def test_a_command_without_a_region_is_told_so(sterna: Sterna, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STERNA_REGION", raising=False)
    assert sterna("gc", "--registry", str(tmp_path / "none.yaml")).code == 2
