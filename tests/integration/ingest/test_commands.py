"""The commands `sterna ingest …` over a real tracker."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.cli.main import main
from sterna.config.secrets import environment_secrets
from sterna.pipelines.ingest import worker as working
from sterna.pipelines.ingest.counts import Counts
from sterna.pipelines.ingest.heartbeat import Heartbeat
from sterna.pipelines.ingest.worker import WorkerSummary
from sterna.servers.postgres import Database, Postgres
from tests.support.ingest import TrackedInbox, destination
from tests.support.ingest_http import services_of, variables_of, write_settings
from tests.support.stores import Stores

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(postgres: Postgres) -> Database:
    return postgres.create_database(f"commands_{secrets.token_hex(4)}")


@pytest.fixture
def command(local: Stores, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `sterna ingest …`; says its exit code, and what it prints."""

    def run(*arguments: str, **regions: Any) -> tuple[int, str, str]:
        services = services_of(local, database, age="10m")
        services["ingest"]["regions"]["eu"].update(regions)
        registry, path = write_settings(tmp_path, local, services)
        try:
            options = ["--region", "eu", "--registry", str(registry), "--services", str(path)]
            main(["ingest", *arguments, *options], environment_secrets(variables_of(database)))
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_what_waits_is_told_closed_and_listed(
    command: Command, local: Stores, database: Database, tmp_path: Path
) -> None:
    assert command("status")[:2] == (0, f"eu: no upload was accepted yet; the inbox is {local.eu}/inbox\n")
    assert json.loads(command("close", "--json")[1]) == {"region": "eu", "closed": []}
    eu = TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path)
    eu.prepare()
    for partition in ("day=1", "day=2"):
        eu.drop(b"{}\n{}\n", to=destination(partition=partition))
    code, text, _ = command("status")
    assert code == 0 and "ALARM" not in text
    assert "\n  acme.events: acme → main: " in text and "2 uploads without a batch, 0 batches, 12 bytes" in text
    closed = json.loads(command("close", "--now", "--table", "acme.events", "--json")[1])["closed"]
    assert [batch["number"] for batch in closed] == [1, 2] and {batch["closed_by"] for batch in closed} <= {
        "asked",
        "age",
    }
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_batch SET oldest = oldest - interval '1 hour' WHERE number = 1")
    first = eu.queue.claim("w", 60.0)
    assert first is not None
    eu.queue.requeue(first.id, "w", "the home of acme.events is dark")
    code, text, _ = command("status")
    assert code == 5 and "the home of acme.events is dark, ALARM: more than 601 s" in text
    status = json.loads(command("status", "--json")[1])
    assert status["oldest_seconds"] > 3600 and status["tables"][0]["exit_code"] == 5
    reasons = [condition["reason"] for condition in status["tables"][0]["conditions"]]
    assert reasons == ["Waiting", "GivenBack", "Overdue"]
    eu.queue.mark_published(first.id, 7, "c0ffee" * 8)
    eu.queue.mark_rejected(closed[1]["id"], "min(amount) >= 0 does not hold")
    code, text, _ = command("status")
    assert code == 5 and "nothing waits" in text and "rejected, 1 uploads, 2 rows, 6 bytes: min(amount)" in text
    assert "ALARM: 1 batches rejected: sterna ingest replay --batch" in text
    listed = json.loads(command("batches", "--json", "--tenant", "acme", "--state", "published", "--since", "1h")[1])
    assert [(batch["number"], batch["commit"]) for batch in listed["batches"]] == [(1, "c0ffee" * 8)]
    assert "2 batches" in command("batches")[1] and "0 batches" in command("batches", "--table", "acme.x")[1]
    eu.pool.close()


def test_what_is_bad_is_an_alarm_until_somebody_answers(
    command: Command, local: Stores, database: Database, tmp_path: Path
) -> None:
    eu = TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path)
    eu.prepare()
    for _ in range(4):
        eu.drop(b"{}\n{}\n")
        eu.close(asked=True)
    good, dead, rejected, again = (batch.id for batch in reversed(eu.tracker.list_batches()))
    eu.queue.mark_published(good, 7, "c0ffee")
    assert command("status")[0] == 0
    eu.queue.mark_published(dead, 8, "c0ffee", 1)
    code, text, _ = command("status")
    assert code == 5 and f"1 rows in the dead letters of batch {dead}: " in text
    assert "ALARM: 1 rows of 1 batches in the dead letters: sterna ingest replay --batch" in text
    for id in (rejected, again):
        eu.queue.mark_rejected(id, "no")
    status = json.loads(command("status", "--json")[1])
    assert (status["counts"]["rejected"], status["counts"]["dead"], status["counts"]["dead_rows"]) == (2, 1, 1)
    assert [(batch["id"], batch["bad"]) for batch in status["dead"]] == [(dead, 1)]
    # What comes again is answered, and so is what an operator lets be.
    assert command("replay", "--batch", again, "--yes")[0] == 0
    assert "1 rows are not replayed" in command("replay", "--batch", dead, "--accept")[1]
    assert json.loads(command("status", "--json")[1])["counts"]["dead"] == 1  # a dry run
    for id in (dead, rejected):
        assert command("replay", "--batch", id, "--accept", "--yes")[0] == 0
    code, text, _ = command("status")
    assert code == 0 and "ALARM" not in text and "dead letters" not in text and "rejected" not in text
    for wrong in (good, "0" * 32):
        assert command("replay", "--batch", wrong, "--accept", "--yes")[0] == 2
    # Whoever was told of it once isn't told anew by the same fact. No time answers: also years later it is an alarm.
    eu.queue.mark_published(dead, 8, "c0ffee", 1)
    assert command("status")[0] == 0
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_bad SET accepted = NULL")
        assert command("status")[0] == 5
        connection.execute("UPDATE sterna_ingest_batch SET settled = settled - interval '8 years'")
    status = json.loads(command("status", "--json")[1])
    assert (status["counts"]["rejected"], status["counts"]["dead"], len(status["rejected"])) == (1, 1, 1)
    for id in (dead, rejected):
        assert command("replay", "--batch", id, "--accept", "--yes")[0] == 0
    assert command("status")[0] == 0
    eu.pool.close()


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        (Counts(), 0), (Counts(buffered=2, claimed=1, rejected=1, dead=1, dead_rows=3), 0), (Counts(ready=1), 4),
        (Counts(delayed=1), 4), (Counts(abandoned=1), 4),
    ],
)  # fmt: skip
def test_a_run_that_leaves_batches_which_anybody_may_take_says_so(
    command: Command, monkeypatch: pytest.MonkeyPatch, counts: Counts, code: int
) -> None:
    """Those that another worker has are his; the rest of the alarms is what `status` is for."""
    monkeypatch.setattr(working, "run_worker", lambda *_, **more: WorkerSummary((), {}, {}, waiting=counts))
    assert command("run", "--once")[0] == code
    assert command("run", "--for", "1s")[0] == 0


def test_a_run_that_can_not_tell_what_waits_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "run_worker", lambda *_, **more: WorkerSummary((), {}, {}))
    code, text, _ = command("run", "--for", "1s")
    assert (code, "what waits is unknown" in text) == (4, True)


def test_every_state_is_told_and_who_has_what(
    command: Command, local: Stores, database: Database, tmp_path: Path
) -> None:
    eu = TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path)
    eu.prepare()
    for _ in range(5):
        eu.drop(b"{}\n")
        eu.close(asked=True)
    eu.drop(b"{}\n")
    assert "no worker runs" in command("status")[1]
    claimed, left, delayed = (eu.queue.claim(name, 60.0) for name in ("living", "dead", "w"))
    assert claimed is not None and left is not None and delayed is not None
    eu.queue.send_heartbeat(Heartbeat("living", "host-a", 11, 60.0, (claimed.id,)))
    eu.queue.send_heartbeat(Heartbeat("dead", "host-b", 12, 60.0, (left.id,)))
    eu.queue.requeue(delayed.id, "w", "TableGone: no such table", delay=300.0)
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_worker SET seen = seen - interval '1 h' WHERE name = 'dead'")
        connection.execute("UPDATE sterna_ingest_batch SET leased_until = now() - interval '1 h' WHERE worker = 'dead'")
    text = command("status")[1]
    states = "5 batches (2 ready, 1 tried again later, 1 claimed by a worker, 1 left by a worker without a heartbeat)"
    assert "\n  acme.events: acme → main: " in text and f"1 uploads without a batch, {states}" in text
    assert "worker host-a pid 11, since 2" in text and "has 1 batches" in text
    assert "worker host-b pid 12 died or hangs: no heartbeat since 2" in text
    assert "it left acme.events eu.acme.default 2" in text and "no worker runs" not in text
    status = json.loads(command("status", "--json")[1])
    assert status["counts"] == {
        "buffered": 1, "ready": 2, "delayed": 1, "claimed": 1, "abandoned": 1, "rejected": 0, "dead": 0,
        "dead_rows": 0, "waiting": 5,
    }  # fmt: skip
    assert [(worker["host"], worker["pid"], worker["alive"]) for worker in status["workers"]] == [
        ("host-a", 11, True), ("host-b", 12, False),
    ]  # fmt: skip
    assert status["tables"][0]["abandoned"] == 1 and status["tables"][0]["waiting"] == 5
    eu.pool.close()


def test_a_status_of_an_earlier_sternas_tracker_is_told_without_making_anything(
    command: Command, local: Stores, database: Database, tmp_path: Path
) -> None:
    eu = TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path)
    eu.prepare()
    eu.drop(b"{}\n")
    (batch,) = eu.close(asked=True)
    eu.queue.mark_rejected(batch.id, "no")
    with eu.pool.connection() as connection:
        connection.execute("DROP TABLE sterna_ingest_bad, sterna_ingest_worker")
        assert command("status")[0] == 5
        assert connection.execute("SELECT to_regclass('sterna_ingest_bad')").fetchone() == (None,)
    eu.pool.close()


def test_what_is_wrong_is_told_with_its_exit_code(command: Command, local: Stores) -> None:
    assert command("batches", "--state", "buffered")[0] == 2
    assert command("batches", "--since", "yesterday")[0] == 2
    code, _, errors = command("status", inbox=f"{local.eu}/replica's root/in")
    assert code == 2 and "replica root" in errors
    code, _, errors = command("status", inbox=f"{local.us}/inbox")
    assert code == 2 and "has to be in its own region" in errors
    code, _, errors = command("status", inbox="s3://elsewhere/inbox")
    assert code == 2 and "no location" in errors
    unreachable = {"credential_id": "ingest_eu", "hosts": ["127.0.0.1:1"]}
    code, _, errors = command("status", database=unreachable)
    assert code == 4 and "the ingest tracker of eu at 127.0.0.1:1 does not answer" in errors
    code, _, errors = command("status", database={**unreachable, "credential_id": "nobody"})
    assert code == 3
    code, _, errors = command("status", database={"credential_id": "ingest_eu"})
    assert code == 2 and "database.hosts is missing" in errors
