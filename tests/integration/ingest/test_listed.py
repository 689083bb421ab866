"""Files that others put into a folder of the region: each becomes a drop, once."""

from __future__ import annotations

import io
import secrets
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.load import parse_services
from sterna.errors import TrackerLost, UsageError
from sterna.pipelines.ingest import prefix_watcher
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.prefix_watcher import PrefixWatcher
from sterna.pipelines.ingest.region import RegionIngest, open_ingest
from sterna.replication.replica.region import open_region
from sterna.servers.postgres import Database, Postgres
from sterna.serving.http.ingest_errors import translate_error
from sterna.storage.objects import Objects
from sterna.storage.write import read_file, write_file
from tests.support.ingest_http import services_of, variables_of, write_settings
from tests.support.stores import Stores


@pytest.fixture
def database(postgres: Postgres) -> Database:
    return postgres.create_database(f"listed_{secrets.token_hex(4)}")


def opened(folder: Path, stores: Stores, database: Database, *listed: dict[str, Any], **limits: str) -> RegionIngest:
    services = services_of(stores, database, **limits)
    services["ingest"]["regions"]["eu"]["listed"] = list(listed)
    registry, path = write_settings(folder, stores, services)
    context = open_region(registry, "eu", environment_secrets(variables_of(database)))
    return open_ingest(context, parse_services(path.read_text(), "s.yaml"))


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(rows))}), sink)
    return sink.getvalue()


def test_each_file_is_taken_once_and_bad_ones_hold_up_nobody(local: Stores, database: Database, tmp_path: Path) -> None:
    landing = {"prefix": f"{local.eu}/landing", "table": "acme.events", "every": "1s"}
    ingest = opened(tmp_path, local, database, landing, file="1MiB", body="1KiB")
    ingest.prepare()
    folder = PrefixWatcher(ingest, ingest.region_settings.listed[0])
    assert folder.poll().accepted == 0
    local.put(f"{local.eu}/landing/day=1/a.parquet", parquet(3))
    local.put(f"{local.eu}/landing/b.jsonl", b'{"id": 1}\n')
    local.put(f"{local.eu}/landing/c.jsonl", b"{")
    local.put(f"{local.eu}/landing/d.jsonl", b'{"id": 1}\n' * 1000)
    local.put(f"{local.eu}/landing/e.parquet", parquet(3)[:-9])
    local.put(f"{local.eu}/landing/_SUCCESS", b"")
    listing = folder.poll()
    assert (listing.accepted, listing.rejected, listing.is_full) == (2, 3, False)
    assert folder.poll().accepted == 0
    relisting = PrefixWatcher(
        ingest, ingest.region_settings.listed[0]
    ).poll()  # another gateway, or this one after a kill
    assert (relisting.accepted, relisting.rejected) == (0, 3)
    (state,) = ingest.tracker.list_channel_states("eu.acme.listed")
    assert (state.table, state.uploads) == ("acme.events", 2)
    assert local.objects.read(f"{local.eu}/landing/b.jsonl") == b'{"id": 1}\n'  # it stays where it is
    ingest.close()


def test_a_file_that_is_written_over_while_it_is_read_is_taken_once(
    local: Stores, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = {"prefix": f"{local.eu}/landing", "table": "acme.events", "every": "1s"}
    ingest = opened(tmp_path, local, database, landing)
    ingest.prepare()
    folder = PrefixWatcher(ingest, ingest.region_settings.listed[0])
    uri, new = f"{local.eu}/landing/a.jsonl", b'{"id": 2}\n{"id": 3}\n'
    local.put(uri, b'{"id": 1}\n')

    def overtaken(objects: Objects, which: str, path: Path, *args: Any) -> str:
        monkeypatch.undo()
        (tmp_path / "new").write_bytes(new)
        write_file(objects, which, tmp_path / "new")
        return read_file(objects, which, path, *args)

    monkeypatch.setattr(prefix_watcher, "read_file", overtaken)
    assert [folder.poll().accepted for _ in range(3)] == [0, 1, 0]
    (state,) = ingest.tracker.list_channel_states("eu.acme.listed")
    assert state.uploads == 1
    ingest.close()


def test_a_room_takes_what_is_listed_and_stops_at_a_full_backlog(
    local: Stores, database: Database, tmp_path: Path
) -> None:
    landing = {"prefix": f"{local.eu}/landing", "table": "acme.slow", "every": "1s"}
    for number in range(10):
        local.put(f"{local.eu}/landing/{number}.jsonl", b'{"id": 1}\n')
    ingest = opened(tmp_path, local, database, landing, backlog="55B")
    assert PrefixWatcher(ingest, ingest.region_settings.listed[0])
    room = IngestService(ingest)
    room.start()
    try:
        while room.counts.listed < 5:
            assert all(thread.is_alive() for thread in room.threads)
            time.sleep(0.02)
        assert PrefixWatcher(ingest, ingest.region_settings.listed[0]).poll().is_full and room.counts.listed == 5
    finally:
        room.stop()


def test_an_empty_tracker_for_an_inbox_in_use_takes_nothing_and_producers_get_503(
    local: Stores, database: Database, postgres: Postgres, tmp_path: Path
) -> None:
    ingest = opened(tmp_path, local, database)
    ingest.prepare()
    local.put(f"{local.eu}/inbox/acme/acme.events/00/x.drop.json", b"{}")
    room = IngestService(opened(tmp_path, local, postgres.create_database(f"{database.name}_empty")))
    room.start()
    try:
        with pytest.raises(TrackerLost) as lost:
            room.read_usage("acme")
        answer = translate_error(lost.value, "1")
        assert answer is not None and answer.status == 503 and "rebuild" not in answer.error
        while not room.problem:
            time.sleep(0.02)
        assert room.problem.startswith("TrackerLost")
    finally:
        room.stop()
        ingest.close()


@pytest.mark.parametrize(
    ("prefix", "table", "said"),
    [
        ("{eu}/inbox/acme", "acme.events", "overlap"),
        ("{eu}", "acme.events", "overlap"),
        ("{us}/landing", "acme.events", "in its own region"),
        ("s3://elsewhere/landing", "acme.events", "no location"),
        ("{eu}/landing", "nobody.t", "takes no rows"),
        ("{eu}/landing", "acme.other", "takes no rows"),
        ("{eu}/landing", "acme.sub.kept_out", "residency"),
    ],
)
def test_a_folder_that_can_t_be_listed_is_told(
    local: Stores, database: Database, tmp_path: Path, prefix: str, table: str, said: str
) -> None:
    where = prefix.format(eu=local.eu, us=local.us)
    with pytest.raises(UsageError, match=said):
        opened(tmp_path, local, database, {"prefix": where, "table": table})
