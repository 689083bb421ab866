"""A few kilobytes that would take a worker's memory: refused, with the limit, the setting and the file, in little
memory.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sterna.config.limits import DEFAULT_LIMITS
from sterna.errors import TableError
from sterna.iceberg.json_text import estimate_memory, read_document
from sterna.iceberg.metadata.table import read_table_metadata
from tests.unit.iceberg.test_metadata_large import peak, table

URI = "s3://us-lake/t/metadata/a"
MOST_MIB = 200
# All in one process: it prints the error of each, and by how many MiB its peak of memory grew from the first on. Bombs
# are made piece by piece, so that making them takes no memory.
CHILD = r"""
import gzip, io, resource
import cramjam, pyarrow, pyarrow.compute
from isal import isal_zlib
from sterna.errors import TableError
from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import estimate_memory
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.iceberg.manifests.manifest import read_entries
from sterna.iceberg.manifests.manifest_list import read_manifest_list
from sterna.iceberg.metadata.table import read_table_metadata
from sterna.config.limits import Limits
from sterna.replication.verify.avro import read_manifest
from sterna.replication.verify.json_file import read_json
from sterna.replication.verify.puffin import read_puffin
from tests.unit.iceberg.avro_files import SYNC, container, manifest_list_schema, manifest_schema

URI = "s3://us-lake/t/metadata/a"
HEAD = b'{"format-version":2,"table-uuid":"u","location":"s3://us-lake/t","last-updated-ms":1,"snapshots":['
MIB = bytes(1 << 20)

def many(element, count):
    return HEAD + (element + b",") * (count - 1) + element + b"]}"

def zipped(element, count):
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb") as file:
        file.write(HEAD)
        for _ in range(count // 10_000):
            file.write((element + b",") * 10_000)
        file.write(element + b"]}")
    return sink.getvalue()

def zstandard(mib):
    frame = cramjam.zstd.Compressor()
    for _ in range(mib):
        frame.compress(MIB)
    return bytes(frame.finish())

def deflate(mib):
    stream = isal_zlib.compressobj(wbits=-15)
    return b"".join([stream.compress(MIB) for _ in range(mib)]) + stream.flush()

def avro(codec, payload, schema=manifest_schema(), blocks=1, count=5):
    block = encode_long(count) + encode_long(len(payload)) + payload + SYNC
    return container(schema, [], codec) + blocks * block

def puffin(footer):
    return b"PFA1PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"

def small(data, uri):
    return read_table_metadata(data, uri, Limits(json_bytes=4 << 20))

def deletes(data, uri):
    return localize_position_deletes(data, uri, map_content=str)

HUGE = zstandard(540)
COLUMNS = (("file_path", "string", 2147483546), ("pos", "long", 2147483545))
DELETES = {
    "type": "record",
    "name": "r",
    "fields": [{"name": name, "type": kind, "field-id": number} for name, kind, number in COLUMNS],
}
ZIPPED = zipped(b"{}", 2_700_000)
BOMBS = [
    ("a manifest", read_entries, lambda: avro("zstandard", HUGE)),
    ("a manifest for verify", read_manifest, lambda: avro("zstandard", HUGE)),
    ("a manifest of deflate", read_entries, lambda: avro("deflate", deflate(60))),
    ("a manifest of many blocks", read_entries, lambda: avro("zstandard", zstandard(1), blocks=2_000)),
    ("a manifest of many records", read_entries, lambda: avro("null", bytes(2 << 20), count=1_000_000)),
    ("a list", read_manifest_list, lambda: avro("zstandard", HUGE, manifest_list_schema())),
    ("an estimate", estimate_memory, lambda: avro("null", bytes(2 << 20), count=1_000_000)),
    ("position deletes", deletes, lambda: avro("zstandard", HUGE, DELETES)),
    ("zipped objects", read_table_metadata, lambda: ZIPPED),
    ("objects", read_table_metadata, lambda: many(b"{}", 1_100_000)),
    ("arrays in arrays", read_table_metadata, lambda: many(b"[]", 1_100_000)),
    ("numbers", read_table_metadata, lambda: many(b"1", 13_000_000)),
    ("one emoji", small, lambda: many(b'"\xf0\x9f\x98\x80' + b"a" * (2 << 20) + b'"', 1)),
    ("objects for verify", read_json, lambda: many(b"{}", 1_100_000)),
    ("zipped objects for verify", read_json, lambda: ZIPPED),
    ("a footer", deletes, lambda: puffin(many(b"{}", 1_100_000))),
    ("a footer for verify", read_puffin, lambda: puffin(many(b"{}", 1_100_000))),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, read, make in BOMBS:
    data = make()
    try:
        read(data, URI)
        print(name, len(data), "was read")
    except TableError as error:
        print(name, len(data), error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.slow
def test_bombs_take_little_memory() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    *errors, grown = done.stdout.splitlines()
    assert len(errors) == CHILD.count("lambda: ")
    for error in errors:
        assert "over the limit of " in error
        assert "limits." in error
        assert f"[file {URI}]" in error
    assert int(errors[0].split()[2]) < 60_000, "a bomb is small"
    assert int(grown) < MOST_MIB, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        table(500),
        b'{"format-version":2,"x":[' + b",".join([b"{}"] * 20_000) + b"]}",
        b'{"format-version":2,"x":[' + b",".join(b'{"%d":1}' % number for number in range(20_000)) + b"]}",
        b'{"format-version":2,"x":[' + b",".join(b"%d" % number for number in range(100_000)) + b"]}",
        '{"format-version":2,"x":"\U0001f600'.encode() + b"a" * 1_000_000 + b'"}',
    ],
    ids=("snapshots", "nothing", "keys", "numbers", "an emoji"),
)
def test_the_estimate_is_no_less_than_what_reading_takes(data: bytes) -> None:
    def read() -> None:
        with suppress(TableError):
            read_table_metadata(data, URI)

    estimate = estimate_memory(data, URI, DEFAULT_LIMITS)
    assert estimate == read_document(data, URI).memory_bytes
    assert peak(read) < 1.1 * estimate
