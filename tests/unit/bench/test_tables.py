"""Avro files made from a template are those that Java would have written."""

from __future__ import annotations

import io

import fastavro

from bench.tables import AvroTemplate, BigTable
from sterna.iceberg.avro.container import open_container

SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "path", "type": "string"}, {"name": "size", "type": ["null", "long"]}],
}


def template() -> AvroTemplate:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, [{"path": "a", "size": 1}], codec="deflate", metadata={"format-version": "2"})
    return AvroTemplate.read(sink.getvalue())


def test_records_come_back_from_a_file_of_several_blocks_with_the_templates_header() -> None:
    manifest_template = template()
    assert manifest_template.record == {"path": "a", "size": 1}
    records = [{"path": f"s3://lake/{number:0100}", "size": number or None} for number in range(2000)]
    data = manifest_template.file([manifest_template.encode(record) for record in records])
    assert list(fastavro.reader(io.BytesIO(data))) == records
    container = open_container(data, "s3://lake/m.avro")
    assert container.metadata["format-version"] == b"2"
    assert sum(len(group.blocks) for group in container.groups()) > 1


def test_a_tables_files_are_its_entries_each_once_and_always_the_same() -> None:
    table = BigTable(("bench", "t"), "s3://lake/t", 2500, 1000, 1, "")
    files = [file for manifest in table.manifests() for file in table.files(manifest)]
    assert len(set(files)) == 2500
    assert len({part for part, _ in files}) == 3
    assert files == [file for manifest in table.manifests() for file in table.files(manifest)]
