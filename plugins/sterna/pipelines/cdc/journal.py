"""The journal: what was read of a source, in the region's inbox, before the source may forget it.

<inbox>/_cdc/sources/<source>/<epoch>/begin.json          the tables of an epoch, which begins with all of their rows
<inbox>/_cdc/sources/<source>/<epoch>/asked.json          that it is to be begun
<inbox>/_cdc/sources/<source>/<epoch>/again-<n>.json      that one table is to be read again
<inbox>/_cdc/sources/<source>/<epoch>/layouts-<id>.json   what tables are like, where the source doesn't tell
<inbox>/_cdc/drops/<source>/<epoch>/<down>.json           a drop: whole transactions, and where the next one begins
<inbox>/_cdc/drops/<source>/<epoch>/<down>-<id>.parquet   rows of one table in it

Drops may be deleted when they are old, by a rule of the store's; what stands below `sources` may not.

<down> is what a drop's number lacks to 10^12: so the newest is listed first, however many there are.

A drop is made by its own file, created only if absent, after its rows: of two readers one makes it. An epoch is one
reading of the source from its rows on; `resync` begins the next.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sterna.codec import (
    FLAG,
    INTEGER,
    RAW_JSON,
    TEXT,
    Document,
    Field,
    MalformedRecord,
    Record,
    UnknownFields,
    mapping_of,
    nullable,
    tuple_of,
)
from sterna.errors import BadDrop, NeedsResync, ObjectMissing, SternaError, UnfitSource
from sterna.pipelines.ingest.columns import Column
from sterna.storage.objects import Objects
from sterna.storage.write import create, write_file

T = TypeVar("T")
_SEGMENT_NAME = re.compile(r"([0-9]{12})\.json")
_REQUEST_NAME = re.compile(r"again-([0-9]{6})\.json")
_CAPTURE_ID = re.compile(r"[0-9]{6}")
_MAX_NUMBER = 10**12


@dataclass(frozen=True)
class Part:
    """Rows of one table, of one schema.

    Args:
        uri: the Parquet file.
        rows: how many.
        bytes: its size.
        columns: the source's.
    """

    uri: str
    rows: int
    bytes: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class StoppedTable:
    """Why a table isn't read any more, until the source is read again.

    Args:
        error: the name of the error's class.
        message: what it says.
        last: the last drop with all of the table's rows up to there; 0: its first rows were never complete.
    """

    error: str
    message: str
    last: int = 0

    @classmethod
    def from_error(cls, error: SternaError, last: int) -> StoppedTable:
        """Return what is kept of an error.

        Args:
            error: of the table.
            last: the last drop with all of the table's rows; 0: there is none.
        """
        return cls(type(error).__name__, error.message, last)

    def to_error(self, table: str, source: str, *, alone: bool = False) -> NeedsResync | UnfitSource:
        """Return the error again.

        Args:
            table: its `schema.table`.
            source: the source's name.
            alone: the table can be read again alone.
        """
        kind = UnfitSource if self.error == UnfitSource.__name__ else NeedsResync
        option = f" --table {table}" if alone else ""
        hint = f"other tables go on; mend this one, then sterna cdc resync {source}{option}"
        return kind(self.message, table=table, hint=hint)


@dataclass(frozen=True)
class TableResync:
    """Where all rows of one table stand, which was read again while the others went on.

    Args:
        first: the first drop that has some of them.
        last: the drop with which they are complete.
        key: the columns of the table's key since then.
        snapshot: which transactions those rows have already, as the server writes that.
        end_lsn: the place in the log behind which there is none of these.
    """

    first: int
    last: int
    key: tuple[str, ...]
    snapshot: str
    end_lsn: int


@dataclass(frozen=True)
class Segment:
    """Whole transactions, or some of the rows that an epoch begins with.

    Args:
        capture_id: which.
        number: from 1.
        partition: as the engine calls the source.
        offset: where the engine goes on behind it; None: it can't, the epoch's first rows aren't complete.
        tables: by `schema.table`, what it has, in the order in which it happened.
        complete: the rows that the epoch begins with are complete with this drop.
        committed_micros: when the source committed the last of it, microseconds since 1970; 0: unknown.
        columns: by `schema.table`, the columns that each table had last.
        dropped_columns: by `schema.table`, columns that it had before, and whose values are on `main` still.
        origin: which log the offset is in, where its name alone doesn't tell.
        layouts: where it stands what tables are like there; "": the source tells.
        identities: by `schema.table`, by what its rows were known when the drop was made, as the source's kind has it.
        stopped: by `schema.table`, why neither this drop nor a later one of the epoch has rows of it.
        resyncs: by `schema.table`, where the rows of tables stand that were read again.
        handled_requests: how many of those that were asked for are done, or can't be.
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
    """One reading of a source, from all rows on.

    Args:
        id: from 1.
        tables: by `schema.table`, the columns of its key.
    """

    id: int
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_keys_at(self, segment: Segment | None) -> CaptureSpec:
        """Return it with the keys that tables have at a drop."""
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
# One that doesn't know of stopped tables would go on with them, and lack what came between; and rows that a table has
# no more would stay where one takes its rows that were read again for changes.
SEGMENT_FILE: Final = Document(
    SEGMENT, spaced=True, needs_next_version=lambda segment: bool(segment.stopped or segment.resyncs)
)


@dataclass(frozen=True)
class SpecRecord:
    """What the file of an epoch that was begun says.

    Args:
        tables: by `schema.table`, the columns of its key.
    """

    tables: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class TableSchemas:
    """What tables are like, where the source doesn't tell.

    Args:
        schemas: by `database.table`, as the engine describes it; by "", statements that come before all others.
    """

    schemas: Mapping[str, Any]


SPEC: Final = Record(SpecRecord, (Field("tables", mapping_of(tuple_of(TEXT))),), UnknownFields.IGNORE)
SPEC_FILE: Final = Document(SPEC, spaced=True)
CAPTURE_REQUEST: Final = Record(dict[str, Any], (), UnknownFields.IGNORE)
CAPTURE_REQUEST_FILE: Final = Document(CAPTURE_REQUEST, spaced=True)
"""That it is there says everything: nobody reads it."""


@dataclass(frozen=True)
class ResyncRequest:
    """What the file says by which one table is asked for again.

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
"""Of a table, a file with rows, how many, and their columns."""


class Journal:
    """What was read of a source.

    Args:
        objects: the stores.
        inbox: the region's inbox.
        source: the source's name.
    """

    def __init__(self, objects: Objects, inbox: str, source: str) -> None:
        self._objects, self._folder = objects, f"{inbox}/_cdc/sources/{source}"
        self._segments_folder = f"{inbox}/_cdc/drops/{source}"

    def latest_capture_id(self) -> int:
        """Return the number of the newest epoch; 0: there is none."""
        ids = [name for name in self._objects.folders(self._folder) if _CAPTURE_ID.fullmatch(name)]
        return max(map(int, ids), default=0)

    def read_spec(self, capture_id: int) -> CaptureSpec | None:
        """Return an epoch; None: nobody has begun to read it.

        Raises:
            BadDrop: its file was changed.
        """
        uri = f"{self._folder}/{capture_id:06}/begin.json"
        try:
            return CaptureSpec(
                capture_id, _parse(SPEC_FILE, "beginning of an epoch", uri, self._objects.read(uri)).tables
            )
        except ObjectMissing:
            return None

    def request_capture(self, capture_id: int) -> None:
        """Ask for an epoch to be begun by whoever reads the source."""
        create(self._objects, f"{self._folder}/{capture_id:06}/asked.json", CAPTURE_REQUEST_FILE.dumps({}))

    def request_resync(self, capture_id: int, table: str) -> int:
        """Ask for one table of an epoch to be read again; return the number of that among all that were asked for."""
        number = max(self._request_numbers(capture_id), default=0)
        while True:
            number += 1
            if create(
                self._objects, self._request_uri(capture_id, number), RESYNC_REQUEST_FILE.dumps(ResyncRequest(table))
            ):
                return number

    def resync_requests(self, capture_id: int, after: int) -> list[tuple[int, str]]:
        """Return the tables that are asked for again, each with its number.

        Args:
            capture_id: which.
            after: behind this number.

        Raises:
            BadDrop: a file was changed.
        """
        requests = []
        for number in sorted(candidate for candidate in self._request_numbers(capture_id) if candidate > after):
            uri = self._request_uri(capture_id, number)
            requests.append(
                (number, _parse(RESYNC_REQUEST_FILE, "file that asks for a table", uri, self._objects.read(uri)).table)
            )
        return requests

    def _request_numbers(self, capture_id: int) -> list[int]:
        names = (uri.rpartition("/")[2] for uri, _, _ in self._objects.list(f"{self._folder}/{capture_id:06}"))
        return [int(match[1]) for match in map(_REQUEST_NAME.fullmatch, names) if match]

    def _request_uri(self, capture_id: int, number: int) -> str:
        return f"{self._folder}/{capture_id:06}/again-{number:06}.json"

    def create_spec(self, spec: CaptureSpec) -> bool:
        """Write down what an epoch has; say whether nobody did before."""
        return create(
            self._objects, f"{self._folder}/{spec.id:06}/begin.json", SPEC_FILE.dumps(SpecRecord(spec.tables))
        )

    def segments(self, capture_id: int, after: int = 0) -> list[Segment]:
        """Return an epoch's drops in their order.

        Args:
            capture_id: which.
            after: behind this number.

        Raises:
            BadDrop: one was changed, or one is missing.
        """
        numbers = list(self._numbers_descending(capture_id, after))[::-1]
        if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise BadDrop("a drop is missing between others", file=f"{self._segments_folder}/{capture_id:06}")
        bodies = dict(self._objects.read_many([self._segment_uri(capture_id, number) for number in numbers]))
        return [
            self._parse_segment(capture_id, number, bodies[self._segment_uri(capture_id, number)]) for number in numbers
        ]

    def segment(self, capture_id: int, number: int) -> Segment | None:
        """Return one drop of an epoch; None: it isn't there."""
        try:
            return self._parse_segment(capture_id, number, self._objects.read(self._segment_uri(capture_id, number)))
        except ObjectMissing:
            return None

    def last_segment(self, capture_id: int) -> Segment | None:
        """Return an epoch's last drop."""
        number = next(self._numbers_descending(capture_id), None)
        if number is None:
            return None
        uri = self._segment_uri(capture_id, number)
        return self._parse_segment(capture_id, number, self._objects.read(uri))

    def earlier_columns(self, capture_id: int) -> dict[str, tuple[str, ...]]:
        """Return the columns that tables had in the epochs before one, by `schema.table`.

        One that the source drops stays on `main`, whichever epoch its rows come from.
        """
        for earlier_id in range(capture_id - 1, 0, -1):
            with suppress(BadDrop):  # a new epoch is what mends a journal that was changed
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
        """Return when an epoch's last drop was made, or the epoch begun or asked for; None: it wasn't.

        Whoever reads a source makes a drop each minute, though nothing changes.
        """
        numbered = self._list_segments(capture_id)
        latest = next(numbered, None) if self._is_listed_in_order() else max(numbered, default=None)
        if latest is not None:
            return latest[1]
        return max(
            (modified_at for _, _, modified_at in self._objects.list(f"{self._folder}/{capture_id:06}")), default=None
        )

    def write_parts(self, capture_id: int, number: int, files: Sequence[LocalPart]) -> dict[str, tuple[Part, ...]]:
        """Write the rows of a drop, before the drop itself.

        Args:
            capture_id: which.
            number: the drop's.
            files: table, file, rows and columns of each part.
        """
        parts: dict[str, tuple[Part, ...]] = {}
        for table, path, rows, columns in files:
            uri = f"{self._segment_uri(capture_id, number).removesuffix('.json')}-{uuid.uuid4().hex}.parquet"
            write_file(self._objects, uri, path)
            parts[table] = (*parts.get(table, ()), Part(uri, rows, path.stat().st_size, columns))
        return parts

    def write_schemas(self, capture_id: int, schemas: Mapping[str, Any]) -> str:
        """Write down what tables are like; return where it stands."""
        uri = f"{self._folder}/{capture_id:06}/layouts-{uuid.uuid4().hex}.json"
        create(self._objects, uri, TABLE_SCHEMAS_FILE.dumps(TableSchemas(schemas)))
        return uri

    def read_schemas(self, segment: Segment) -> dict[str, Any]:
        """Return what tables were like at a drop's end.

        Raises:
            BadDrop: the file was changed.
            ObjectMissing: it is gone.
        """
        if not segment.layouts:
            return {}
        record = _parse(
            TABLE_SCHEMAS_FILE, "file of tables' layouts", segment.layouts, self._objects.read(segment.layouts)
        )
        return dict(record.schemas)

    def commit_segment(self, segment: Segment) -> bool:
        """Make a drop; say whether nobody else has made another one of its number."""
        return create(self._objects, self._segment_uri(segment.capture_id, segment.number), SEGMENT_FILE.dumps(segment))

    def _numbers_descending(self, capture_id: int, after: int = 0) -> Iterator[int]:
        numbers = (number for number, _ in self._list_segments(capture_id))
        for number in numbers if self._is_listed_in_order() else sorted(numbers, reverse=True):
            if number <= after:
                return
            yield number

    def _list_segments(self, capture_id: int) -> Iterator[tuple[int, datetime]]:
        """Yield an epoch's drops and when each was made, as the store lists them."""
        for uri, _, modified_at in self._objects.list(f"{self._segments_folder}/{capture_id:06}"):
            if match := _SEGMENT_NAME.fullmatch(uri.rpartition("/")[2]):
                yield _MAX_NUMBER - int(match[1]), modified_at

    def _is_listed_in_order(self) -> bool:
        """Say whether the store lists by key, as folders on disk and directory buckets of S3 don't."""
        location = self._objects.mapping.locate(f"{self._folder}/x").location
        return location.remote.type != "local" and not location.prefix.split("/")[2].endswith("--x-s3")

    def _parse_segment(self, capture_id: int, number: int, body: bytes | SternaError) -> Segment:
        if isinstance(body, SternaError):
            raise body
        uri = self._segment_uri(capture_id, number)
        segment = _parse(SEGMENT_FILE, "drop of a source", uri, body)
        if (segment.capture_id, segment.number) != (capture_id, number):
            raise BadDrop("this is another drop of a source", file=uri)
        return segment

    def _segment_uri(self, capture_id: int, number: int) -> str:
        return f"{self._segments_folder}/{capture_id:06}/{_MAX_NUMBER - number:012}.json"


def _parse(file: Document[T], description: str, uri: str, body: bytes) -> T:
    try:
        return file.loads(body)
    except MalformedRecord as error:
        raise BadDrop(f"this is no {description}: {error}", file=uri) from None
