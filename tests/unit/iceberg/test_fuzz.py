"""Damaged metadata: whatever stands in a file, a reader returns or raises an error of sterna's own.

A minute of it in each run. For longer: python3 run.py test tests/unit/iceberg/test_fuzz.py --fuzz-seconds 3600
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import SternaError
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.manifest import localize_manifest, read_entries
from sterna.iceberg.manifests.manifest_list import localize_manifest_list, read_manifest_list
from sterna.iceberg.metadata.history import prune_snapshots, retained_snapshots
from sterna.iceberg.metadata.table import localize_table_metadata, read_table_metadata
from sterna.iceberg.metadata.view import localize_view_metadata, read_view_metadata
from sterna.replication.execution.orc_sandbox import localize_orc_in_subprocess
from tests.unit.iceberg.avro_files import avro_file, entry, manifest_list_schema, manifest_row, manifest_schema, parts
from tests.unit.iceberg.metadata_json import VERSIONS, marked
from tests.unit.iceberg.test_view import VIEW, below, map_property_value

DATA = Path(__file__).parents[2] / "data"
URI = "s3://us/t/metadata/damaged"
BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (-1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400, 1.5)
VALUES: tuple[Any, ...] = (
    None,
    True,
    *NUMBERS,
    "",
    "x",
    "s3://us/../x",
    "\x00",
    "../" * 50,
    [],
    {},
    [[]],
    [None],
    {"": None},
)
Mutate = Callable[[random.Random, bytes], bytes]


class Every(dict[str, Any]):
    """Knows every key: what a file names has always been localized."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Any:
        return self.make(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]


WRITTEN = Every(lambda uri: LocalizedFile(below(uri), 7))
URIS = Every(below)


def manifest(data: bytes) -> None:
    with suppress(SternaError):
        read_entries(data, URI)
    localize_manifest(data, URI, map_content=below, deletes=WRITTEN, map_deleted_deletes=below)


def manifest_list(data: bytes) -> None:
    with suppress(SternaError):
        read_manifest_list(data, URI)
    localize_manifest_list(data, URI, WRITTEN)


def table(data: bytes) -> None:
    metadata = read_table_metadata(data, URI)
    for keep in (
        retained_snapshots(metadata),
        retained_snapshots(metadata, latest=1),
        retained_snapshots(metadata, since_ms=1),
    ):
        prune_snapshots(metadata, keep)
    localize_table_metadata(
        data,
        URI,
        map_content=below,
        map_root=below,
        map_property=map_property_value,
        manifest_lists=URIS,
        manifests=URIS,
    )


def view(data: bytes) -> None:
    with suppress(SternaError):
        read_view_metadata(data, URI)
    localize_view_metadata(data, URI, map_root=below, map_property=map_property_value)


def deletes(data: bytes) -> None:
    localize_position_deletes(data, URI, map_content=below, localize_orc=localize_orc_in_subprocess)


def raw(rng: random.Random, data: bytes) -> bytes:
    """Flip, set, take out, double or put in some bytes, or cut the file off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 1, 2, 8, 64)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = rng.choice(BYTES)
        elif kind == 2:
            del changed[at:end]
        elif kind == 3:
            changed[at:at] = changed[at:end]
        elif kind == 4:
            changed[at:at] = bytes(rng.choice(BYTES) for _ in range(rng.choice((1, 5, 10))))
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def tree(rng: random.Random, data: bytes) -> bytes:
    """Put a value where none of its kind belongs, take one out, or double an item."""
    document = json.loads(data)
    for _ in range(rng.choice((1, 1, 3))):
        node = document
        while isinstance(node, dict | list) and node:
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            if not isinstance(node[key], dict | list) or rng.random() < 0.3:
                kind = rng.randrange(4)
                if kind == 0:
                    del node[key]
                elif kind == 1 and isinstance(node, list):
                    node.append(node[key])
                else:
                    node[key] = deepcopy(rng.choice(VALUES))
                break
            node = node[key]
    return json.dumps(document).encode()


def text(rng: random.Random, data: bytes) -> bytes:
    return raw(rng, data) if rng.random() < 0.3 else tree(rng, data)


def avro(rng: random.Random, data: bytes) -> bytes:
    """Damage the file, its schema, or what its blocks hold, so that the damage isn't one of the compression."""
    chance = rng.random()
    if chance < 0.2:
        return raw(rng, data)
    header, blocks = parts(data)
    if chance < 0.4:
        at = header.index(b"{")
        return header[:at] + raw(rng, header[at:]) + data[len(header) :]
    count, payload = blocks[0]
    blocks[0] = (count if rng.random() < 0.8 else rng.choice((0, -1, 1, 2**31, 2**62)), raw(rng, payload))
    return header + b"".join(open_container(data, URI).encode_block(number, block) for number, block in blocks)


def plain_avro(schema: Any, records: list[Any], **metadata: str) -> bytes:
    return avro_file(schema, records, "null", **metadata)


MANIFESTS = [plain_avro(manifest_schema(version), [entry("s3://us/a", version=version)] * 5) for version in (1, 2, 3)]
MANIFESTS += [
    (DATA / "manifests" / name).read_bytes() for name in ("v2-deletes.avro", "v3-data.avro", "v3-deletes.avro")
]
LISTS = [
    plain_avro(manifest_list_schema(version), [manifest_row("s3://us/m")] * 5, format_version=str(version))
    for version in (2, 3)
]
LISTS += [(DATA / "manifests" / "v3-list.avro").read_bytes()]
TABLES = [marked(version).translate({0xAB: None, 0xBB: None}).encode() for version in VERSIONS]


def delete_files(ending: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((DATA / "deletes").glob(f"*.{ending}"))]


TARGETS: dict[str, tuple[list[bytes], Mutate, Callable[[bytes], None]]] = {
    "manifest": (MANIFESTS, avro, manifest),
    "manifest list": (LISTS, avro, manifest_list),
    "metadata.json": (TABLES, text, table),
    "view": ([VIEW.encode()], text, view),
    "position deletes in Avro": (delete_files("avro"), avro, deletes),
    "position deletes in ORC": (delete_files("orc"), raw, deletes),
    "position deletes in Parquet": (delete_files("parquet"), raw, deletes),
    "deletion vectors": (delete_files("puffin"), raw, deletes),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_read_or_refused(name: str, request: pytest.FixtureRequest):
    seeds, mutate, read = TARGETS[name]
    fixed_seed = request.config.getoption("--fuzz-seed")
    end = time.monotonic() + request.config.getoption("--fuzz-seconds") / len(TARGETS)
    while True:
        seed = secrets.randbits(48) if fixed_seed is None else fixed_seed
        rng = random.Random(seed)
        data = mutate(rng, rng.choice(seeds))
        try:
            read(data)
        except SternaError:
            pass
        except BaseException as error:
            error.add_note(f"again: --fuzz-seed {seed} -k {name!r}; the file: {data!r}")
            raise
        if fixed_seed is not None or time.monotonic() > end:
            return
