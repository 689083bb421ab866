"""Three tables, one poisoned: it is held with file and reason, the two others are published, and no log is written to.

Poisons by hand, for each field of metadata.json, lists and manifests that names a file or states a number. Those at
random are in `test_poison_at_random.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.replication.plan import quarantine
from tests.unit.sync.poison import (
    ESCAPES,
    GONE,
    NOT_UTF_8,
    ODD,
    Sick,
    bad_paths,
    full,
    in_list,
    in_manifest,
    judge,
    poisoned,
    setting,
)

FILES = ("snapshots/0/manifest-list", "statistics/0/statistics-path", "partition-statistics/0/statistics-path")
NUMBERS = (
    *("format-version", "last-updated-ms", "current-snapshot-id", "snapshots/0/snapshot-id"),
    *("snapshots/0/timestamp-ms", "snapshots/0/parent-snapshot-id", "snapshots/0/schema-id"),
    *("statistics/0/file-size-in-bytes", "statistics/0/snapshot-id", "refs/main/snapshot-id"),
    *("partition-statistics/0/file-size-in-bytes", "snapshot-log/0/snapshot-id"),
)


@pytest.mark.parametrize("field", FILES)
def test_a_path_of_a_file(sick: Sick, field: str):
    base = sick.document["location"]
    odd = [f"{base}/{escape}x" for escape in ("\x85", "\u2028", "\u202e")]  # fine names, of files that aren't there
    for value in (GONE, 5, True, [], {}, [[]], *bad_paths(base), *odd):
        # Readers can do without statistics: a name that leads nowhere is left out.
        sick.check(poisoned(sick, field, value), held=field == FILES[0] or not isinstance(value, str))


@pytest.mark.parametrize("file", ["metadata.json", "list"])
def test_a_file_that_its_store_always_fails_at(sick: Sick, file: str, monkeypatch: pytest.MonkeyPatch):
    """Nothing is concluded from it about the store, whoever is read first."""
    monkeypatch.setattr(quarantine, "MAX_TABLE_CONCURRENCY", 1)
    loop = sick.path("loop")
    loop.unlink(missing_ok=True)
    loop.symlink_to(loop)
    if file == "list":
        sick.check(poisoned(sick, FILES[0], f"file://{loop}"), file=f"file://{loop}")
    else:
        judge(*sick.commit(lambda world: world.commit(bad=f"file://{loop}")), key="ns.bad", held=True, file="")


@pytest.mark.parametrize(
    "field",
    [
        "location",
        *(f"properties/{name}" for name in ("write.data.path", "write.metadata.path")),
        *(f"properties/{name}" for name in ("write.object-storage.path", "write.folder-storage.path")),
    ],
)
def test_a_folder(sick: Sick, field: str):
    base = sick.document["location"]
    for value in (5, True, [], {}, [[]], *bad_paths(base), *(f"{base}/{escape}x" for escape in ESCAPES)):
        # What a table's properties hold need not be a folder, and some letters are odd and no more.
        sick.check(poisoned(sick, field, value), held=False)
    if field == "location":
        sick.check(poisoned(sick, field, GONE))


@pytest.mark.parametrize("field", ["metadata-log/0/metadata-file", "snapshots/0/summary/x", "properties/any"])
def test_what_may_hold_anything(sick: Sick, field: str):
    base = sick.document["location"]
    for value in (5, [], {}, None, *bad_paths(base), *(f"{base}/{escape}x" for escape in ESCAPES)):
        sick.check(poisoned(sick, field, value), held=False)


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number(sick: Sick, field: str):
    for value in (2**70, -(2**70), 10**400, 1.5, "7", True, [], {}):
        sick.check(poisoned(sick, field, value))


@pytest.mark.parametrize("size", [-1, 2**62, 2**63 - 1, 2**63])
def test_sizes(sick: Sick, size: int):
    document = full(sick.document)
    for name in ("statistics", "partition-statistics"):
        document[name] = [
            {**document[name][0], "file-size-in-bytes": size, "statistics-path": path} for path in files(sick)
        ]
    # What can be a size, and isn't the file's, leaves these statistics out.
    sick.check(json.dumps(document).encode(), held=not 0 <= size < 2**63)


def files(sick: Sick) -> list[str]:
    """Files that are there, so that a size alone is wrong."""
    folder = Path(sick.document["location"].removeprefix("file://"))
    return [f"file://{path}" for path in sorted(folder.rglob("*.avro"))]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b"\x1f\x8b", b'{"a":1,"a":2}', b"[" * 200_000, b'{"a":' * 200_000),
        b'{"format-version": NaN}',
        b'{"format-version": ' + b"9" * 10_000 + b"}",
        b'{"format-version": 2, "\\ud800\\n": 1, "\\ud800\\n": 2}',
    ],
)
def test_no_document_at_all(sick: Sick, data: bytes):
    sick.check(data)


@pytest.mark.parametrize("field", ["properties", "snapshots", "statistics", "refs", "snapshot-log", "metadata-log"])
def test_a_part_of_another_form(sick: Sick, field: str):
    for value in (5, "x", [5], [None], [[]], {"x": 5}, {"x": None}, [{}] * 3):
        sick.check(poisoned(sick, field, value), held=False)


@pytest.mark.parametrize(("poison", "field"), [(in_list, "manifest_path"), (in_manifest, "data_file/file_path")])
def test_a_path_in_avro(sick: Sick, poison: Callable[..., bytes], field: str):
    base = sick.document["location"]
    encodable = [value for value in bad_paths(base) if "\ud800" not in value]
    for value in (*encodable, *(f"{base}/{odd}x" for odd in ODD), f"s3://nowhere/{NOT_UTF_8}"):
        sick.check(poison(sick, setting(field, value)))


@pytest.mark.parametrize(
    ("poison", "field", "values"),
    [
        (in_list, "manifest_length", (-1, 0, 2**62, 2**63 - 1, -(2**63))),
        (in_list, "content", (-1, 7)),
        (in_manifest, "data_file/file_size_in_bytes", (-1, 0, 2**62, 2**63 - 1, -(2**63))),
        (in_manifest, "data_file/content", (1, 7, -1)),
        (in_manifest, "status", (7, -1)),
    ],
)
def test_a_number_in_avro(sick: Sick, poison: Callable[..., bytes], field: str, values: tuple[int, ...]):
    for value in values:
        sick.check(poison(sick, setting(field, value)), held=field != "status")


def test_without_poison_all_three_are_published(sick: Sick):
    """The tests above spoil one thing, and what they write beside it is fine."""
    for data in (in_list(sick, lambda record: None), in_manifest(sick, lambda record: None)):
        report, _ = sick.sync(data)
        assert report.held == ()
