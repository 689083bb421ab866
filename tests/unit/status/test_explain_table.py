"""Why a table is in a region as it is: each state, with its reason, its blocker, its remedy and its next try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.operations.status import explain_table as explaining
from sterna.operations.status.explain_table import explain_table, leading_key
from sterna.operations.status.read import read_status
from sterna.operations.status.table_model import TableState, TableStatus
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.held import Held
from sterna.replication.sync.run import sync
from sterna.text.table_status import table_status_text
from tests.support.regions import injected
from tests.support.small_world import World, gone, here, no_secrets, quiet, ruled, run, with_registry


def why(world: World, name: str) -> TableStatus:
    return explain_table(world.context(), f"ns.{name}")


def test_a_table_of_the_watermark_is_fresh(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    assert (why(world, "a").state, why(world, "a").lag_seconds) == (TableState.FRESH, 0.0)
    assert why(world, "a").remedy == "nothing has to be done"


def test_a_table_that_changed_since_is_behind_and_others_stay_fresh(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    never = why(world, "a")
    assert (never.state, "never synced" in never.reason) == (TableState.BEHIND, True)
    run(world)
    first = world.commit(a=world.write("a"))
    world.commit(a=world.write("a"))
    table = why(world, "a")
    (commit,) = [commit for commit in world.catalog.history("main", operations=False) if commit.hash == first]
    assert (table.state, table.since) == (TableState.BEHIND, commit.commit_time.isoformat())
    assert table.lag_seconds is not None and table.next_try == "the next sync"
    assert why(world, "b").state is TableState.FRESH


def test_a_held_table_and_one_that_waits_for_it(world: World) -> None:
    world.commit(good=world.write("good"))
    run(world)
    world.commit(good=world.write("good"), bad=gone(world, "bad"))
    run(world)
    bad, good = why(world, "bad"), why(world, "good")
    assert (bad.state, bad.kind, bad.blocker, bad.tries) == (TableState.HELD, "SourceGone", None, 1)
    assert bad.remedy.startswith("restore the file") and bad.card == "docs/operations.md#sourcegone"
    assert bad.next_try.startswith("each sync: ")
    assert (good.state, good.kind, good.group) == (TableState.HELD, "Waits", ("ns.bad", "ns.good"))
    assert good.blocker is not None and good.blocker.held.key == "ns.bad"
    assert good.card == bad.card
    text = table_status_text(good)
    assert text.startswith("ns.good in eu: held\n  since: ")
    assert "\n  blocker: ns.bad: SourceGone: " in text
    assert "restore the file" in text and "tried: 1 times" in text


def test_a_table_in_transit(world: World) -> None:
    run(world)
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    world.commit(big=world.write("big"))
    sync(world.context(), SyncOptions(lane="small"), quiet, engine=here)
    table = why(world, "big")
    assert table.state is TableState.IN_TRANSIT and "bytes are left" in table.reason
    assert "sterna sync --lane large --region eu" in table.remedy
    assert "bulk run" in table.next_try


def test_an_excluded_table_names_its_rule(world: World) -> None:
    world.commit(secret=world.write("secret"), quiet=world.write("quiet"))
    excluding = ruled(
        world,
        residency=[{"tables": ["ns.secret"], "only": ["us"]}],
        policies=[{"tables": ["*.quiet"], "replicate": False}],
    )
    assert why(excluding, "secret").state is why(excluding, "quiet").state is TableState.EXCLUDED
    assert why(excluding, "secret").reason == "residency 'ns.secret': only in us"
    assert why(excluding, "quiet").reason == "policy '*.quiet': replicate is false"


def test_an_excluded_table_that_the_region_still_shows_says_so_until_the_next_sync(world: World) -> None:
    world.commit(secret=world.write("secret"))
    run(world)
    excluding = ruled(world, residency=[{"tables": ["ns.secret"], "only": ["us"]}])
    table = why(excluding, "secret")
    assert (table.state, table.next_try) == (TableState.EXCLUDED, "the next sync removes it here")
    assert table.reason == "residency 'ns.secret': only in us; the region still shows it"
    run(excluding)
    assert (why(excluding, "secret").next_try, "shows" in why(excluding, "secret").reason) == ("", False)


def test_a_table_that_a_sync_of_chosen_tables_published_is_fresh_until_main_changes_it(world: World) -> None:
    """The watermark stays where it was: `main` may even be back at its version."""
    first = world.write("a")
    world.commit(a=first)
    run(world)
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    run(world, tables=("ns.a",))
    assert (why(world, "a").state, why(world, "b").state) == (TableState.FRESH, TableState.BEHIND)
    world.commit(a=first)
    assert why(world, "a").state is TableState.BEHIND
    run(world)
    assert why(world, "a").state is TableState.FRESH


def test_a_version_that_the_regions_own_catalog_does_not_serve_yet_is_looked_for_at_the_primary(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=world.write("a"))
    stuck = world.catalog.copied()
    run(world)
    context = injected(world.registry, "eu", no_secrets, catalog=stuck, primary=world.catalog)
    table, other = explain_table(context, "ns.a"), explain_table(context, "ns.b")
    assert (table.state, table.next_try) == (TableState.BEHIND, "")
    assert "published at the primary" in table.reason and "sterna catalog status" in table.remedy
    assert "not served here yet" in table.note and other.note == table.note
    assert other.state is TableState.FRESH


def test_a_table_that_an_earlier_registry_kept_off_is_not_fresh_before_the_next_sync(world: World) -> None:
    world.commit(a=world.write("a"), late=world.write("late"))
    run(ruled(world, policies=[{"tables": ["*.late"], "replicate": False}]))
    table = why(world, "late")
    assert (table.state, table.next_try) == (TableState.BEHIND, "the next sync")
    assert "by what the registry said then" in table.reason
    assert why(world, "a").state is TableState.FRESH
    run(world)
    assert why(world, "late").state is TableState.FRESH


def test_while_a_region_is_cut_off_nothing_is_fresh_or_gone_for_certain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own copy of the catalog doesn't show what was committed since."""
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(b=world.write("b"))
    outage = PrimaryOutage("us", "does not answer", "ab" * 32, "2026-07-01T00:00:00+00:00", "")
    monkeypatch.setattr(explaining, "read_status", lambda context: replace(read_status(context), cut_off=outage))
    fresh, absent, behind = why(world, "a"), why(world, "c"), why(world, "b")
    assert (fresh.state, fresh.lag_seconds) == (TableState.UNKNOWN, None)
    assert "own copy of the catalog it is fresh; main may have changed it since" in fresh.reason
    assert absent.state is TableState.UNKNOWN and "never on main" in absent.reason
    assert behind.state is TableState.BEHIND, "that it is behind is certain"
    assert fresh.note.startswith("cut off: primary us does not answer")


def test_a_dropped_table_and_one_that_never_was(world: World) -> None:
    kept = world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=None)
    dropped = why(world, "a")
    assert (dropped.state, dropped.next_try) == (TableState.DROPPED, "the next sync removes it here")
    assert dropped.remedy.endswith(f"sterna restore ns.a --region eu --as-of {kept}") and dropped.since
    run(world)
    assert why(world, "a").next_try == ""
    assert why(world, "c").state is TableState.NEVER_ON_MAIN


def test_a_branch_that_another_writer_changed_stops_all(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    world.catalog.assign("main_replica_eu", world.catalog.reference("main").hash)
    table = why(world, "a")
    assert (table.state, table.kind) == (TableState.STOPPED, "BranchChanged")
    assert table.card == "docs/operations.md#branchchanged"
    assert why(ruled(world, policies=[{"tables": ["ns.a"], "replicate": False}]), "a").state is TableState.STOPPED


def test_keys_that_wait_in_a_circle_have_an_end() -> None:
    one, other = Held("a", "Waits", "", waits_for="b"), Held("b", "Waits", "", waits_for="a")
    assert leading_key(one, {"a": one, "b": other}) is other
