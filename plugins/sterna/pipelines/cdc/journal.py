"""The journal: what was read of a source, durable in the region's inbox before the source may purge it.

<inbox>/_cdc/sources/<source>/<capture id>/begin.json          the tables of a capture and their keys
<inbox>/_cdc/sources/<source>/<capture id>/asked.json          a request to begin the capture
<inbox>/_cdc/sources/<source>/<capture id>/again-<n>.json      a request to read one table again
<inbox>/_cdc/sources/<source>/<capture id>/layouts-<id>.json   the tables' schemas, where the log lacks them
<inbox>/_cdc/drops/<source>/<capture id>/<down>.json           a segment: whole transactions, and the next position
<inbox>/_cdc/drops/<source>/<capture id>/<down>-<id>.parquet   rows of one table in it

Segments (`drops` in paths) may expire by a rule of the store; what is below `sources` may not.

<down> is 10^12 less the segment's number, so the newest is listed first, however many there are.

A segment is committed by its own file, created only if absent, after its rows: of two readers one commits it. A capture
(`epoch` in files) is one reading of the source, from all of its rows on; `resync` begins the next.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sterna.codec import (
    FLAG,
    INTEGER,
    RAW_JSON,
    TEXT,
    Document,
    Field,
    Record,
    UnknownFields,
    mapping_of,
    nullable,
    tuple_of,
)
from sterna.errors import BadDrop, NeedsResync, ObjectMissing, SternaError, UnfitSource
from sterna.pipelines.ingest.batch_file import parse_file
from sterna.pipelines.ingest.columns import Column
from sterna.storage.objects import Objects
from sterna.storage.write import create, write_file

_SEGMENT_NAME = re.compile(r"([0-9]{12})\.json")
_REQUEST_NAME = re.compile(r"again-([0-9]{6})\.json")
_CAPTURE_ID = re.compile(r"[0-9]{6}")
_MAX_NUMBER = 10**12


@dataclass(frozen=True)
class Part:
    """Rows of one table, of one schema.

    Args:
        uri: the Parquet file.
        columns: the source's.
    """

    uri: str
    rows: int
    bytes: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class StoppedTable:
    """Why a table isn't read any more, until the next resync.

    Args:
        error: the class name of the error.
        last: the last segment with all of the table's rows; 0: its initial rows were never complete.
    """

    error: str
    message: str
    last: int = 0

    @classmethod
    def from_error(cls, error: SternaError, last: int) -> StoppedTable:
        """Return the record of an error; `last` is 0 if no segment has all rows of the table."""
        return cls(type(error).__name__, error.message, last)

    def to_error(self, table: str, source: str, *, alone: bool = False) -> NeedsResync | UnfitSource:
        """Return the error that was recorded; its hint names the table if it can be read again `alone`."""
        kind = UnfitSource if self.error == UnfitSource.__name__ else NeedsResync
        option = f" --table {table}" if alone else ""
        hint = f"other tables go on; mend this one, then sterna cdc resync {source}{option}"
        return kind(self.message, table=table, hint=hint)


@dataclass(frozen=True)
class TableResync:
    """The position of a table that was read again while the others continued.

    Args:
        first: the first segment with some of its rows.
        last: the segment that completes them.
        key: the columns of the table's key since then.
        snapshot: the server's snapshot: the transactions that the rows include.
        end_lsn: the log position behind which none of these transactions is.
    """

    first: int
    last: int
    key: tuple[str, ...]
    snapshot: str
    end_lsn: int


@dataclass(frozen=True)
class Segment:
    """Whole transactions, or a part of a capture's initial rows.

    Args:
        number: from 1.
        partition: the engine's name of the source.
        offset: where the engine resumes behind it; None: nowhere, as the initial rows aren't complete.
        tables: by `schema.table`, its rows in the order of the log.
        complete: the initial rows are complete with this segment.
        committed_micros: when the source committed its last transaction, microseconds since 1970; 0: unknown.
        columns: by `schema.table`, each table's last columns.
        dropped_columns: by `schema.table`, columns that were dropped, and whose values are still on `main`.
        origin: the log that the offset belongs to, where its file name isn't unique.
        layouts: the URI of the tables' schemas; "": the log has them.
        identities: by `schema.table`, the row identity when the segment was made, by the kind of source.
        stopped: by `schema.table`, why neither this segment nor a later one of the capture has its rows.
        resyncs: by `schema.table`, tables that were read again.
        handled_requests: the number of the last resync request that was done, or refused.
    """

    capture_id: int
    number: int
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    complete: bool = False
    committed_micros: int = 0
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    dropped_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    layouts: str = ""
    identities: Mapping[str, Any] = field(default_factory=dict)
    stopped: Mapping[str, StoppedTable] = field(default_factory=dict)
    resyncs: Mapping[str, TableResync] = field(default_factory=dict)
    handled_requests: int = 0


@dataclass(frozen=True)
class CaptureSpec:
    """One reading of a source, from all of its rows on.

    Args:
        id: from 1.
        tables: by `schema.table`, the columns of its key.
    """

    id: int
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_keys_at(self, segment: Segment | None) -> CaptureSpec:
        """Return it with the keys that tables have at a segment."""
        keys = {name: resync.key for name, resync in segment.resyncs.items()} if segment is not None else {}
        return replace(self, tables={**self.tables, **keys})


COLUMN: Final = Record(
    Column, (Field("name", TEXT), Field("type", RAW_JSON), Field("required", FLAG)), UnknownFields.IGNORE
)
PART: Final = Record(
    Part,
    (Field("uri", TEXT), Field("rows", INTEGER), Field("bytes", INTEGER), Field("columns", tuple_of(COLUMN.codec))),
    UnknownFields.IGNORE,
)
STOPPED_TABLE: Final = Record(
    StoppedTable,
    (Field("error", TEXT), Field("message", TEXT), Field("last", INTEGER, 0)),  # the last is newer than version 2
    UnknownFields.IGNORE,
)
TABLE_RESYNC: Final = Record(
    TableResync,
    (
        Field("first", INTEGER),
        Field("last", INTEGER),
        Field("key", tuple_of(TEXT)),
        Field("snapshot", TEXT),
        Field("reached", INTEGER, attribute="end_lsn"),
    ),
    UnknownFields.IGNORE,
)
SEGMENT: Final = Record(
    Segment,
    (
        Field("epoch", INTEGER, attribute="capture_id"),
        Field("number", INTEGER),
        Field("partition", nullable(mapping_of(RAW_JSON))),
        Field("offset", nullable(mapping_of(RAW_JSON))),
        Field("tables", mapping_of(tuple_of(PART.codec))),
        Field("complete", FLAG),
        Field("committed", INTEGER, attribute="committed_micros"),
        Field("known", mapping_of(tuple_of(COLUMN.codec)), attribute="columns"),
        Field("gone", mapping_of(tuple_of(TEXT)), attribute="dropped_columns"),
        Field("origin", mapping_of(RAW_JSON)),
        Field("layouts", TEXT),
        Field("identities", mapping_of(RAW_JSON), {}),  # newer than version 1
        Field("stopped", mapping_of(STOPPED_TABLE.codec), {}),  # newer than version 1
        Field("again", mapping_of(TABLE_RESYNC.codec), {}, attribute="resyncs"),  # newer than version 1
        Field("asked", INTEGER, 0, attribute="handled_requests"),  # newer than version 1
    ),
    UnknownFields.IGNORE,
)
# A reader that ignores stopped tables would continue them, and lack the rows between; one that ignores resyncs would
# merge their rows as changes, and keep rows that the source no longer has.
SEGMENT_FILE: Final = Document(
    SEGMENT, spaced=True, needs_next_version=lambda segment: bool(segment.stopped or segment.resyncs)
)


@dataclass(frozen=True)
class SpecRecord:
    """The content of `begin.json`.

    Args:
        tables: by `schema.table`, the columns of its key.
    """

    tables: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class TableSchemas:
    """The tables' schemas, for a source whose log lacks them.

    Args:
        schemas: by `database.table`, as the engine describes it; by "", statements that precede all others.
    """

    schemas: Mapping[str, Any]


SPEC: Final = Record(SpecRecord, (Field("tables", mapping_of(tuple_of(TEXT))),), UnknownFields.IGNORE)
SPEC_FILE: Final = Document(SPEC, spaced=True)
CAPTURE_REQUEST: Final = Record(dict[str, Any], (), UnknownFields.IGNORE)
CAPTURE_REQUEST_FILE: Final = Document(CAPTURE_REQUEST, spaced=True)
"""The file's presence is the request: nothing reads it."""


@dataclass(frozen=True)
class ResyncRequest:
    """The content of a resync request for one table.

    Args:
        table: its `schema.table`.
    """

    table: str


RESYNC_REQUEST: Final = Record(ResyncRequest, (Field("table", TEXT),), UnknownFields.IGNORE)
RESYNC_REQUEST_FILE: Final = Document(RESYNC_REQUEST, spaced=True)
TABLE_SCHEMAS: Final = Record(
    TableSchemas, (Field("layouts", mapping_of(RAW_JSON), attribute="schemas"),), UnknownFields.IGNORE
)
TABLE_SCHEMAS_FILE: Final = Document(TABLE_SCHEMAS, spaced=True)

LocalPart = tuple[str, Path, int, tuple[Column, ...]]
"""A table, a file of its rows, their count and their columns."""


class Journal:
    """What was read of one source.

    Args:
        inbox: the region's inbox.
        source: the source's name.
    """

    def __init__(self, objects: Objects, inbox: str, source: str) -> None:
        self._objects, self._folder = objects, f"{inbox}/_cdc/sources/{source}"
        self._segments_folder = f"{inbox}/_cdc/drops/{source}"

    def latest_capture_id(self) -> int:
        """Return the newest capture id; 0: there is none."""
        ids = [name for name in self._objects.folders(self._folder) if _CAPTURE_ID.fullmatch(name)]
        return max(map(int, ids), default=0)

    def read_spec(self, capture_id: int) -> CaptureSpec | None:
        """Return a capture's tables; None: it hasn't begun.

        Raises:
            BadDrop: its file was changed.
        """
        uri = f"{self._folder}/{capture_id:06}/begin.json"
        try:
            return CaptureSpec(
                capture_id, parse_file(SPEC_FILE, "beginning of a capture", self._objects.read(uri), uri).tables
            )
        except ObjectMissing:
            return None

    def latest_capture(self) -> tuple[int, CaptureSpec | None, Segment | None]:
        """Return the newest capture id, 0 for none; its tables, None: it hasn't begun; and its last segment."""
        capture_id = self.latest_capture_id()
        spec = self.read_spec(capture_id) if capture_id else None
        return capture_id, spec, self.last_segment(capture_id) if spec is not None else None

    def request_capture(self, capture_id: int) -> None:
        """Request that the source's reader begins a capture."""
        create(self._objects, f"{self._folder}/{capture_id:06}/asked.json", CAPTURE_REQUEST_FILE.dumps({}))

    def request_resync(self, capture_id: int, table: str) -> int:
        """Request that one table is read again; return the request's number."""
        number = max(self._request_numbers(capture_id), default=0)
        while True:
            number += 1
            if create(
                self._objects, self._request_uri(capture_id, number), RESYNC_REQUEST_FILE.dumps(ResyncRequest(table))
            ):
                return number

    def resync_requests(self, capture_id: int, after: int) -> list[tuple[int, str]]:
        """Return the numbers and tables of the resync requests after a number.

        Raises:
            BadDrop: a file was changed.
        """
        requests = []
        for number in sorted(candidate for candidate in self._request_numbers(capture_id) if candidate > after):
            uri = self._request_uri(capture_id, number)
            requests.append(
                (number, parse_file(RESYNC_REQUEST_FILE, "request for a table", self._objects.read(uri), uri).table)
            )
        return requests

    def _request_numbers(self, capture_id: int) -> list[int]:
        names = (uri.rpartition("/")[2] for uri, _, _ in self._objects.list(f"{self._folder}/{capture_id:06}"))
        return [int(match[1]) for match in map(_REQUEST_NAME.fullmatch, names) if match]

    def _request_uri(self, capture_id: int, number: int) -> str:
        return f"{self._folder}/{capture_id:06}/again-{number:06}.json"

    def create_spec(self, spec: CaptureSpec) -> bool:
        """Write a capture's tables; return whether it hadn't begun before."""
        return create(
            self._objects, f"{self._folder}/{spec.id:06}/begin.json", SPEC_FILE.dumps(SpecRecord(spec.tables))
        )

    def segments(self, capture_id: int, after: int = 0) -> list[Segment]:
        """Return a capture's segments after a number, in order.

        Raises:
            BadDrop: one is malformed, or one is missing.
        """
        numbers = list(self._numbers_descending(capture_id, after))[::-1]
        if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise BadDrop("a segment is missing between others", file=f"{self._segments_folder}/{capture_id:06}")
        bodies = dict(self._objects.read_many([self._segment_uri(capture_id, number) for number in numbers]))
        return [
            self._parse_segment(capture_id, number, bodies[self._segment_uri(capture_id, number)]) for number in numbers
        ]

    def segment(self, capture_id: int, number: int) -> Segment | None:
        """Return one segment of a capture; None: it doesn't exist."""
        try:
            return self._parse_segment(capture_id, number, self._objects.read(self._segment_uri(capture_id, number)))
        except ObjectMissing:
            return None

    def last_segment(self, capture_id: int) -> Segment | None:
        """Return a capture's last segment."""
        number = next(self._numbers_descending(capture_id), None)
        if number is None:
            return None
        uri = self._segment_uri(capture_id, number)
        return self._parse_segment(capture_id, number, self._objects.read(uri))

    def earlier_columns(self, capture_id: int) -> dict[str, tuple[str, ...]]:
        """Return the columns that tables had in earlier captures, by `schema.table`.

        A column that the source drops stays on `main`, whichever capture its rows come from.
        """
        for earlier_id in range(capture_id - 1, 0, -1):
            with suppress(BadDrop):  # a new capture is the remedy for a malformed journal
                if (last_segment := self.last_segment(earlier_id)) is not None:
                    names = {
                        name: tuple(column.name for column in columns) for name, columns in last_segment.columns.items()
                    }
                    tables = names.keys() | last_segment.dropped_columns.keys()
                    return {
                        name: tuple(sorted({*names.get(name, ()), *last_segment.dropped_columns.get(name, ())}))
                        for name in tables
                    }
        return {}

    def last_read_at(self, capture_id: int) -> datetime | None:
        """Return when a capture's last segment was committed, or else the capture begun or requested; None: it wasn't.

        A reader commits a segment each minute, though nothing changes.
        """
        numbered = self._list_segments(capture_id)
        latest = next(numbered, None) if self._is_listed_in_order() else max(numbered, default=None)
        if latest is not None:
            return latest[1]
        return max(
            (modified_at for _, _, modified_at in self._objects.list(f"{self._folder}/{capture_id:06}")), default=None
        )

    def write_parts(self, capture_id: int, number: int, files: Sequence[LocalPart]) -> dict[str, tuple[Part, ...]]:
        """Write the rows of a segment, before the segment itself.

        Args:
            number: the segment's.
            files: table, file, rows and columns of each part.
        """
        parts: dict[str, tuple[Part, ...]] = {}
        for table, path, rows, columns in files:
            uri = f"{self._segment_uri(capture_id, number).removesuffix('.json')}-{uuid.uuid4().hex}.parquet"
            write_file(self._objects, uri, path)
            parts[table] = (*parts.get(table, ()), Part(uri, rows, path.stat().st_size, columns))
        return parts

    def write_schemas(self, capture_id: int, schemas: Mapping[str, Any]) -> str:
        """Write the tables' schemas; return their URI."""
        uri = f"{self._folder}/{capture_id:06}/layouts-{uuid.uuid4().hex}.json"
        create(self._objects, uri, TABLE_SCHEMAS_FILE.dumps(TableSchemas(schemas)))
        return uri

    def read_schemas(self, segment: Segment) -> dict[str, Any]:
        """Return the tables' schemas at a segment's end.

        Raises:
            BadDrop: the file was changed.
            ObjectMissing: it is gone.
        """
        if not segment.layouts:
            return {}
        text = self._objects.read(segment.layouts)
        return dict(parse_file(TABLE_SCHEMAS_FILE, "file of tables' schemas", text, segment.layouts).schemas)

    def commit_segment(self, segment: Segment) -> bool:
        """Commit a segment; return whether no other one has its number."""
        return create(self._objects, self._segment_uri(segment.capture_id, segment.number), SEGMENT_FILE.dumps(segment))

    def _numbers_descending(self, capture_id: int, after: int = 0) -> Iterator[int]:
        numbers = (number for number, _ in self._list_segments(capture_id))
        for number in numbers if self._is_listed_in_order() else sorted(numbers, reverse=True):
            if number <= after:
                return
            yield number

    def _list_segments(self, capture_id: int) -> Iterator[tuple[int, datetime]]:
        """Yield a capture's segments and their times, as the store lists them."""
        for uri, _, modified_at in self._objects.list(f"{self._segments_folder}/{capture_id:06}"):
            if match := _SEGMENT_NAME.fullmatch(uri.rpartition("/")[2]):
                yield _MAX_NUMBER - int(match[1]), modified_at

    def _is_listed_in_order(self) -> bool:
        """Return whether the store lists by key, as folders on disk and directory buckets of S3 don't."""
        location = self._objects.mapping.locate(f"{self._folder}/x").location
        return not location.store_type.is_folder and not location.prefix.split("/")[2].endswith("--x-s3")

    def _parse_segment(self, capture_id: int, number: int, body: bytes | SternaError) -> Segment:
        if isinstance(body, SternaError):
            raise body
        uri = self._segment_uri(capture_id, number)
        segment = parse_file(SEGMENT_FILE, "segment of a source", body, uri)
        if (segment.capture_id, segment.number) != (capture_id, number):
            raise BadDrop("this is another segment of a source", file=uri)
        return segment

    def _segment_uri(self, capture_id: int, number: int) -> str:
        return f"{self._segments_folder}/{capture_id:06}/{_MAX_NUMBER - number:012}.json"
