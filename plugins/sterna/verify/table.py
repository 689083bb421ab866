"""The structure of one table of a replica: every path that it reaches is in this region, exists, and has its size.

URIs are judged by the registry's prefixes, and position deletes are read row by row. What this shares with localizing
says `sterna.verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_VIEW, Content
from sterna.edges.disk.rows import Rows
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.replica.region import RegionContext
from sterna.verify.avro import read_list, read_manifest
from sterna.verify.deletes import Entry, check_delete_file
from sterna.verify.findings import DISAGREES, MISSING, UNREADABLE, Findings
from sterna.verify.json_file import read_json
from sterna.verify.manifests import (
    DELETED,
    POSITION_DELETES,
    Named,
    check_length,
    check_list,
    check_manifest,
    foreign_bounds,
    named_by,
    paths,
)
from sterna.verify.metadata import TableFile, check_table, check_view, parse_table
from sterna.verify.origins import stands_for
from sterna.verify.places import Places
from sterna.verify.sizes import Claims

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 32  # files that are read at once; about as many wait in memory
_MEMORY = 256 << 20  # bytes that those may take
_USUAL = 4 << 20  # bytes of a manifest or list whose size nobody tells


@dataclass
class TableReach:
    """The files that one table or view of a replica reaches.

    Args:
        name: key name.
        metadata: URI of its metadata.json.
        lists, manifests: URIs of its manifest lists and manifests.
        deletes: URI and format of each position delete file and Puffin file with deletion vectors, sorted.
        content: URIs of all other files that manifests and statistics name, sorted.

    The last two are read once, from local disk where they are many.
    """

    name: str
    metadata: str
    lists: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)
    deletes: Iterable[tuple[str, str]] = ()
    content: Iterable[str] = ()


def check_structure(
    context: RegionContext,
    places: Places,
    content: Content,
    origin: Content | None,
    found: Findings,
) -> TableReach:
    """Check the structure of one table or view.

    Args:
        context: the region.
        places: its judgement of URIs.
        content: what the replica branch holds.
        origin: what `main` held when that was made, None where nobody can tell any more.
        found: takes the faults, and counts.

    Returns:
        The files that it reaches.
    """
    uri = content.metadata_location or ""
    if origin is not None and not stands_for(content, origin, places):
        found.add(DISAGREES, uri, f"does not stand for what main had under this key: {origin.metadata_location}")
    check = _Check(context, places, found, TableReach(found.table, uri))
    check.run(content)
    return check.reached


def check_source(context: RegionContext, places: Places, content: Content, found: Findings) -> None:
    """Check what a table's own metadata on `main` says of itself; files of data are not asked for.

    Args:
        context: the region.
        places: its judgement of URIs, to which all of `main` is at home.
        content: what `main` holds.
        found: takes the faults.

    Raises:
        StoreUnreachable, StoreDenied: the source's store can't be used.
    """
    _Check(context, places, found, TableReach(found.table, content.metadata_location or ""), sizes=False).run(content)


@dataclass
class _Check:
    """The check of one table."""

    context: RegionContext
    places: Places
    found: Findings
    reached: TableReach
    sizes: bool = True
    claims: Claims = field(default_factory=Claims)
    deletes: Rows = field(default_factory=lambda: Rows("file_path"))

    def run(self, content: Content) -> None:
        uri = self.reached.metadata
        data = next((data for _, data in self.read(self.local([uri], uri), _USUAL, lambda _: self.reached.name)), None)
        if data is None:
            return
        try:
            document = read_json(data, uri, self.places.limits)
            if content.kind == ICEBERG_VIEW:
                check_view(document, uri, self.places, self.found)
                return
            table = parse_table(document, uri)
            check_table(document, table, uri, self.places, self.found)
        except TableError as error:
            self.found.add(UNREADABLE, uri, error.message)
            return
        except (TypeError, AttributeError, KeyError) as error:
            self.found.add(UNREADABLE, uri, f"not a table's metadata: {type(error).__name__} {error}")
            return
        self.manifests(self.lists(table), table)
        self.statistics(table)
        if self.sizes:
            self.claims.check(self.context.objects, self.found)
        for rows in self.deletes.sorted():
            self.delete_files(rows)
        # Not methods: they would hold this check, which holds what they are put into, and all rows with it.
        self.reached.deletes = _formats(self.deletes)
        self.reached.content = _without(self.claims.uris(), (path for path, _ in _formats(self.deletes)))

    def lists(self, table: TableFile) -> dict[str, dict[Named, str]]:
        """Read the manifest lists; return what they say of each manifest, by its URI."""
        uri = self.reached.metadata
        versions = {version.manifest_list: version for version in table.snapshots if version.manifest_list}
        inline = [path for version in table.snapshots for path in version.manifests]
        named: dict[str, dict[Named, str]] = {path: {Named(path): uri} for path in self.local(inline, uri)}
        self.reached.lists = self.local(versions, uri)
        for path, data in self.read(self.reached.lists, _USUAL, lambda _: uri):
            try:
                header, table_of_rows = read_list(data, path, self.places.limits)
            except TableError as error:
                self.found.add(UNREADABLE, path, error.message)
                continue
            rows = list(named_by(table_of_rows))
            check_list(header, rows, path, versions[path].id, versions[path].sequence_number, self.found)
            named |= {new: {} for new in self.local((row.path for row in rows if row.path not in named), path)}
            for row in rows:
                if row.path in named:
                    named[row.path].setdefault(row, path)
        return named

    def manifests(self, named: dict[str, dict[Named, str]], table: TableFile) -> None:
        """Read the manifests, and collect what they list."""
        self.reached.manifests = list(named)
        largest = max((row.length or _USUAL for rows in named.values() for row in rows), default=0)
        for uri, data in self.read(list(named), largest, lambda uri: next(iter(named[uri].values()))):
            check_length(uri, len(data), named[uri], self.found)
            try:
                header, entries = read_manifest(data, uri, self.places.limits)
            except TableError as error:
                self.found.add(UNREADABLE, uri, error.message)
                continue
            check_manifest(uri, header, entries, named[uri], self.found)
            unknown = {row.spec for row in named[uri]} - {None, *table.specs}
            if table.specs and unknown:
                self.found.add(
                    DISAGREES, uri, f"partition spec {sorted(map(str, unknown))[0]} is not among the table's"
                )
            self.collect(uri, entries)

    def collect(self, uri: str, entries: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_deleted = pc.equal(entries.column("status"), DELETED)
        live, deleted = entries.filter(pc.invert(is_deleted)), entries.filter(is_deleted)
        foreign = {path for column in paths(live) for path in self.places.foreign(column)}
        # Nobody opens these: a name that is in no location stays as it is on `main`.
        left = {path for column in paths(deleted) for path in self.places.foreign(column)}
        left = {path for path in (*left, *foreign_bounds(deleted, self.places)) if self.places.is_foreign(path)}
        strange = {*foreign, *foreign_bounds(live, self.places), *left}
        self.found.add_foreign(uri, sorted(strange), self.places.region)
        if foreign:
            live = live.filter(pc.invert(pc.is_in(live.column("file_path"), pa.array(sorted(foreign)))))
        self.claims.add(uri, live.column("file_path"), live.column("file_size_in_bytes"))
        deletes = live.filter(pc.equal(live.column("content").fill_null(0), POSITION_DELETES))
        if deletes.num_rows:
            self.deletes.add(deletes.drop_columns(["status", "snapshot_id", "sequence_number", "content"]))

    def statistics(self, table: TableFile) -> None:
        import pyarrow as pa

        local = set(self.local((path for path, _ in table.statistics), self.reached.metadata))
        files = [(path, size) for path, size in table.statistics if path in local]
        paths = pa.chunked_array([[path for path, _ in files]], pa.string())
        sizes = pa.chunked_array([[size for _, size in files]], pa.int64())
        self.claims.add(self.reached.metadata, paths, sizes)

    def delete_files(self, rows: pa.Table) -> None:
        """Read some files of position deletes and deletion vectors; the rows of each are side by side."""
        import pyarrow.compute as pc

        runs = pc.run_end_encode(rows.column("file_path").combine_chunks())
        ends = runs.run_ends.to_pylist()
        spans = dict(zip(runs.values.to_pylist(), zip([0, *ends], ends, strict=False), strict=True))
        workers = _workers(pc.max(rows.column("file_size_in_bytes")).as_py())
        for uri, data in self.context.objects.read_many(spans, workers):
            start, end = spans[uri]
            entries: list[Entry] = rows.slice(start, end - start).to_pylist()
            if isinstance(data, bytes):
                check_delete_file(data, uri, entries, self.places, self.found)
            elif not isinstance(data, ObjectMissing):  # found already
                self.unreadable(uri, data)

    def read(self, uris: list[str], largest: int, named_by: Callable[[str], str]) -> Iterator[tuple[str, bytes]]:
        """Yield the local files, of at most so many bytes each, that can be read; the others are faults."""
        for uri, data in self.context.objects.read_many(uris, _workers(largest)):
            if isinstance(data, bytes):
                self.found.files += 1
                self.found.bytes += len(data)
                yield uri, data
            elif isinstance(data, ObjectMissing):
                self.found.add(MISSING, uri, f"named by {named_by(uri)}")
            else:
                self.unreadable(uri, data)

    def unreadable(self, uri: str, error: SternaError) -> None:
        """Take down a file that can't be read, unless it is the store that can't be."""
        if not isinstance(error, TableError):
            raise error
        self.found.add(UNREADABLE, uri, error.message)

    def local(self, uris: Iterable[str], namer: str) -> list[str]:
        """Return those of some URIs that are in this region, each once; the others are faults of who names them."""
        known = {uri: self.places.is_local(uri) for uri in uris}
        self.found.add_foreign(namer, [uri for uri, local in known.items() if not local], self.places.region)
        return [uri for uri, local in known.items() if local]


def _formats(deletes: Rows) -> Iterator[tuple[str, str]]:
    """Yield each file of position deletes or deletion vectors with its format, sorted."""
    for rows in deletes.sorted():
        formats = zip(rows.column("file_path").to_pylist(), rows.column("file_format").to_pylist(), strict=True)
        for path, same in groupby(formats, key=itemgetter(0)):
            yield path, next(same)[1].upper()


def _without(uris: Iterator[str], others: Iterator[str]) -> Iterator[str]:
    """Yield those of some sorted URIs that aren't among others."""
    other = next(others, None)
    for uri in uris:
        while other is not None and other < uri:
            other = next(others, None)
        if uri != other:
            yield uri


def _workers(largest: int) -> int:
    """Return how many files of at most so many bytes may be read at once; as many again wait for their turn."""
    return max(1, min(_AT_ONCE, _MEMORY // max(2 * largest, 1)))
