"""What a wrong localizer wrote is not used by the next version: the sync after an upgrade writes it anew."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from sterna.config.registry.fingerprint import MetadataVersion
from sterna.iceberg import LOCALIZER_VERSION
from sterna.iceberg.deletes import position_deletes
from sterna.replication.verify.run import Depth, verify
from tests.support.gc import clean, files, later, much_later
from tests.support.replica_paths import LOCALIZED_FOLDER, TODAY, version_of
from tests.support.small_world import World, localizer_version, run
from tests.unit.verify.tables import ROWS, sides, write

NEXT = LOCALIZER_VERSION + 1
RIGHT = {("a", row) for row in set(range(ROWS)) - {1, 3, 5, 7}} | {
    ("b", row) for row in set(range(ROWS)) - {0, 2, 4, 7}
}


def wrong_localizer() -> AbstractContextManager[Any]:
    """Position deletes are copied as they are, so that they hit nothing here."""
    return patch.object(position_deletes, "localize_position_deletes", lambda *_, **__: None)


def committed(world: World, *names: str) -> None:
    for name in names:
        write(sides(world, name)[0], 2)
    world.commit(**{name: sides(world, name)[0].uri("metadata/v1.metadata.json") for name in names})


def deep(world: World) -> tuple[Any, ...]:
    return verify(world.context(), Depth(deep=True)).findings


def rows(world: World, name: str) -> set[tuple[str, int]]:
    """What a reader of the replica gets: the data file's letter and the row, for each row that no delete hits."""
    document = json.loads(_read(world.replica()[f"ns.{name}"].metadata_location or ""))
    newest = next(item for item in document["snapshots"] if item["snapshot-id"] == document["current-snapshot-id"])
    listed = [
        entry["data_file"] for manifest in _avro(newest["manifest-list"]) for entry in _avro(manifest["manifest_path"])
    ]
    gone = {row for file in listed if file["content"] for row in _deleted(file["file_path"])}
    data = [file["file_path"] for file in listed if not file["content"]]
    return {(Path(uri).stem, row) for uri in data for row in range(ROWS) if (uri, row) not in gone}


def _deleted(uri: str) -> Iterator[tuple[str, int]]:
    if uri.endswith(".avro"):
        entries = _avro(uri)
    else:
        source = io.BytesIO(_read(uri))
        entries = (orc.read_table(source) if uri.endswith(".orc") else pq.read_table(source)).to_pylist()
    return ((row["file_path"], row["pos"]) for row in entries)


def _avro(uri: str) -> list[dict[str, Any]]:
    return list(fastavro.reader(io.BytesIO(_read(uri))))  # type: ignore[arg-type]


def _read(uri: str) -> bytes:
    return Path(uri.removeprefix("file://")).read_bytes()


@pytest.fixture
def wrong(world: World) -> World:
    """Two tables whose deleted rows are back."""
    with wrong_localizer():
        committed(world, "a", "b")
        assert run(world).held == ()
    assert len(rows(world, "a")) == len(rows(world, "b")) == 2 * ROWS
    return world


def test_the_sync_after_an_upgrade_puts_deleted_rows_right(wrong: World):
    before = files(wrong)
    content = {
        path: (wrong.folder / "eu/replica" / path).stat().st_mtime_ns for path in before if LOCALIZED_FOLDER not in path
    }
    with localizer_version(NEXT):
        report = run(wrong)
        assert (report.held, set(report.published)) == ((), {"ns.a", "ns.b"})
        assert rows(wrong, "a") == rows(wrong, "b") == RIGHT
        assert deep(wrong) == ()
        assert (report.copied.files, report.copied.sent) == (0, 0), "content is here"
        for path, time in content.items():
            assert (wrong.folder / "eu/replica" / path).stat().st_mtime_ns == time
        assert before <= files(wrong), "nothing is written over: older heads are still read"
        assert run(wrong).outcome == "idle"


def test_what_the_older_version_wrote_is_garbage(wrong: World):
    before = files(wrong, LOCALIZED_FOLDER)
    with localizer_version(NEXT):
        run(wrong)
        new = files(wrong, LOCALIZED_FOLDER) - before
        clean(wrong, later())
        clean(wrong, much_later())
        assert files(wrong, LOCALIZED_FOLDER) == new
        assert rows(wrong, "a") == RIGHT
        assert deep(wrong) == ()


def test_a_change_after_the_upgrade_takes_over_what_this_version_wrote(wrong: World):
    with localizer_version(NEXT):
        run(wrong)
        localized = files(wrong, LOCALIZED_FOLDER)
        write(sides(wrong, "c")[0], 2)
        wrong.commit(c=sides(wrong, "c")[0].uri("metadata/v1.metadata.json"))
        run(wrong)
        assert all("/c/" in path for path in files(wrong, LOCALIZED_FOLDER) - localized)
        assert rows(wrong, "c") == RIGHT


def test_the_second_version_writes_where_the_first_did(world: World):
    committed(world, "a")
    with localizer_version(2):
        run(world)
    assert {path.split("/")[1] for path in files(world, LOCALIZED_FOLDER)} == {"us-lake"}


def test_back_to_the_older_version(wrong: World):
    """It was right, and the newer one is not: what it wrote is taken as it stands there."""
    with localizer_version(NEXT):
        run(wrong)
    older = {path for path in files(wrong, LOCALIZED_FOLDER) if version_of(path) == TODAY}
    report = run(wrong)
    assert (report.held, set(report.published)) == ((), {"ns.a", "ns.b"})
    assert {path for path in files(wrong, LOCALIZED_FOLDER) if version_of(path) == TODAY} == older


def test_after_a_promotion_with_tables_files_of_other_editions_are_told_apart(world: World):
    """`main` names what eu's older version wrote; us and eu localize it by the newer one."""
    committed(world, "a", "b")
    run(world)
    world.commit(a=world.replica()["ns.a"].metadata_location)
    with localizer_version(NEXT):
        world.commit(b=(run(world), world.replica()["ns.b"].metadata_location)[1])
        for region in ("us", "eu"):
            assert run(world, region).held == ()
            verified = verify(world.context(region), Depth(deep=True))
            assert (verified.findings, verified.not_comparable) == ((), 0)
        assert rows(world, "a") == rows(world, "b") == RIGHT
    assert {version_of(path) for path in files(world, LOCALIZED_FOLDER)} == {TODAY, MetadataVersion(NEXT)}
