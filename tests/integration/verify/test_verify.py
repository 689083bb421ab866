"""Verify over real stores: nothing to say of a healthy replica, and a name for everything that is broken in it."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta

import fastavro
import pytest

from sterna.errors import StoreUnreachable
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.replication.verify.findings import VerificationReport
from sterna.replication.verify.run import Depth, parse_sample, verify
from tests.support.command import STERNA
from tests.support.own_region import put_object, read_object, remove_object
from tests.support.world import World, merge_on_read

DEEP = Depth(deep=True)
TABLES = ("verify.rows", "verify.vectors", "verify.home")


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("verify") as name:
        yield name


@pytest.fixture(scope="module")
def synced(world: World, ns: str) -> World:
    """Tables with files in both regions.

    Position deletes in every format, deletion vectors and statistics, one that is eu's own.
    """
    for table, version in (("verify.rows", 2), ("verify.vectors", 3)):
        world.sql(f"CREATE TABLE main_us.{table} (id BIGINT) USING iceberg {merge_on_read(version)}")
        for start, region in ((0, "us"), (30, "eu")):
            change(world, table, "write.data.path", f"{world.stage.warehouse(region)}/{table}-data")
            world.sql(f"INSERT INTO main_us.{table} SELECT id FROM range({start}, {start + 30})")
        # Deletes of whole partitions stay beside one another; those of single files take the place of older ones.
        change(world, table, "write.delete.granularity", "partition")
        for number, file_format in enumerate(("parquet", "orc", "avro")):
            change(world, table, "write.delete.format.default", file_format)
            world.sql(f"DELETE FROM main_us.{table} WHERE id IN ({number}, {number + 30})")
    world.sql("CALL main_us.system.compute_table_stats(table => 'verify.rows')")
    world.sql(
        "ALTER TABLE main_us.verify.rows CREATE TAG early AS OF VERSION "
        + str(world.snapshots("main_us.verify.rows")[0])
    )
    world.sql("CREATE TABLE main_eu.verify.home (id BIGINT) USING iceberg")
    world.sql("INSERT INTO main_eu.verify.home SELECT id FROM range(10)")
    assert not [item for item in world.sync().held if item.key in TABLES]
    return world


def change(world: World, table: str, key: str, value: str) -> None:
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('{key}'='{value}')")


def check(world: World, depth: Depth, *tables: str) -> VerificationReport:
    with world.context() as context:
        return verify(context, depth, tables or TABLES)


def test_a_healthy_replica_with_the_other_region_dark(synced: World):
    with synced.dark("us"):
        verification = check(synced, Depth())
    assert verification.findings == ()
    assert (verification.tables, verification.faults, verification.foreign, verification.compared) == (3, 0, 0, 0)


def test_a_healthy_replica_is_what_its_source_is(synced: World):
    verification = check(synced, DEEP)
    assert verification.findings == ()
    assert verification.not_comparable == 0
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(3)]
    parts = [check(synced, Depth(True, parse_sample("1/3", day))) for day in days]
    assert sum(part.compared for part in parts) == verification.compared > 20
    assert all(part.findings == () for part in parts)


def test_a_source_that_does_not_answer_is_named_and_nothing_is_called_a_fault(synced: World):
    with synced.dark("us"), pytest.raises(StoreUnreachable, match=str(synced.stage.endpoints["us"].port)):
        check(synced, DEEP)


def first(world: World, table: str, files: str, place: str = "us-lake") -> str:
    """A file of main's, from the region that is not the replica's."""
    rows = world.sql(f"SELECT file_path FROM main_us.{table}.{files} WHERE file_path LIKE 's3://{place}/%' ORDER BY 1")
    return str(rows[0][0])


@contextmanager
def damaged(world: World, uri: str, data: bytes | None) -> Iterator[None]:
    """An object of eu's with other bytes, or gone; as it was at the end."""
    before = read_object(world, uri)
    remove_object(world, uri) if data is None else put_object(world, uri, data)
    try:
        yield
    finally:
        put_object(world, uri, before)


def content(world: World, uri: str) -> str:
    with world.context() as context:
        return context.mapping.content_uri(uri)


def localized(world: World, uri: str) -> str:
    with world.context() as context:
        return context.mapping.localized_uri(uri, current_metadata_version(context.mapping))


def flipped(data: bytes) -> bytes:
    return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]


def data_file_gone(world: World) -> tuple[str, bytes | None]:
    return content(world, first(world, "verify.rows", "data_files")), None


def data_file_flipped(world: World) -> tuple[str, bytes | None]:
    source = first(world, "verify.rows", "data_files")
    return content(world, source), flipped(read_object(world, source))


def data_file_cut(world: World) -> tuple[str, bytes | None]:
    source = first(world, "verify.rows", "data_files")
    return content(world, source), read_object(world, source)[:-1]


def deletes_copied(file_format: str) -> Callable[[World], tuple[str, bytes | None]]:
    def change(world: World) -> tuple[str, bytes | None]:
        """What a copy without localizing would leave: the deleted rows come back."""
        rows = world.sql(
            f"SELECT file_path FROM main_us.verify.rows.delete_files WHERE file_format = '{file_format}' ORDER BY 1"
        )
        source = str(rows[0][0])
        return localized(world, source), read_object(world, source)

    return change


def vectors_copied(world: World) -> tuple[str, bytes | None]:
    source = str(world.sql("SELECT file_path FROM main_us.verify.vectors.delete_files ORDER BY 1")[0][0])
    return localized(world, source), read_object(world, source)


def manifest_copied(world: World) -> tuple[str, bytes | None]:
    rows = world.sql("SELECT path FROM main_us.verify.rows.manifests WHERE content = 0")
    manifests = {str(row[0]): read_object(world, str(row[0])) for row in rows}
    abroad = [
        uri
        for uri in manifests
        if any("s3://us-lake/" in str(entry) for entry in fastavro.reader(io.BytesIO(manifests[uri])))
    ]
    return localized(world, abroad[0]), manifests[abroad[0]]


def maintenance_allowed(world: World) -> tuple[str, bytes | None]:
    uri = world.replica()["verify.rows"].metadata_location or ""
    document = json.loads(read_object(world, uri))
    document["properties"]["gc.enabled"] = "true"
    return uri, json.dumps(document).encode()


def schema_edited(world: World) -> tuple[str, bytes | None]:
    uri = world.replica()["verify.rows"].metadata_location or ""
    document = json.loads(read_object(world, uri))
    document["schemas"][0]["fields"][0]["name"] = "other"
    return uri, json.dumps(document).encode()


@pytest.mark.parametrize(
    ("damage", "kind", "depth"),
    [
        (data_file_gone, "missing", Depth()),
        (data_file_cut, "size", Depth()),
        (data_file_flipped, "differs", DEEP),
        (deletes_copied("PARQUET"), "foreign", Depth()),
        (deletes_copied("ORC"), "foreign", Depth()),
        (deletes_copied("AVRO"), "foreign", Depth()),
        (vectors_copied, "foreign", Depth()),
        (manifest_copied, "foreign", Depth()),
        (maintenance_allowed, "unprotected", Depth()),
        (schema_edited, "differs", DEEP),
    ],
    ids=["gone", "cut", "flipped", "parquet", "orc", "avro", "vectors", "manifest", "maintenance", "schema"],
)
def test_what_is_broken_is_named(
    synced: World, damage: Callable[[World], tuple[str, bytes | None]], kind: str, depth: Depth
):
    uri, data = damage(synced)
    with damaged(synced, uri, data):
        verification = check(synced, depth)
    table = "verify.vectors" if damage is vectors_copied else "verify.rows"
    assert (table, kind, uri) in [(item.table, item.kind, item.file) for item in verification.findings]
    assert {item.table for item in verification.findings} == {table}


def test_the_command_line_says_what_is_wrong_where(synced: World):
    uri, data = data_file_flipped(synced)
    with damaged(synced, uri, data):
        assert sterna(synced, "--structure").returncode == 0
        assert sterna(synced, "--deep", "--table", "verify.vectors").returncode == 0
        answer = sterna(synced, "--deep", "--json")
        text = sterna(synced, "--sample", "1/1")
    assert answer.returncode == text.returncode == 7
    report = json.loads(answer.stdout.splitlines()[-1])
    (finding,) = report["findings"]
    assert (finding["table"], finding["kind"], finding["file"]) == ("verify.rows", "differs", uri)
    assert finding["message"]
    assert (report["tables"], report["faults"], report["not_comparable"]) == (3, 1, 0)
    assert report["compared"] > 20
    assert f"verify.rows: differs: {uri}" in text.stdout
    assert "verify.rows: " in answer.stderr
    assert sterna(synced, "--sample", "30").returncode == 2


def sterna(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    tables = () if "--table" in arguments else ("--table", "verify.*")
    command = [
        *STERNA,
        "verify",
        "--region",
        "eu",
        "--registry",
        str(world.stage.registry),
    ]
    return subprocess.run([*command, *tables, *arguments], capture_output=True, text=True, timeout=300)


def test_what_main_has_expired_meanwhile_is_no_fault(synced: World):
    synced.sql(f"CREATE TABLE main_us.verify.expired (id BIGINT) USING iceberg {merge_on_read(2)}")
    for start in (0, 10):
        synced.sql(f"INSERT INTO main_us.verify.expired SELECT id FROM range({start}, {start + 10})")
    synced.sql("DELETE FROM main_us.verify.expired WHERE id = 3")
    assert "verify.expired" in synced.sync().published
    change(synced, "verify.expired", "gc.enabled", "true")
    synced.sql(
        "CALL main_us.system.rewrite_data_files(table => 'verify.expired', options => map('rewrite-all', 'true'))"
    )
    synced.sql("CALL main_us.system.expire_snapshots(table => 'verify.expired', older_than => now(), retain_last => 1)")
    verification = check(synced, DEEP, "verify.expired")
    assert verification.findings == ()
    assert verification.not_comparable > 5
    assert verification.compared > 0
