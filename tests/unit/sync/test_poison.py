"""Three tables, one poisoned: it is held with file and reason, the two others are published, and no log is written to.

Poisons by hand, for each field that names a file or states a number, and some at random in each run. For longer:
python3 run.py test tests/unit/sync/test_poison.py --fuzz-seconds 3600
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sterna.replica import run_folder
from sterna.replica.records import Report
from sterna.sync.options import SyncOptions
from sterna.sync.run import sync
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import World, here, make_world
from tests.unit.iceberg.avro_files import avro_file
from tests.unit.iceberg.test_fuzz import raw, text

GONE = object()
NOT_UTF_8 = "QQQ"  # becomes the bytes of half a surrogate pair
SHARE = 5  # of --fuzz-seconds
ESCAPES = ("\n", "\x1b[2J", "\x85", "\u2028", "\u202e", "\ud800")


@dataclass(frozen=True)
class Sick:
    """A world that was brought to eu once, so that what a sync needs is there, and the files of one of its tables.

    Args:
        world: the world.
        good: by name, the metadata.json of the two tables that stay well.
        location: that of the third one.
        every: each so many of the poisons is played; the others are left out.
    """

    world: World
    good: dict[str, str]
    location: str
    every: int = 1
    turns: Iterator[int] = field(default_factory=count)

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(Path(self.location.removeprefix("file://")).read_text())

    def path(self, name: str) -> Path:
        return Path(self.location.removeprefix("file://")).parent / name

    def sync(self, data: bytes) -> tuple[Report, list[str]]:
        """Commit the three tables to a new catalog, one of them with this metadata.json, and sync."""
        path = self.path(f"00099-{secrets.token_hex(8)}.metadata.json")
        path.write_bytes(data)
        world = replace(self.world, catalog=InMemoryCatalog())
        world.commit(**self.good)
        world.commit(bad=f"file://{path}")
        lines: list[str] = []
        return sync(world.context(), SyncOptions(), lines.append, engine=here), lines

    def check(self, data: bytes, *, held: bool = True) -> None:
        """See that the others are published, and that whatever is told can be told anywhere."""
        if next(self.turns) % self.every:
            return
        report, lines = self.sync(data)
        assert {"ns.one", "ns.two"} <= set(report.published), report
        assert {item.key for item in report.held} <= {"ns.bad"}
        if held:
            assert report.held, "the poison was taken for a table"
        for item in report.held:
            assert item.kind
            assert item.reason
            assert item.file
            lines.append(item.line)
        told = [*lines, run_folder.to_json(report)]
        for line in told:
            assert line.isprintable(), repr(line)
            assert len(line.encode()) < 20_000


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Sick:
    every = 5 if request.config.getoption("quick") else 1
    world = make_world(tmp_path_factory.mktemp("poison"))
    found = {name: world.write(name) for name in ("one", "two", "bad")}
    world.commit(**found)
    assert sync(world.context(), SyncOptions(), lambda line: None, engine=here).held == ()
    return Sick(world, {name: found[name] for name in ("one", "two")}, found["bad"], every)


def put(document: Any, path: str, value: Any) -> None:
    """Set, or take out, what stands at a path such as `snapshots.0.manifest-list`."""
    *folders, last = path.split("/")
    node = document
    for part in folders:
        node = node[int(part) if isinstance(node, list) else part]
    key: Any = int(last) if isinstance(node, list) else last
    if value is GONE:
        del node[key]
    else:
        node[key] = value


def full(document: dict[str, Any]) -> dict[str, Any]:
    """Give a table each of the fields that may name a file."""
    snapshot = document["snapshots"][0]
    entry = {"snapshot-id": snapshot["snapshot-id"], "file-size-in-bytes": 1}
    here = document["location"]
    document["statistics"] = [
        {**entry, "statistics-path": f"{here}/s.puffin", "file-footer-size-in-bytes": 1, "blob-metadata": []}
    ]
    document["partition-statistics"] = [{**entry, "statistics-path": f"{here}/p.parquet"}]
    document["properties"] = {"write.data.path": f"{here}/data"}
    document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"{here}/x"}]
    return document


def bad_paths(base: str) -> list[Any]:
    """What is no path that may be followed, wherever it stands."""
    return [
        *(
            "x",
            "",
            "s3://nowhere/x",
            f"{base}/../x",
            f"{base}/%2e%2e/x",
            f"{base}/a//b",
            f"{base}/x?y=1",
            "x" * 300_000,
        ),
        *(f"s3://nowhere/{escape}x" for escape in ESCAPES),
        *(f"{base}/{escape}x" for escape in ("\n", "\x1b[2J", "\ud800", "x" * 5_000)),
    ]


FILES = ("snapshots/0/manifest-list", "statistics/0/statistics-path", "partition-statistics/0/statistics-path")
NUMBERS = (
    *("format-version", "last-updated-ms", "current-snapshot-id", "snapshots/0/snapshot-id"),
    *("snapshots/0/timestamp-ms", "snapshots/0/parent-snapshot-id", "snapshots/0/schema-id"),
    *("statistics/0/file-size-in-bytes", "statistics/0/snapshot-id", "refs/main/snapshot-id"),
    *("partition-statistics/0/file-size-in-bytes", "snapshot-log/0/snapshot-id"),
)


def poisoned(sick: Sick, path: str, value: Any) -> bytes:
    document = full(sick.document)
    put(document, path, value)
    return json.dumps(document).encode()


@pytest.mark.parametrize("field", FILES)
def test_a_path_of_a_file(sick: Sick, field: str):
    base = sick.document["location"]
    odd = [f"{base}/{escape}x" for escape in ("\x85", "\u2028", "\u202e")]  # fine names, of files that aren't there
    for value in (GONE, 5, True, [], {}, [[]], *bad_paths(base), *odd):
        sick.check(poisoned(sick, field, value))


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
    sick.check(json.dumps(document).encode())


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


def avro_with(sick: Sick, source: str, change: Callable[[dict[str, Any]], None]) -> tuple[str, int]:
    """Write a changed copy of a manifest or list; return its URI and length."""
    with open(source.removeprefix("file://"), "rb") as file:
        reader = fastavro.reader(file)
        records = list(reader)
        schema = reader.writer_schema
        about = {
            key.replace("-", "_"): value
            for key, value in reader.metadata.items()
            if not key.startswith(("avro.", "schema"))
        }
    for record in records:
        change(record)
    data = avro_file(schema, records, "null", **about).replace(NOT_UTF_8.encode(), b"\xed\xa0\x80")
    path = sick.path(f"{secrets.token_hex(8)}.avro")
    path.write_bytes(data)
    return f"file://{path}", len(data)


def in_list(sick: Sick, change: Callable[[dict[str, Any]], None]) -> bytes:
    document = sick.document
    document["snapshots"][0]["manifest-list"], _ = avro_with(sick, document["snapshots"][0]["manifest-list"], change)
    return json.dumps(document).encode()


def in_manifest(sick: Sick, change: Callable[[dict[str, Any]], None]) -> bytes:
    def point(record: dict[str, Any]) -> None:
        record["manifest_path"], record["manifest_length"] = avro_with(sick, record["manifest_path"], change)

    return in_list(sick, point)


def setting(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: put(record, path, value)


ODD = ("\x85", "\u2028", "\u202e", NOT_UTF_8)


@pytest.mark.parametrize(("poison", "field"), [(in_list, "manifest_path"), (in_manifest, "data_file/file_path")])
def test_a_path_in_avro(sick: Sick, poison: Callable[..., bytes], field: str):
    base = sick.document["location"]
    told = [value for value in bad_paths(base) if "\ud800" not in value]
    for value in (*told, *(f"{base}/{odd}x" for odd in ODD), f"s3://nowhere/{NOT_UTF_8}"):
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


def test_at_random(sick: Sick, request: pytest.FixtureRequest):
    given = request.config.getoption("--fuzz-seed")
    end = time.monotonic() + request.config.getoption("--fuzz-seconds") / SHARE
    clean = json.dumps(full(sick.document)).encode()
    while True:
        seed = secrets.randbits(48) if given is None else given
        rng = random.Random(seed)
        data = at_random(sick, rng, clean)
        try:
            sick.check(data, held=False)
        except BaseException as error:
            error.add_note(f"again: --fuzz-seed {seed}; metadata.json: {data[:5000]!r}")
            raise
        if given is not None or time.monotonic() > end:
            return


def at_random(sick: Sick, rng: random.Random, clean: bytes) -> bytes:
    """Damage metadata.json, or the list, or a manifest."""
    kind = rng.random()
    if kind < 0.6:
        return text(rng, clean)
    document = deepcopy(sick.document)
    source = Path(document["snapshots"][0]["manifest-list"].removeprefix("file://"))
    path = sick.path(f"{rng.getrandbits(64):x}.avro")
    path.write_bytes(raw(rng, source.read_bytes()))
    document["snapshots"][0]["manifest-list"] = f"file://{path}"
    return json.dumps(document).encode()


def test_without_poison_all_three_are_published(sick: Sick):
    """The tests above spoil one thing, and what they write beside it is fine."""
    for data in (in_list(sick, lambda record: None), in_manifest(sick, lambda record: None)):
        report, _ = sick.sync(data)
        assert report.held == ()
