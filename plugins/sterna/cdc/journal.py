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

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.writing import create, write_file
from sterna.errors import BadDrop, NeedsResync, ObjectMissing, SternaError, UnfitSource
from sterna.ingest.columns import Column
from sterna.json_record import (
    FLAG,
    FOREIGN,
    INTEGER,
    TEXT,
    Document,
    Field,
    MalformedRecord,
    Record,
    Unknown,
    by_name,
    many,
    nullable,
)

T = TypeVar("T")
_NUMBER = re.compile(r"([0-9]{12})\.json")
_AGAIN = re.compile(r"again-([0-9]{6})\.json")
_EPOCH = re.compile(r"[0-9]{6}")
_TOP = 10**12


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
class Stop:
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
    def of(cls, error: SternaError, last: int) -> Stop:
        """Return what is kept of an error.

        Args:
            error: of the table.
            last: the last drop with all of the table's rows; 0: there is none.
        """
        return cls(type(error).__name__, error.message, last)

    def as_error(self, table: str, source: str, *, alone: bool = False) -> NeedsResync | UnfitSource:
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
class Again:
    """Where all rows of one table stand, which was read again while the others went on.

    Args:
        first: the first drop that has some of them.
        last: the drop with which they are complete.
        key: the columns of the table's key since then.
        snapshot: which transactions those rows have already, as the server writes that.
        reached: the place in the log behind which there is none of these.
    """

    first: int
    last: int
    key: tuple[str, ...]
    snapshot: str
    reached: int


@dataclass(frozen=True)
class Drop:
    """Whole transactions, or some of the rows that an epoch begins with.

    Args:
        epoch: which.
        number: from 1.
        partition: as the engine calls the source.
        offset: where the engine goes on behind it; None: it can't, the epoch's first rows aren't complete.
        tables: by `schema.table`, what it has, in the order in which it happened.
        complete: the rows that the epoch begins with are complete with this drop.
        committed: when the source committed the last of it, microseconds since 1970; 0: unknown.
        known: by `schema.table`, the columns that each table had last.
        gone: by `schema.table`, columns that it had before, and whose values are on `main` still.
        origin: which log the offset is in, where its name alone doesn't tell.
        layouts: where it stands what tables are like there; "": the source tells.
        identities: by `schema.table`, by what its rows were known when the drop was made, as the source's kind has it.
        stopped: by `schema.table`, why neither this drop nor a later one of the epoch has rows of it.
        again: by `schema.table`, where the rows of tables stand that were read again.
        asked: how many of those that were asked for are done, or can't be.
    """

    epoch: int
    number: int
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    complete: bool = False
    committed: int = 0
    known: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    layouts: str = ""
    identities: Mapping[str, Any] = field(default_factory=dict)
    stopped: Mapping[str, Stop] = field(default_factory=dict)
    again: Mapping[str, Again] = field(default_factory=dict)
    asked: int = 0


@dataclass(frozen=True)
class Epoch:
    """One reading of a source, from all rows on.

    Args:
        number: from 1.
        tables: by `schema.table`, the columns of its key.
    """

    number: int
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def at(self, drop: Drop | None) -> Epoch:
        """Return it with the keys that tables have at a drop."""
        keys = {name: each.key for name, each in drop.again.items()} if drop is not None else {}
        return replace(self, tables={**self.tables, **keys})


COLUMN: Final = Record(Column, (Field("name", TEXT), Field("type", FOREIGN), Field("required", FLAG)), Unknown.IGNORE)
PART: Final = Record(
    Part,
    (Field("uri", TEXT), Field("rows", INTEGER), Field("bytes", INTEGER), Field("columns", many(COLUMN.kind))),
    Unknown.IGNORE,
)
STOP: Final = Record(
    Stop,
    (Field("error", TEXT), Field("message", TEXT), Field("last", INTEGER, 0)),  # the last is newer than version 2
    Unknown.IGNORE,
)
AGAIN: Final = Record(
    Again,
    (
        Field("first", INTEGER),
        Field("last", INTEGER),
        Field("key", many(TEXT)),
        Field("snapshot", TEXT),
        Field("reached", INTEGER),
    ),
    Unknown.IGNORE,
)
DROP: Final = Record(
    Drop,
    (
        Field("epoch", INTEGER),
        Field("number", INTEGER),
        Field("partition", nullable(by_name(FOREIGN))),
        Field("offset", nullable(by_name(FOREIGN))),
        Field("tables", by_name(many(PART.kind))),
        Field("complete", FLAG),
        Field("committed", INTEGER),
        Field("known", by_name(many(COLUMN.kind))),
        Field("gone", by_name(many(TEXT))),
        Field("origin", by_name(FOREIGN)),
        Field("layouts", TEXT),
        Field("identities", by_name(FOREIGN), {}),  # newer than version 1
        Field("stopped", by_name(STOP.kind), {}),  # newer than version 1
        Field("again", by_name(AGAIN.kind), {}),  # newer than version 1
        Field("asked", INTEGER, 0),  # newer than version 1
    ),
    Unknown.IGNORE,
)
# One that doesn't know of stopped tables would go on with them, and lack what came between; and rows that a table has
# no more would stay where one takes its rows that were read again for changes.
DROP_FILE: Final = Document(DROP, spaced=True, later=lambda drop: bool(drop.stopped or drop.again))


@dataclass(frozen=True)
class Begun:
    """What the file of an epoch that was begun says.

    Args:
        tables: by `schema.table`, the columns of its key.
    """

    tables: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Layouts:
    """What tables are like, where the source doesn't tell.

    Args:
        layouts: by `database.table`, as the engine describes it; by "", statements that come before all others.
    """

    layouts: Mapping[str, Any]


BEGUN: Final = Record(Begun, (Field("tables", by_name(many(TEXT))),), Unknown.IGNORE)
BEGIN_FILE: Final = Document(BEGUN, spaced=True)
ASKED: Final = Record(dict[str, Any], (), Unknown.IGNORE)
ASKED_FILE: Final = Document(ASKED, spaced=True)
"""That it is there says everything: nobody reads it."""


@dataclass(frozen=True)
class Wanted:
    """What the file says by which one table is asked for again.

    Args:
        table: its `schema.table`.
    """

    table: str


WANTED: Final = Record(Wanted, (Field("table", TEXT),), Unknown.IGNORE)
WANTED_FILE: Final = Document(WANTED, spaced=True)
LAYOUTS: Final = Record(Layouts, (Field("layouts", by_name(FOREIGN)),), Unknown.IGNORE)
LAYOUTS_FILE: Final = Document(LAYOUTS, spaced=True)

File = tuple[str, Path, int, tuple[Column, ...]]
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
        self._drops = f"{inbox}/_cdc/drops/{source}"

    def newest(self) -> int:
        """Return the number of the newest epoch; 0: there is none."""
        found = [name for name in self._objects.folders(self._folder) if _EPOCH.fullmatch(name)]
        return max(map(int, found), default=0)

    def epoch(self, number: int) -> Epoch | None:
        """Return an epoch; None: nobody has begun to read it.

        Raises:
            BadDrop: its file was changed.
        """
        uri = f"{self._folder}/{number:06}/begin.json"
        try:
            return Epoch(number, _parsed(BEGIN_FILE, "beginning of an epoch", uri, self._objects.read(uri)).tables)
        except ObjectMissing:
            return None

    def ask(self, number: int) -> None:
        """Ask for an epoch to be begun by whoever reads the source."""
        create(self._objects, f"{self._folder}/{number:06}/asked.json", ASKED_FILE.dumps({}))

    def ask_again(self, epoch: int, table: str) -> int:
        """Ask for one table of an epoch to be read again; return the number of that among all that were asked for."""
        number = max(self._again(epoch), default=0)
        while True:
            number += 1
            if create(self._objects, self._again_uri(epoch, number), WANTED_FILE.dumps(Wanted(table))):
                return number

    def asked_again(self, epoch: int, after: int) -> list[tuple[int, str]]:
        """Return the tables that are asked for again, each with its number.

        Args:
            epoch: which.
            after: behind this number.

        Raises:
            BadDrop: a file was changed.
        """
        found = []
        for number in sorted(each for each in self._again(epoch) if each > after):
            uri = self._again_uri(epoch, number)
            found.append(
                (number, _parsed(WANTED_FILE, "file that asks for a table", uri, self._objects.read(uri)).table)
            )
        return found

    def _again(self, epoch: int) -> list[int]:
        names = (uri.rpartition("/")[2] for uri, _, _ in self._objects.list(f"{self._folder}/{epoch:06}"))
        return [int(found[1]) for found in map(_AGAIN.fullmatch, names) if found]

    def _again_uri(self, epoch: int, number: int) -> str:
        return f"{self._folder}/{epoch:06}/again-{number:06}.json"

    def begin(self, epoch: Epoch) -> bool:
        """Write down what an epoch has; say whether nobody did before."""
        return create(
            self._objects, f"{self._folder}/{epoch.number:06}/begin.json", BEGIN_FILE.dumps(Begun(epoch.tables))
        )

    def drops(self, epoch: int, after: int = 0) -> list[Drop]:
        """Return an epoch's drops in their order.

        Args:
            epoch: which.
            after: behind this number.

        Raises:
            BadDrop: one was changed, or one is missing.
        """
        numbers = list(self._newest_first(epoch, after))[::-1]
        if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise BadDrop("a drop is missing between others", file=f"{self._drops}/{epoch:06}")
        found = dict(self._objects.read_many([self._uri(epoch, number) for number in numbers]))
        return [self._drop(epoch, number, found[self._uri(epoch, number)]) for number in numbers]

    def drop(self, epoch: int, number: int) -> Drop | None:
        """Return one drop of an epoch; None: it isn't there."""
        try:
            return self._drop(epoch, number, self._objects.read(self._uri(epoch, number)))
        except ObjectMissing:
            return None

    def last(self, epoch: int) -> Drop | None:
        """Return an epoch's last drop."""
        number = next(self._newest_first(epoch), None)
        if number is None:
            return None
        uri = self._uri(epoch, number)
        return self._drop(epoch, number, self._objects.read(uri))

    def had_before(self, epoch: int) -> dict[str, tuple[str, ...]]:
        """Return the columns that tables had in the epochs before one, by `schema.table`.

        One that the source drops stays on `main`, whichever epoch its rows come from.
        """
        for number in range(epoch - 1, 0, -1):
            with suppress(BadDrop):  # a new epoch is what mends a journal that was changed
                if (last := self.last(number)) is not None:
                    known = {name: tuple(each.name for each in columns) for name, columns in last.known.items()}
                    both = known.keys() | last.gone.keys()
                    return {name: tuple(sorted({*known.get(name, ()), *last.gone.get(name, ())})) for name in both}
        return {}

    def read_at(self, epoch: int) -> datetime | None:
        """Return when an epoch's last drop was made, or the epoch begun or asked for; None: it wasn't.

        Whoever reads a source makes a drop each minute, though nothing changes.
        """
        listed = self._listed(epoch)
        newest = next(listed, None) if self._is_listed_in_order() else max(listed, default=None)
        if newest is not None:
            return newest[1]
        return max((when for _, _, when in self._objects.list(f"{self._folder}/{epoch:06}")), default=None)

    def write(self, epoch: int, number: int, files: Sequence[File]) -> dict[str, tuple[Part, ...]]:
        """Write the rows of a drop, before the drop itself.

        Args:
            epoch: which.
            number: the drop's.
            files: table, file, rows and columns of each part.
        """
        made: dict[str, tuple[Part, ...]] = {}
        for table, path, rows, columns in files:
            uri = f"{self._uri(epoch, number).removesuffix('.json')}-{uuid.uuid4().hex}.parquet"
            write_file(self._objects, uri, path)
            made[table] = (*made.get(table, ()), Part(uri, rows, path.stat().st_size, columns))
        return made

    def write_layouts(self, epoch: int, layouts: Mapping[str, Any]) -> str:
        """Write down what tables are like; return where it stands."""
        uri = f"{self._folder}/{epoch:06}/layouts-{uuid.uuid4().hex}.json"
        create(self._objects, uri, LAYOUTS_FILE.dumps(Layouts(layouts)))
        return uri

    def layouts(self, drop: Drop) -> dict[str, Any]:
        """Return what tables were like at a drop's end.

        Raises:
            BadDrop: the file was changed.
            ObjectMissing: it is gone.
        """
        if not drop.layouts:
            return {}
        found = _parsed(LAYOUTS_FILE, "file of tables' layouts", drop.layouts, self._objects.read(drop.layouts))
        return dict(found.layouts)

    def add(self, drop: Drop) -> bool:
        """Make a drop; say whether nobody else has made another one of its number."""
        return create(self._objects, self._uri(drop.epoch, drop.number), DROP_FILE.dumps(drop))

    def _newest_first(self, epoch: int, after: int = 0) -> Iterator[int]:
        listed = (number for number, _ in self._listed(epoch))
        for number in listed if self._is_listed_in_order() else sorted(listed, reverse=True):
            if number <= after:
                return
            yield number

    def _listed(self, epoch: int) -> Iterator[tuple[int, datetime]]:
        """Yield an epoch's drops and when each was made, as the store lists them."""
        for uri, _, when in self._objects.list(f"{self._drops}/{epoch:06}"):
            if found := _NUMBER.fullmatch(uri.rpartition("/")[2]):
                yield _TOP - int(found[1]), when

    def _is_listed_in_order(self) -> bool:
        """Say whether the store lists by key, as folders on disk and directory buckets of S3 don't."""
        location = self._objects.mapping.locate(f"{self._folder}/x").location
        return location.remote.type != "local" and not location.prefix.split("/")[2].endswith("--x-s3")

    def _drop(self, epoch: int, number: int, said: bytes | SternaError) -> Drop:
        if isinstance(said, SternaError):
            raise said
        uri = self._uri(epoch, number)
        found = _parsed(DROP_FILE, "drop of a source", uri, said)
        if (found.epoch, found.number) != (epoch, number):
            raise BadDrop("this is another drop of a source", file=uri)
        return found

    def _uri(self, epoch: int, number: int) -> str:
        return f"{self._drops}/{epoch:06}/{_TOP - number:012}.json"


def _parsed(file: Document[T], what: str, uri: str, said: bytes) -> T:
    try:
        return file.loads(said)
    except MalformedRecord as error:
        raise BadDrop(f"this is no {what}: {error}", file=uri) from None
