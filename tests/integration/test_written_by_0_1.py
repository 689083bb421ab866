"""A replica branch, run folders and a clean-up's record that version 0.1.0 wrote (`tests/data/replica-0.1`): this
version understands them, and goes on from there.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.table import StaticTable

from sterna.catalog.model import ICEBERG_TABLE, key_name
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.errors import UsageError
from sterna.maintenance.deletion.passes import Pass, read_passes
from sterna.maintenance.gc.evidence import PendingRuns, gc_folder
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.operations.status.gather import with_retries
from sterna.operations.status.read import read_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.replica.run_folder import decompress, is_intermediate, load_files, load_plan, runs_folder
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.nessie import start_nessie
from sterna.servers.postgres import start_postgres
from sterna.servers.registry_file import bucket_name, create_key_pair, deployment_environment
from sterna.servers.s3 import Endpoint, start_s3
from tests.support.world import pyiceberg_properties

DATA = Path(__file__).parents[1] / "data" / "replica-0.1"
ANSWERS: dict[str, Any] = json.loads((DATA / "answers.json").read_text())
EU = ANSWERS["replicas"]["eu"]


@dataclass
class Restored:
    """The catalog and the stores as they were left, at other addresses."""

    registry: Path
    eu: Endpoint

    def context(self) -> RegionContext:
        return open_region(self.registry, "eu", environment_secrets())

    def rows(self, context: RegionContext) -> dict[str, list[list[str | None]]]:
        """What eu's replica answers to PyIceberg; it reads no deletion vectors, and no views."""
        branch = context.region.replica_branch
        entries = context.catalog.entries(branch, context.catalog.reference(branch).hash)
        locations = {key_name(key): item.metadata_location for key, item in entries if item.kind == ICEBERG_TABLE}
        properties = pyiceberg_properties(self.eu)
        return {
            name: _texts(StaticTable.from_metadata(uri, properties).scan().to_arrow().to_pylist())
            for name, uri in locations.items()
            if uri and name != "shop.parcels"
        }


def _texts(rows: list[dict[str, Any]]) -> list[list[str | None]]:
    texts = [[None if cell is None else str(cell) for cell in row.values()] for row in rows]
    return sorted(texts, key=lambda row: [(cell is not None, cell or "") for cell in row])


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    with ExitStack() as stack:
        endpoints = {}
        for region in ("us", "eu"):
            # An endpoint serves a folder, a folder in it a bucket. A clean-up asks when files were changed: it is kept.
            with tarfile.open(DATA / f"{bucket_name(region)}.tar.gz") as archive:
                archive.extractall(tmp_path / "s3" / region, filter="data")
            endpoints[region] = start_s3(tmp_path, region, [bucket_name(region)], *create_key_pair())
            stack.callback(endpoints[region].stop)
        server = start_postgres(tmp_path)
        stack.callback(server.stop)
        database = server.create_database("nessie")
        with psycopg.connect(database.url(), autocommit=True) as connection:
            connection.execute(gzip.decompress((DATA / "nessie.sql.gz").read_bytes()))
        nessie = start_nessie(tmp_path, database=database)
        stack.callback(nessie.stop)
        text = (DATA / "storage_registry.yaml").read_text().replace("@NESSIE@", nessie.uri)
        for region, endpoint in endpoints.items():
            text = text.replace(f"@{region.upper()}_ENDPOINT@", endpoint.url)
        registry = tmp_path / "storage_registry.yaml"
        registry.write_text(text)
        with temporary_environment(deployment_environment(registry, endpoints)):
            yield Restored(registry, endpoints["eu"])


def named_by(record: Pass) -> set[str]:
    return {uri for part in record.uris() for uri in part.column("uri").to_pylist()}


def test_what_it_wrote_is_understood(restored: Restored) -> None:
    with restored.context() as context:
        status = with_retries(context, read_status(context))
        assert (status.problem, status.replica_hash, status.watermark) == ("", EU["hash"], EU["watermark"])
        assert status.source_hash == ANSWERS["main"]["hash"]
        fields = EU["held"][0].keys()  # a newer version has more to say of a held table
        assert [{name: asdict(item.held)[name] for name in fields} for item in status.held] == EU["held"]
        assert [item.key for item in status.refused] == EU["refused"]
        held_keys = [key for run in EU["runs"].values() for key in run.get("held", ())]
        assert {item.held.key: item.tries for item in status.held} == {
            key: held_keys.count(key) for key in set(held_keys)
        }

        for run_id, run in EU["runs"].items():
            uri = f"{context.region.replica_root}/_sterna/runs/{run_id}"
            plan = load_plan(context, uri)
            listed = [load_files(context, uri, batch=batch.number).num_rows for batch in plan.batches]
            assert (plan.run_id, load_files(context, uri).num_rows + sum(listed) > 0) == (run_id, True)
            if "outcome" in run:
                report = REPORT.loads(decompress(context.objects.read(f"{uri}/report.json")))
                assert (report.outcome, list(report.published)) == (run["outcome"], run["published"])
                assert [list(item) for item in report.copied.failed] == run["failed"]
                assert all(item.table and item.kind for item in report.copied.failed)

        (record,) = read_passes(context, gc_folder(context), datetime.now(UTC))
        assert len(named_by(record)) == ANSWERS["collect"]["unreachable"]["files"]
        flying = PendingRuns(context, datetime.now(UTC), timedelta(days=36_500)).in_flight(EU["hash"])
        assert flying == (ANSWERS["in_flight"]["run"].rpartition("/")[2],)

        verified = verify_structure(context)
        assert (verified.findings, verified.foreign) == ((), 0)
        assert {name: getattr(verified, name) for name in EU["verified"]} == EU["verified"]
        answers = restored.rows(context)
        assert answers == {name: EU["tables"][name]["rows"] for name in answers}


def test_it_goes_on_from_there(restored: Restored) -> None:
    lines: list[str] = []
    with restored.context() as context:
        with pytest.raises(UsageError, match="start a new sync"):
            stages.copy(context, ANSWERS["in_flight"]["run"], 0, lines.append)

        report = sync(context, SyncOptions(), lines.append)
        assert (report.outcome, report.watermark) == ("published", ANSWERS["main"]["hash"])
        assert report.published == ("shop.orders",)
        assert [item.key for item in report.held] == ANSWERS["after"]["held"]
        answers = restored.rows(context)
        assert answers == {name: ANSWERS["after"]["rows"][name] for name in answers}
        assert (verified := verify_structure(context)).findings == (), verified

        # The registry's digest is another one than that version's: once all keys are compared, and never again.
        assert compared(lines) == len(ANSWERS["main"]["tables"])
        del lines[:]
        assert sync(context, SyncOptions(), lines.append).outcome == "idle"
        assert compared(lines) == len(ANSWERS["after"]["held"])

        later = datetime.now(UTC) + timedelta(days=2)
        options = GcOptions(keep=timedelta(0), delete=True, max_wait_seconds=0.0)
        (record,) = read_passes(context, gc_folder(context), datetime.now(UTC))
        runs = runs_folder(context)
        paths = {uri: uri.removeprefix(f"{runs}/").partition("/")[2] for uri, _, _ in context.objects.list(runs)}
        # What a run of that version has read of foreign metadata waits for no second pass.
        working = {uri for uri, path in paths.items() if is_intermediate(path)}
        named = named_by(record)
        assert len(named) == ANSWERS["collect"]["unreachable"]["files"]
        collected = run_gc(context, options, lines.append, now=later)
        assert (collected.failed, collected.strange.files) == (0, 0)
        assert collected.deleted.files == len(working | named)
        assert verify_structure(context).findings == ()
        assert restored.rows(context) == answers


def compared(lines: list[str]) -> int:
    """How many keys the first plan of a sync compared."""
    return int(next(line for line in lines if "keys compared" in line).split()[0])
