"""Tables at odd keys, over stores that can hold them.

What arrives is where it belongs, byte for byte, and what can't is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.odd_store import NAMESPACE, US, OddWorld, odd_servers, odd_world, rows
from tests.support.often import often
from tests.support.replica_paths import localized_path
from tests.support.stores import ODD

KEY_LIMIT = 1024
COPIED = "replica/us/"  # what stands before the path under us's prefix in the key of a copy
LOCALIZED = f"replica/{localized_path('us/')}"
# Part names that decode to something that is no part name, and such that only look so.
UNSAFE = ["in//x", "in/../x", "in/./x", "%2e%2e/x", "in/%2E/x", "in/..%2fx", "x?versionId=1", "in/a\nb"]
FINE = [
    "a%2eb",
    "a%2Fb",
    "%2ea",
    "%252e",
    "%252e%252e",
    "...",
    "..a",
    "%25",
    "+",
    "a=b",
    "\u00e9",
    "e\u0301",
    "\U0001f426",
]


# What is odd in the last two is odd in names of files in every run.
_FOLDERS = ["a b #+=&%20%2F%25/\u00e9\u65e5\U0001f426", "e\u0301", "a%2eb/p=1", "~x/$(touch y)/`z`/{a}[b]'c\"d"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ThreadedMotoServer, str, str]]:
    with odd_servers(tmp_path_factory.mktemp("odd")) as running:
        yield running


@pytest.fixture
def world(servers: tuple[ThreadedMotoServer, str, str], tmp_path: Path) -> Iterator[OddWorld]:
    with odd_world(servers, tmp_path) as odd_keys:
        yield odd_keys


def assert_arrived(world: OddWorld, *names: str) -> None:
    report = world.sync()
    assert report.held == ()
    for name in names:
        wanted = world.read_main(name)
        assert wanted[-1], "the test needs rows"
        assert world.read_replica(name) == wanted
    assert world.sync().outcome == "idle"


def test_files_at_odd_keys_are_copied_and_read(world: OddWorld):
    table = world.create("files", f"{US}/files")
    names = [f"in/{odd}/{odd}{number}" for number, odd in enumerate(dict.fromkeys([*ODD, *FINE]))]
    # At the top of the bucket; a key that is another one's folder; keys that differ in case; a key that looks like the
    # replica's own.
    names += [
        "in",
        "in/one",
        "in/one/inner",
        "in/ONE",
        f"in/{localized_path('us/in/one')}",
        "in/replica/us/in/one",
        "in/us~s3a/one",
    ]
    for number, name in enumerate(names):
        world.put_parquet(f"{US}/{name}", number, number + 1000)
    table.add_files([f"{US}/{name}" for name in names])
    world.commit("files")
    assert_arrived(world, "files")
    assert {key for key in world.replica_keys() if key.startswith(f"{COPIED}in")} == {
        f"{COPIED}{name}" for name in names
    }


@pytest.mark.parametrize("folder", often(_FOLDERS, _FOLDERS[:2]))
def test_a_tables_own_location_is_odd(world: OddWorld, folder: str):
    location = f"{US}/{folder}/t"
    world.create("located", location).append(rows(1, 2))
    world.commit("located")
    assert_arrived(world, "located")
    world.writer.load_table((NAMESPACE, "located")).append(rows(3))
    world.commit("located")
    assert_arrived(world, "located")
    kept = {key for key in world.replica_keys() if f"/{folder}/t/" in key}
    assert {key.partition(f"{folder}/t/")[0] for key in kept} == {COPIED, LOCALIZED}


def test_odd_partition_values(world: OddWorld):
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "word", StringType(), required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "word"))
    table = world.writer.create_table((NAMESPACE, "parts"), schema, location=f"{US}/parts", partition_spec=spec)
    words = ["a b/c=d%20\u00e9#+", "..", ".", "", "%2F", "e\u0301", "\U0001f426"]
    table.append(rows(*range(len(words))).set_column(1, "word", [words]))
    world.commit("parts")
    assert_arrived(world, "parts")


def test_a_key_as_long_as_still_fits_and_one_byte_more(world: OddWorld):
    fits, over = (name_of(length - len(COPIED)) for length in (KEY_LIMIT, KEY_LIMIT + 1))
    for table, name in (("fits", fits), ("over", over)):
        world.put_parquet(f"{US}/{name}", 1)
        world.create(table, f"{US}/{table}").add_files([f"{US}/{name}"])
    world.commit("fits", "over")
    (held,) = world.sync().held
    assert (held.key, held.kind, held.file) == (f"{NAMESPACE}.over", "UnsafeUri", f"{US}/{over}")
    assert str(KEY_LIMIT + 1) in held.reason
    assert world.read_replica("fits") == world.read_main("fits")
    assert f"{COPIED}{fits}" in world.replica_keys()


def test_a_metadata_file_whose_key_gets_too_long_is_held(world: OddWorld):
    world.create("short", f"{US}/short").append(rows(1))
    long = name_of(KEY_LIMIT - len(LOCALIZED) - 80)
    world.create("long", f"{US}/{long}", **{"write.data.path": f"{US}/data"}).append(rows(1))
    world.commit("long", "short")
    (held,) = world.sync().held
    assert (held.key, held.kind) == (f"{NAMESPACE}.long", "UnsafeUri")
    assert held.file.startswith(f"{US}/{long}/metadata/")
    assert world.read_replica("short") == world.read_main("short")


def test_paths_that_must_not_be_followed_are_held_and_named(world: OddWorld):
    world.create("good", f"{US}/good").append(rows(1))
    bad = {f"{NAMESPACE}.bad{number}": f"{US}/{path}" for number, path in enumerate(UNSAFE)}
    for key, uri in bad.items():
        table = world.create(key.partition(".")[2], f"{US}/bad/{key}")
        table.append(rows(1))
        append_unseen(table, uri)
    world.commit(*(key.partition(".")[2] for key in bad), "good")
    report = world.sync()
    assert {item.key: item.kind for item in report.held} == dict.fromkeys(bad, "UnsafeUri")
    # No query is shown, where signatures stand; a control character is shown as its number.
    shown = {key: uri.partition("?")[0].replace("\n", "\\x0a") for key, uri in bad.items()}
    assert {item.key: item.file.strip("'") for item in report.held} == shown
    assert world.replica().keys() == {NAMESPACE, f"{NAMESPACE}.good"}
    assert world.read_replica("good") == world.read_main("good")
    assert not [key for key in world.replica_keys() if "/bad/" in key], (
        "nothing of a table that must not be followed is copied"
    )


def test_a_table_that_must_not_be_followed_recovers_once_it_names_good_files(world: OddWorld):
    table = world.create("mended", f"{US}/mended")
    append_unseen(table, f"{US}/in//x.parquet")
    world.commit("mended")
    assert [item.key for item in world.sync().held] == [f"{NAMESPACE}.mended"]
    world.writer.drop_table((NAMESPACE, "mended"))
    world.create("mended", f"{US}/mended").append(rows(5))
    world.commit("mended")
    assert_arrived(world, "mended")


def name_of(length: int) -> str:
    """Return a path of that many bytes, of letters that take two each."""
    parts = "/".join(["\u00e9" * 100] * (length // 201))
    left = length - len(parts.encode()) - 1
    return f"{parts}/{'x' * left}" if left > 0 else parts + "x" * (left + 1)


def append_unseen(table: Table, uri: str) -> None:
    """Append a file that nobody looks at: some of these paths no client sends to a server."""
    entry: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": uri,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
    }
    file = DataFile.from_args(**entry, record_count=1, file_size_in_bytes=1)
    file.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
