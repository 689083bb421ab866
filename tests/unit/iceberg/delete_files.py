"""Position delete files for tests.

A writer and a reader for each format, and files that Iceberg's Java library wrote.
"""

import io
import random
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from tests.unit.iceberg.avro_files import avro_file, decode

URI = "s3://us/t/data/deletes"
GOLDEN = Path(__file__).parents[2] / "data" / "deletes"
FORMATS = ("parquet", "orc", "avro")
PATH, POS, ROW = 2147483546, 2147483545, 2147483544

Row = tuple[str, int, dict[str, Any] | None]


def content(uri: str) -> str:
    """Map what is in us below eu's replica root: paths of us now stand before all others."""
    return uri.replace("s3://us/", "s3://eu/r/us/", 1) if uri.startswith("s3://us/") else uri


def localized(data: bytes) -> bytes:
    """Localize a file that must change, twice, and what comes out once more."""
    done = localize_position_deletes(data, URI, map_content=content)
    assert done is not None
    assert done == localize_position_deletes(data, URI, map_content=content)
    assert localize_position_deletes(done, URI, map_content=content) is None
    return done


def expected(rows: list[Row]) -> list[Row]:
    """What localizing must make of rows; of equal ones the order stays."""
    return sorted(((content(path), pos, row) for path, pos, row in rows), key=lambda row: (row[0].encode(), row[1]))


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def write_rows(kind: str, rows: list[Row], **options: Any) -> bytes:
    """A file whose `row` column holds a number and a text, both optional."""
    if kind == "avro":
        return avro_file(AVRO, [dict(zip(("file_path", "pos", "row"), row, strict=True)) for row in rows], **options)
    key = "PARQUET:field_id" if kind == "parquet" else "iceberg.id"
    columns = [("file_path", pa.string(), PATH), ("pos", pa.int64(), POS), ("row", _struct(key), ROW)]
    schema = pa.schema(
        [pa.field(name, type_, nullable=name == "row", metadata={key: str(number)}) for name, type_, number in columns]
    )
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, **({"store_schema": False, "row_group_size": 40} | options))
    else:
        orc.write_table(table, sink, **options)
    return sink.getvalue()


def read_rows(kind: str, data: bytes) -> list[Row]:
    if kind == "avro":
        records = decode(data)[1]
    else:
        table = pq.read_table(io.BytesIO(data)) if kind == "parquet" else orc.read_table(io.BytesIO(data))
        records = table.to_pylist()
    return [(record["file_path"], record["pos"], record["row"]) for record in records]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, most of them where formats keep their metadata, and sometimes the end cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.choice((rng.randrange(len(out)), max(0, len(out) - 1 - rng.randrange(400))))
        out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(out[: rng.choice((len(out), len(out), len(out), rng.randrange(len(out))))])


def avro_records(data: bytes) -> list[Any]:
    """The records of a file, decoded by fastavro with their logical types."""
    return list(fastavro.reader(io.BytesIO(data)))


def _struct(key: str) -> pa.DataType:
    return pa.struct(
        [pa.field("number", pa.int64(), metadata={key: "1"}), pa.field("text", pa.string(), metadata={key: "2"})]
    )


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "file_path", "type": "string", "field-id": PATH},
        {"name": "pos", "type": "long", "field-id": POS},
        {
            "name": "row",
            "field-id": ROW,
            "default": None,
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "r2147483544",
                    "fields": [
                        {"name": "number", "type": ["null", "long"], "field-id": 1},
                        {"name": "text", "type": ["null", "string"], "field-id": 2},
                    ],
                },
            ],
        },
    ],
}
