"""A metadata.json of very many snapshots, or of very deep schemas.

Read in bounded memory, with work that grows as the file does.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sterna.errors import BrokenMetadata
from sterna.iceberg.metadata.table import localize_table_metadata, read_table_metadata
from sterna.iceberg.metadata.view import localize_view_metadata

URI = "s3://us-lake/t/metadata/00001-a.metadata.json"
# How much larger than the file; measured: 12 alone, 16 among other tests. It was 23 when what had been looked into was
# kept.
TIMES_IN_MEMORY = 20


def table(snapshots: int, **changes: Any) -> bytes:
    listed = [
        {
            "sequence-number": number,
            "snapshot-id": number,
            "parent-snapshot-id": number - 1,
            "timestamp-ms": number,
            "summary": {"operation": "append", "added-data-files": "1", "total-records": "100", "engine-name": "spark"},
            "manifest-list": f"s3://us-lake/t/metadata/snap-{number}-1-9c12d441-03fe-4693-9a96-a0705ddf69c1.avro",
            "schema-id": 0,
        }
        for number in range(1, snapshots + 1)
    ]
    content: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://us-lake/t",
        "last-updated-ms": 1,
        "current-snapshot-id": snapshots,
        "snapshots": listed,
        "snapshot-log": [{"timestamp-ms": number, "snapshot-id": number} for number in range(1, snapshots + 1)],
    }
    return json.dumps(content | changes).encode()


def localize(data: bytes) -> bytes:
    lists = {
        snapshot.manifest_list: "s3://eu/list.avro"
        for snapshot in read_table_metadata(data, URI).snapshots
        if snapshot.manifest_list
    }
    return localize_table_metadata(
        data, URI, map_content=str, map_root=str, map_property=lambda value: None, manifest_lists=lists
    )


def calls(function: Callable[[], object]) -> int:
    """Count the calls of functions, C's as well."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def peak(function: Callable[[], object]) -> int:
    # What other tests left alive would put off the collection of what this one leaves behind.
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def test_work_grows_as_the_number_of_snapshots_does():
    few, many = table(1_000), table(4_000)
    assert calls(lambda: localize(many)) < 4.2 * calls(lambda: localize(few))


@pytest.mark.parametrize("snapshots", [1_000, 4_000])
def test_memory_stays_a_small_multiple_of_the_file(snapshots: int):
    data = table(snapshots)
    localize(table(10))  # what is imported and compiled once is no matter of the file's size
    # The least of up to three: what other threads of this process allocate meanwhile is counted, too.
    assert any(peak(lambda: localize(data)) < TIMES_IN_MEMORY * len(data) for _ in range(3))


def nested(depth: int) -> Any:
    """A schema of structs within structs."""
    field: Any = "long"
    for number in range(depth):
        field = {"type": "struct", "fields": [{"id": number, "name": "f", "required": True, "type": field}]}
    return {"type": "struct", "schema-id": 0, "fields": [{"id": depth, "name": "f", "required": True, "type": field}]}


def test_a_deep_schema_passes_unread_or_is_refused():
    deep = table(2, schemas=[nested(100)])
    assert json.loads(localize(deep))["schemas"] == [nested(100)]
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    refused = table(1).replace(b'"format-version": 2', b'"schemas": [' + text.encode() + b'], "format-version": 2')
    for call in (
        localize,
        lambda data: localize_view_metadata(data, URI, map_root=str, map_property=lambda value: None),
    ):
        with pytest.raises(BrokenMetadata, match="nests too deep"):
            call(refused)
