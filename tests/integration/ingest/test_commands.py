"""The commands `sterna ingest …` over a real tracker."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.cli.main import main
from sterna.edges.secrets import environment_secrets
from sterna.embedded.postgres import Database, Postgres
from tests.support.ingest import Door, lane
from tests.support.ingest_gateway import services_of, variables_of, write_settings
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
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_what_waits_is_told_closed_and_listed(
    command: Command, local: Stores, database: Database, tmp_path: Path
) -> None:
    assert command("status")[:2] == (0, f"eu: nothing came in yet; the inbox is {local.eu}/inbox\n")
    assert json.loads(command("close", "--json")[1]) == {"region": "eu", "closed": []}
    eu = Door(local.objects, f"{local.eu}/inbox", database, tmp_path)
    eu.prepare()
    for partition in ("day=1", "day=2"):
        eu.drop(b"{}\n{}\n", to=lane(partition=partition))
    code, text, _ = command("status")
    assert code == 0 and "acme.events: 2 drops without a batch, 0 batches, 12 bytes" in text and "ALARM" not in text
    closed = json.loads(command("close", "--now", "--table", "acme.events", "--json")[1])["closed"]
    assert [batch["number"] for batch in closed] == [1, 2] and {batch["closed_by"] for batch in closed} <= {
        "asked",
        "age",
    }
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_batch SET oldest = oldest - interval '1 hour' WHERE number = 1")
    first = eu.queue.take("w", 60.0)
    assert first is not None
    eu.queue.give_back(first.id, "w", "the home of acme.events is dark")
    code, text, _ = command("status")
    assert code == 5 and "the home of acme.events is dark  ALARM (more than 601 s)" in text
    found = json.loads(command("status", "--json")[1])
    assert found["oldest_seconds"] > 3600 and found["tables"][0]["alarm"]
    eu.queue.mark_published(first.id, 7, "c0ffee" * 8)
    eu.queue.mark_rejected(closed[1]["id"], "min(amount) >= 0 does not hold")
    code, text, _ = command("status")
    assert code == 0 and "nothing waits" in text and "rejected, 1 drops, 2 rows, 6 bytes: min(amount)" in text
    listed = json.loads(command("batches", "--json", "--tenant", "acme", "--state", "published", "--since", "1h")[1])
    assert [(batch["number"], batch["commit"]) for batch in listed["batches"]] == [(1, "c0ffee" * 8)]
    assert "2 batches" in command("batches")[1] and "0 batches" in command("batches", "--table", "acme.x")[1]
    eu.pool.close()


def test_what_is_wrong_is_told_with_its_exit_code(command: Command, local: Stores) -> None:
    assert command("batches", "--state", "buffered")[0] == 2
    assert command("batches", "--since", "yesterday")[0] == 2
    code, _, said = command("status", inbox=f"{local.eu}/replica's root/in")
    assert code == 2 and "replica root" in said
    code, _, said = command("status", inbox=f"{local.us}/inbox")
    assert code == 2 and "writers write near" in said
    code, _, said = command("status", inbox="s3://elsewhere/inbox")
    assert code == 2 and "no location" in said
    dark = {"credential_id": "ingest_eu", "hosts": ["127.0.0.1:1"]}
    code, _, said = command("status", database=dark)
    assert code == 4 and "the ingest tracker of eu at 127.0.0.1:1 does not answer" in said
    code, _, said = command("status", database={**dark, "credential_id": "nobody"})
    assert code == 3
    code, _, said = command("status", database={"credential_id": "ingest_eu"})
    assert code == 2 and "database.hosts is missing" in said
