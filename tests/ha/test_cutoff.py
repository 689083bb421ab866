"""A region that is a moment behind the primary, or cut off from it.

Reads go on, nothing misbehaves, and it catches up by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from sterna.catalog.model import Unchanged
from sterna.cli.main import app
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogUnreachable, Remedy, StoreUnreachable
from sterna.notifications.change_log.fresh_tables import read_fresh_tables
from sterna.operations.status.model import RegionStatus
from sterna.operations.status.read import read_status
from sterna.replication.replica import catalog_copy as served
from sterna.replication.replica.lag import measure_lag
from sterna.replication.verify.run import verify_structure
from sterna.text.status import status_text
from tests.support.faults.proxy import Fault, half_open, reset
from tests.support.ha.two_sites import BRANCH, TwoSites, Watcher, rows, wait_until


@pytest.fixture
def table(two_sites: TwoSites) -> str:
    """A table of us that the replica has."""
    name = two_sites.create()
    assert two_sites.sync().held == ()
    two_sites.wait_until_served()
    return name


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't wait long for a copy that will not come."""
    monkeypatch.setattr(served, "MAX_SERVED_WAIT_SECONDS", 1.0)


@pytest.fixture
def short_looks(two_sites: TwoSites) -> Iterator[None]:
    """Eu looks at a silent Postgres for two seconds, where it takes ten by default, several times a command."""
    before = two_sites.registry.read_text()
    document = yaml.safe_load(before)
    for region in document["regions"]:
        region["catalog"]["database"]["look_timeout"] = 2.0
    two_sites.registry.write_text(yaml.safe_dump(document))
    yield
    two_sites.registry.write_text(before)


def status(two: TwoSites) -> RegionStatus:
    with two.context() as context:
        return read_status(context)


def sterna(two: TwoSites, *arguments: str) -> tuple[int, str]:
    """Run a command in eu; return its exit code and what it printed."""
    result = CliRunner().invoke(app, [*arguments, "--registry", str(two.registry)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def catches_up(two: TwoSites, table: str) -> None:
    """With the link back and nobody's help the copy gets everything; a sync brings the rest."""
    two.heal()
    two.wait_until_served()
    assert two.sync().held == ()
    two.wait_until_served()
    with two.context() as context:
        assert measure_lag(context) == 0
    assert rows(two.reader().load_table(table)) == rows(two.writers["us"].load_table(table))
    two.assert_equal()


def test_a_sync_ends_when_the_regions_own_copy_serves_it(two_sites: TwoSites, table: str) -> None:
    two_sites.append(table)
    report = two_sites.sync()
    assert (report.outcome, report.lag_seconds) == ("published", 0)
    assert two_sites.eu.reference(BRANCH).hash == report.replica_hash
    code, shown = sterna(two_sites, "status", "--region", "eu", "--json")
    document = json.loads(shown)
    assert (code, document["cut_off"], document["unserved"], document["lag_seconds"]) == (0, None, "", 0)


@pytest.mark.usefixtures("impatient")
def test_right_after_a_publication_that_the_copy_has_not_got_nothing_misbehaves(
    two_sites: TwoSites, table: str
) -> None:
    before = two_sites.eu.reference(BRANCH).hash
    two_sites.subscription("DISABLE")
    two_sites.append(table)
    report = two_sites.sync()
    assert report.outcome == "published"
    assert report.lag_seconds > 0
    assert two_sites.us.reference(BRANCH).hash == report.replica_hash
    region_status = status(two_sites)
    assert (region_status.problem, region_status.replica_hash, region_status.unserved) == (
        "",
        before,
        report.replica_hash,
    )
    assert region_status.lag_seconds and region_status.cut_off is None
    with two_sites.context() as context:
        assert verify_structure(context).findings == ()
        assert read_fresh_tables(context, before).tables == ()
    assert sterna(two_sites, "gc", "--region", "eu")[0] == 0
    assert two_sites.sync().outcome == "idle"
    assert two_sites.us.reference(BRANCH).hash == report.replica_hash
    two_sites.subscription("ENABLE")
    two_sites.wait_until_served()
    with two_sites.context() as context:
        assert [fresh.key for fresh in read_fresh_tables(context, before).tables] == [table]
    assert (status(two_sites).lag_seconds, status(two_sites).unserved) == (0, "")


@pytest.mark.usefixtures("impatient")
def test_a_branch_that_the_copy_has_never_seen_is_being_seeded(two_sites: TwoSites, table: str) -> None:
    primary = two_sites.sites.by_region["us"].uri
    assert httpx.delete(f"{primary}/trees/{BRANCH}@{two_sites.us.reference(BRANCH).hash}", timeout=60).is_success
    two_sites.wait_until_served()
    two_sites.subscription("DISABLE")
    report = two_sites.sync()
    assert report.watermark == two_sites.us.reference(SOURCE_BRANCH).hash
    region_status = status(two_sites)
    assert (region_status.problem, region_status.replica_hash, region_status.watermark, region_status.unserved) == (
        "",
        "",
        "",
        report.replica_hash,
    )
    assert region_status.lag_seconds
    two_sites.subscription("ENABLE")
    catches_up(two_sites, table)


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("fault", [pytest.param(reset, marks=pytest.mark.rare), half_open])
def test_while_the_primary_region_is_dark_reads_go_on_and_status_says_what_is_served(
    two_sites: TwoSites, table: str, fault: Fault
) -> None:
    expected, watermark = rows(two_sites.writers["us"].load_table(table)), status(two_sites).watermark
    two_sites.strike(fault=fault)
    two_sites.append(table)
    two_sites.sites.by_region["us"].endpoint.suspend()
    try:
        assert rows(two_sites.reader().load_table(table)) == expected
        first = status(two_sites)
        assert first.cut_off is not None
        assert (first.problem, first.cut_off.primary, first.cut_off.serving) == ("", "us", watermark)
        assert first.cut_off.as_of <= first.cut_off.heard
        assert f"cut off: primary us does not answer; serving main@{watermark[:12]} as of" in status_text(first)
        code, shown = sterna(two_sites, "status", "--region", "eu", "--json")
        document = json.loads(shown)
        assert (code, document["cut_off"]["serving"]) == (4, watermark)
        assert document["lag_seconds"] > (first.lag_seconds or 0) > 0
        with two_sites.context() as context:
            assert verify_structure(context).findings == ()
    finally:
        two_sites.sites.by_region["us"].endpoint.start()
    catches_up(two_sites, table)


def test_a_sync_without_the_primary_says_which_one_does_not_answer_and_may_be_repeated(
    two_sites: TwoSites, table: str
) -> None:
    two_sites.append(table)
    two_sites.strike()
    with pytest.raises(CatalogUnreachable, match="primary's Nessie, region us,") as caught:
        two_sites.sync()
    assert caught.value.remedy is Remedy.RETRY
    assert two_sites.eu.reference(BRANCH) == two_sites.us.reference(BRANCH)
    catches_up(two_sites, table)


def test_a_primary_that_answers_without_its_store_is_not_cut_off(two_sites: TwoSites, table: str) -> None:
    two_sites.append(table)
    two_sites.strike("store")
    with pytest.raises(StoreUnreachable):
        two_sites.sync()
    assert status(two_sites).cut_off is None
    catches_up(two_sites, table)


@pytest.mark.usefixtures("impatient")
def test_when_only_the_copy_hears_nothing_syncs_publish_and_lag_goes_on(two_sites: TwoSites, table: str) -> None:
    two_sites.strike("replication")
    two_sites.append(table)
    report = two_sites.sync()
    assert report.outcome == "published"
    assert 0 < report.lag_seconds < (status(two_sites).lag_seconds or 0)
    wait_until(lambda: "NOT CONNECTED" in sterna(two_sites, "catalog", "status")[1], "catalog status does not tell")
    assert "published at the primary and not served here yet" in sterna(two_sites, "status", "--region", "eu")[1]
    catches_up(two_sites, table)


@pytest.mark.rare
def test_under_a_flapping_link_reads_never_go_backwards_and_everything_arrives(two_sites: TwoSites, table: str) -> None:
    with Watcher(two_sites) as watcher:
        for number in range(6):
            if number % 2:
                two_sites.heal()
            else:
                two_sites.strike()
            end = time.monotonic() + 3
            while time.monotonic() < end:
                two_sites.append(table)
                head = two_sites.us.reference(SOURCE_BRANCH).hash
                two_sites.us.commit(SOURCE_BRANCH, head, [Unchanged(("nothing",))], "nothing", {})
                if number % 2:
                    two_sites.sync()
        catches_up(two_sites, table)
    watcher.assert_forwards()
    assert len(watcher.seen[SOURCE_BRANCH]) > 2


def lose_slot(two: TwoSites) -> None:
    """Let the primary write more than it keeps for a region that does not come for it."""
    two.subscription("DISABLE")
    for _ in range(5):
        two.commit()
        two.execute(
            "us", "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1048576)) FROM generate_series(1, 12)"
        )
        two.execute("us", "SELECT pg_switch_wal()")
    two.execute("us", "CHECKPOINT")
    two.subscription("ENABLE")


def test_a_lost_slot_is_told_and_one_command_heals_it_while_reads_go_on(two_sites: TwoSites, table: str) -> None:
    with Watcher(two_sites) as watcher:
        lose_slot(two_sites)
        code, shown = sterna(two_sites, "catalog", "status")
        assert code == 0
        assert "lost: sterna catalog resync" in shown
        assert not two_sites.serves()
        code, _ = sterna(two_sites, "catalog", "resync", "--region", "eu", "--yes")
        assert code == 0
        # Readiness means consistent: what the primary had is there when the command ends.
        assert two_sites.serves()
        assert "lost" not in sterna(two_sites, "catalog", "status")[1]
        two_sites.append(table)
        catches_up(two_sites, table)
    watcher.assert_forwards()
