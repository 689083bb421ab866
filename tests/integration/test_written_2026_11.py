"""Replica branches, outlets and records that commit b5071db wrote (`tests/data/written-2026-11`): this version changes
nothing of what is settled, and goes on with what isn't.

One kind of fault: something that is stored gets another meaning, or none. Tried for everything that a region without
services has: held keys in a commit and in an object, news, a round of the large lane that died, evidence of runs,
records of clean-ups and sweeps, tags of outlets and holds, dead letters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Delete, parse_key
from sterna.errors import UpkeepBlocked
from sterna.maintenance.deletion.passes import read_newest_report, read_passes
from sterna.maintenance.gc.evidence import gc_folder
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.pin import pin
from sterna.maintenance.gc.run import run_gc
from sterna.maintenance.tables.orphan_files import sweep
from sterna.maintenance.tables.records import SWEEP_REPORT, sweep_folder
from sterna.notifications.sinks.dead_letters import read_dead_letters
from sterna.notifications.sinks.replay import replay_dead_letters
from sterna.notifications.sinks.service import SinkService
from sterna.notifications.sinks.status import read_sinks
from sterna.operations.status.gather import gather_status
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.held import Held
from sterna.replication.replica.run_folder import is_intermediate, runs_folder
from sterna.replication.verify.run import verify_structure
from sterna.text.plain import to_plain
from tests.support.sinks import FAST_DELIVERY, Receiver, wait_until
from tests.support.written import ANSWERS, Written, written

EU = ANSWERS["eu"]
# `tests.backward` runs this with the state of a later version, whose answers may have names that this one hasn't.
_NAMES = {field.name for field in fields(Held)}
EU["held"] = [{name: value for name, value in item.items() if name in _NAMES} for item in EU["held"]]
HELD = [item for item in EU["held"] if item["kind"] != "InTransit"]
AGES = timedelta(days=36_500)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Written]:
    with written(tmp_path) as deployment:
        yield deployment


@contextmanager
def delivering(restored: Written) -> Iterator[dict[str, Receiver]]:
    """All outlets at work, each with a receiver that takes everything."""
    got = {name: Receiver() for name in restored.services.sinks}
    with restored.context() as context:
        room = SinkService(
            context,
            restored.services,
            AGES,
            FAST_DELIVERY,
            lambda outlet, _: got[str(outlet.target.webhook.url).rpartition("/")[2]],
        )
        room.start()
        try:
            yield got
        finally:
            room.stop()


def as_written(value: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """What a record says, of what it said then: a newer version may have more to say."""
    fields_of = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    record = json.loads(json.dumps(fields_of, default=str))
    return {name: record[name] for name in answer if name in record}


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


def test_the_first_sync_of_another_version_changes_nothing(restored: Written) -> None:
    before, files = restored.references(), restored.files()
    assert before == ANSWERS["references"]
    with restored.context() as context:
        assert context.registry.digest() == ANSWERS["digest"]
    # What is in transit is left to the large lane: the small one, which runs all the time, has nothing to do.
    for region, lane in (("eu", "small"), ("us", "all")):
        report = restored.sync(region, lane=lane)
        assert (report.outcome, report.published, report.watermark) == ("idle", (), ANSWERS["main"])
        assert (report.copied.sent, report.localized.sent) == (0, 0)
        assert restored.compared <= len(EU["held"])
    assert (restored.references(), restored.files()) == (before, files)
    for table in ("shop.orders", "shop.docs", "shop.pages", "shop.pair_a", "shop.pair_b"):
        assert restored.rows(table) == ANSWERS["rows"][table]


def test_what_is_recorded_is_understood(restored: Written) -> None:
    with restored.context() as context:
        status = gather_status(context, maintenance=restored.services.maintenance)
        assert (status.problem, status.replica_hash, status.watermark) == ("", EU["hash"], EU["watermark"])
        assert [as_written(item.held, HELD[0]) for item in status.held] == HELD
        assert {item.tries for item in status.held} == {1}
        (moving,) = status.transit
        assert as_written(moving.held, EU["held"][0]) == EU["held"][0]
        left = sum(batch["bytes"] for batch in EU["batches"]) - EU["brought"]["bytes"]
        assert (moving.bytes_left, moving.under_way) == (left, False)
        assert status.stored is not None
        for name in ("at", "objects", "evidence", "superseded", "unreachable"):
            assert as_written(status.stored, {name: 0})[name] == ANSWERS["collect"][name]
        for folder, answer in ((gc_folder(context), "collect"), (sweep_folder(context), "sweep")):
            (recorded_pass,) = read_passes(context, folder, datetime.now(UTC))
            assert sum(part.num_rows for part in recorded_pass.uris()) == ANSWERS[answer]["unreachable"]["files"]
        swept = read_newest_report(context.objects, sweep_folder(context), SWEEP_REPORT)
        assert as_written(to_plain(swept), ANSWERS["sweep"]) == without(ANSWERS["sweep"], "orphan")
        letters = list(read_dead_letters(context, "picky"))
        assert [as_written(to_plain(letter), ANSWERS["letters"][0]) for letter in letters] == ANSWERS["letters"]
        outlets = read_sinks(context, restored.services, AGES).sinks
        statuses = {
            outlet.name: {"position": outlet.position or None, **without(dict(outlet.details), "target")}
            for outlet in outlets
        }
        assert statuses == {
            outlet["name"]: {name: outlet[name] for name in ("position", "kept", "commits", "events", "dead")}
            for outlet in ANSWERS["outlets"]["outlets"]
        }
        assert (verify_structure(context).findings, [outlet.blocked for outlet in outlets if outlet.blocked]) == (
            (),
            [],
        )


def test_outlets_go_on_after_what_was_acknowledged(restored: Written) -> None:
    with delivering(restored) as got:
        for name in ("behind", "picky"):
            wait_until(lambda name=name: len(got[name].got) >= len(ANSWERS["waiting"][name]), f"come to {name}", 60)
        restored.sync(lane="small")
        head = EU["hash"]
        wait_until(lambda: set(positions(restored).values()) == {head}, "come up", 60)
    for name, wanted in {"hook": [], **ANSWERS["waiting"]}.items():
        assert [received.id for received in got[name].got if received.table.startswith("shop.")] == wanted, name
    assert got["hook"].got == []
    # What a version before gave up is sent as it stood.
    with restored.context() as context:
        receiver = Receiver()
        assert replay_dead_letters(context, "picky", receiver).sent == 1
        (letter,) = ANSWERS["letters"]
        assert [(received.id, json.loads(received.payload)) for received in receiver.got] == [
            (letter["id"], letter["event"])
        ]
        assert list(read_dead_letters(context, "picky")) == []


def positions(restored: Written) -> dict[str, str]:
    return {name: hash for name, hash in restored.references().items() if name.startswith("sterna-outlet-eu-")}


def test_what_is_in_transit_arrives_and_nothing_else_moves(restored: Written) -> None:
    missing = sum(batch["bytes"] for batch in EU["batches"]) - EU["brought"]["bytes"]
    report = restored.sync()
    assert (report.outcome, report.published, report.transit) == ("published", ("shop.big",), ())
    assert (report.copied.sent, report.copied.failed) == (missing, ())
    rows = restored.rows("shop.big")
    text = json.dumps(rows).encode()
    assert {"rows": len(rows), "sha256": hashlib.sha256(text).hexdigest()} == ANSWERS["big"]
    assert [as_written(item, HELD[0]) for item in report.held] == HELD
    with delivering(restored) as got:
        wait_until(lambda: bool(got["hook"].got), "send", 60)
    assert {received.table for received in got["hook"].got} == {"shop.big"}
    before = restored.references()["main_replica_eu"]
    assert restored.sync().outcome == "idle"
    assert restored.references()["main_replica_eu"] == before
    with restored.context() as context:
        assert verify_structure(context).findings == ()


def test_clean_ups_go_on_from_the_passes_before_and_heed_holds(restored: Written) -> None:
    later, recorded = datetime.now(UTC) + timedelta(days=2), ANSWERS["holds"]
    restored.sync()
    with restored.context() as context:
        (record,) = read_passes(context, gc_folder(context), datetime.now(UTC))
        named = {uri for part in record.uris() for uri in part.column("uri").to_pylist()}
        assert ANSWERS["collect"]["ghost"] in named
        # What runs only worked with waits for no second pass.
        runs = runs_folder(context)
        working = {
            uri for uri, _, _ in context.objects.list(runs) if is_intermediate(uri[len(runs) + 1 :].partition("/")[2])
        }
        options = GcOptions(keep=timedelta(0), delete=True, max_wait_seconds=0.0)
        done = run_gc(context, options, restored.lines.append, now=later)
        assert done.deleted.files == len(named | working)
        assert (done.failed, done.strange.files) == (0, 0)
        assert set(context.objects.sizes(named | working).values()) == {None}
        names = {name for name in restored.references() if name.startswith("sterna-hold-")}
        assert names == {recorded["long"]}
        # Who holds a commit proves that each of its files is there.
        assert pin(context, recorded["cursor"], timedelta(hours=1), now=later).tables > 0
        assert verify_structure(context).findings == ()
        upkeep = restored.services.maintenance
        assert upkeep is not None
        spared = ("s3://eu-lake/inbox",)
        with pytest.raises(UpkeepBlocked):  # main names metadata that is gone
            sweep(context, upkeep, delete=True, excluded_prefixes=spared, now=later)
        keys = [parse_key(name) for name in (*ANSWERS["lost"], "shop.pair_a")]
        main = context.primary.reference("main").hash
        writer(context).commit("main", main, [Delete(key) for key in keys], "let go of what is lost")
        for region in ("eu", "us"):
            assert restored.sync(region).held == ()
        swept = sweep(context, upkeep, delete=True, excluded_prefixes=spared, now=later)
        assert (swept.deleted.files, swept.failed) == (1, 0)
        assert context.objects.sizes([ANSWERS["sweep"]["orphan"]]) == {ANSWERS["sweep"]["orphan"]: None}
