"""The structure of one table of a replica: every path that it reaches is in this region, exists, and has its size.

URIs are judged by the registry's prefixes, and position deletes are read row by row. See `sterna.replication.verify`
for what this shares with localizing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from sterna.catalog.model import ICEBERG_VIEW, Content
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.libraries import pa, pc
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.avro import read_list, read_manifest
from sterna.replication.verify.deletes import Entry, check_delete_file
from sterna.replication.verify.findings import DISAGREES, MISSING, UNREADABLE, Findings
from sterna.replication.verify.json_file import read_json
from sterna.replication.verify.locations import Places
from sterna.replication.verify.manifests import (
    DELETED,
    POSITION_DELETES,
    ListedManifest,
    check_length,
    check_list,
    check_manifest,
    foreign_bounds,
    parse_listed_manifests,
    path_columns,
)
from sterna.replication.verify.metadata import TableDocument, check_table, check_view, parse_table
from sterna.replication.verify.sizes import ExpectedFiles
from sterna.replication.verify.source_versions import is_derived_from
from sterna.storage.spill.sorted_rows import ExternalSorter

_MAX_CONCURRENT_READS = 32  # files that are read at once; about as many wait in memory
_MAX_READ_BYTES = 256 << 20  # bytes that those may take
_DEFAULT_FILE_BYTES = 4 << 20  # assumed for a manifest or list of unknown size


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
    findings: Findings,
) -> TableReach:
    """Check the structure of one table or view.

    Args:
        places: its judgement of URIs.
        content: what the replica branch holds.
        origin: what `main` held when that was written, None where that is no longer known.
        findings: takes the faults, and counts.

    Returns:
        The files that it reaches.
    """
    uri = content.metadata_location or ""
    if origin is not None and not is_derived_from(content, origin, places):
        findings.add(DISAGREES, uri, f"is not of the version that main had under this key: {origin.metadata_location}")
    check = _TableCheck(context, places, findings, TableReach(findings.table, uri))
    check.run(content)
    return check.reached


def check_source(
    context: RegionContext, places: Places, content: Content, findings: Findings, *, sizes: bool = False
) -> None:
    """Check a table's metadata on `main` for consistency.

    Args:
        places: its judgement of URIs, to which all of `main` is at home.
        content: the entry on `main`.
        sizes: also look whether data files exist with their sizes.

    Raises:
        StoreUnreachable, StoreDenied: the source's store can't be used.
    """
    _TableCheck(
        context, places, findings, TableReach(findings.table, content.metadata_location or ""), sizes=sizes
    ).run(content)


@dataclass
class _TableCheck:
    """The check of one table."""

    context: RegionContext
    places: Places
    findings: Findings
    reached: TableReach
    sizes: bool = True
    expected_files: ExpectedFiles = field(default_factory=ExpectedFiles)
    deletes: ExternalSorter = field(default_factory=lambda: ExternalSorter("file_path"))

    def run(self, content: Content) -> None:
        uri = self.reached.metadata
        data = next(
            (
                data
                for _, data in self.read_files(
                    self.select_local([uri], uri), _DEFAULT_FILE_BYTES, lambda _: self.reached.name
                )
            ),
            None,
        )
        if data is None:
            return
        try:
            document = read_json(data, uri, self.places.limits)
            if content.kind == ICEBERG_VIEW:
                check_view(document, uri, self.places, self.findings)
                return
            table = parse_table(document, uri)
            check_table(document, table, uri, self.places, self.findings)
        except TableError as error:
            self.findings.add(UNREADABLE, uri, error.message)
            return
        except (TypeError, AttributeError, KeyError) as error:
            self.findings.add(UNREADABLE, uri, f"not a table's metadata: {type(error).__name__} {error}")
            return
        self.read_manifests(self.read_lists(table), table)
        self.add_statistics(table)
        if self.sizes:
            self.expected_files.check(self.context.objects, self.findings)
        for rows in self.deletes.sorted():
            self.check_delete_files(rows)
        # Not methods: they would hold this check, which holds what they are put into, and all rows with it.
        self.reached.deletes = _delete_file_formats(self.deletes)
        self.reached.content = _exclude_sorted(
            self.expected_files.uris(), (path for path, _ in _delete_file_formats(self.deletes))
        )

    def read_lists(self, table: TableDocument) -> dict[str, dict[ListedManifest, str]]:
        """Read the manifest lists; return the entries on each manifest, by its URI."""
        uri = self.reached.metadata
        snapshots = {snapshot.manifest_list: snapshot for snapshot in table.snapshots if snapshot.manifest_list}
        inline = [path for snapshot in table.snapshots for path in snapshot.manifests]
        listings: dict[str, dict[ListedManifest, str]] = {
            path: {ListedManifest(path): uri} for path in self.select_local(inline, uri)
        }
        self.reached.lists = self.select_local(snapshots, uri)
        for path, data in self.read_files(self.reached.lists, _DEFAULT_FILE_BYTES, lambda _: uri):
            try:
                header, row_table = read_list(data, path, self.places.limits)
            except TableError as error:
                self.findings.add(UNREADABLE, path, error.message)
                continue
            rows = list(parse_listed_manifests(row_table))
            check_list(header, rows, path, snapshots[path].id, snapshots[path].sequence_number, self.findings)
            listings |= {
                manifest: {}
                for manifest in self.select_local((row.path for row in rows if row.path not in listings), path)
            }
            for row in rows:
                if row.path in listings:
                    listings[row.path].setdefault(row, path)
        return listings

    def read_manifests(self, listings: dict[str, dict[ListedManifest, str]], table: TableDocument) -> None:
        """Read the manifests, and collect what they list."""
        self.reached.manifests = list(listings)
        largest = max((row.length or _DEFAULT_FILE_BYTES for rows in listings.values() for row in rows), default=0)
        for uri, data in self.read_files(list(listings), largest, lambda uri: next(iter(listings[uri].values()))):
            check_length(uri, len(data), listings[uri], self.findings)
            try:
                header, entries = read_manifest(data, uri, self.places.limits)
            except TableError as error:
                self.findings.add(UNREADABLE, uri, error.message)
                continue
            check_manifest(uri, header, entries, listings[uri], self.findings)
            unknown = {row.spec for row in listings[uri]} - {None, *table.specs}
            if table.specs and unknown:
                self.findings.add(
                    DISAGREES, uri, f"partition spec {sorted(map(str, unknown))[0]} is not among the table's"
                )
            self.collect(uri, entries)

    def collect(self, uri: str, entries: pa.Table) -> None:
        is_deleted = pc.equal(entries.column("status"), DELETED)
        live, deleted = entries.filter(pc.invert(is_deleted)), entries.filter(is_deleted)
        foreign = {path for column in path_columns(live) for path in self.places.select_foreign(column)}
        # These are never opened: a name that is in no location stays as it is on `main`.
        deleted_foreign = {path for column in path_columns(deleted) for path in self.places.select_foreign(column)}
        deleted_foreign = {
            path for path in (*deleted_foreign, *foreign_bounds(deleted, self.places)) if self.places.is_foreign(path)
        }
        all_foreign = {*foreign, *foreign_bounds(live, self.places), *deleted_foreign}
        self.findings.add_foreign(uri, sorted(all_foreign), self.places.region)
        if foreign:
            live = live.filter(pc.invert(pc.is_in(live.column("file_path"), pa.array(sorted(foreign)))))
        self.expected_files.add(uri, live.column("file_path"), live.column("file_size_in_bytes"))
        deletes = live.filter(pc.equal(live.column("content").fill_null(0), POSITION_DELETES))
        if deletes.num_rows:
            self.deletes.add(deletes.drop_columns(["status", "snapshot_id", "sequence_number", "content"]))

    def add_statistics(self, table: TableDocument) -> None:
        local = set(self.select_local((path for path, _ in table.statistics), self.reached.metadata))
        files = [(path, size) for path, size in table.statistics if path in local]
        paths = pa.chunked_array([[path for path, _ in files]], pa.string())
        sizes = pa.chunked_array([[size for _, size in files]], pa.int64())
        self.expected_files.add(self.reached.metadata, paths, sizes)

    def check_delete_files(self, rows: pa.Table) -> None:
        """Read some files of position deletes and deletion vectors; the rows of each are side by side."""
        runs = pc.run_end_encode(rows.column("file_path").combine_chunks())
        ends = runs.run_ends.to_pylist()
        spans = dict(zip(runs.values.to_pylist(), zip([0, *ends], ends, strict=False), strict=True))
        workers = _read_concurrency(pc.max(rows.column("file_size_in_bytes")).as_py())
        for uri, data in self.context.objects.read_many(spans, workers):
            start, end = spans[uri]
            entries: list[Entry] = rows.slice(start, end - start).to_pylist()
            if isinstance(data, bytes):
                check_delete_file(data, uri, entries, self.places, self.findings)
            elif not isinstance(data, ObjectMissing):  # found already
                self.record_unreadable(uri, data)

    def read_files(
        self, uris: list[str], largest: int, referrer_of: Callable[[str], str]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the local files, of at most so many bytes each, that can be read; the others are faults."""
        for uri, data in self.context.objects.read_many(uris, _read_concurrency(largest)):
            if isinstance(data, bytes):
                self.findings.files += 1
                self.findings.bytes += len(data)
                yield uri, data
            elif isinstance(data, ObjectMissing):
                self.findings.add(MISSING, uri, f"named by {referrer_of(uri)}")
            else:
                self.record_unreadable(uri, data)

    def record_unreadable(self, uri: str, error: SternaError) -> None:
        """Take down a file that can't be read, unless it is the store that can't be."""
        if not isinstance(error, TableError):
            raise error
        self.findings.add(UNREADABLE, uri, error.message)

    def select_local(self, uris: Iterable[str], referrer: str) -> list[str]:
        """Return those of some URIs that are in this region, each once; the others are faults of the file that names
        them."""
        local_by_uri = {uri: self.places.is_local(uri) for uri in uris}
        self.findings.add_foreign(
            referrer, [uri for uri, local in local_by_uri.items() if not local], self.places.region
        )
        return [uri for uri, local in local_by_uri.items() if local]


def _delete_file_formats(deletes: ExternalSorter) -> Iterator[tuple[str, str]]:
    """Yield each file of position deletes or deletion vectors with its format, sorted."""
    for rows in deletes.sorted():
        formats = zip(rows.column("file_path").to_pylist(), rows.column("file_format").to_pylist(), strict=True)
        for path, group in groupby(formats, key=itemgetter(0)):
            yield path, next(group)[1].upper()


def _exclude_sorted(uris: Iterator[str], others: Iterator[str]) -> Iterator[str]:
    """Yield those of some sorted URIs that aren't among others."""
    other = next(others, None)
    for uri in uris:
        while other is not None and other < uri:
            other = next(others, None)
        if uri != other:
            yield uri


def _read_concurrency(largest: int) -> int:
    """Return how many files of at most so many bytes may be read at once; as many again wait for their turn."""
    return max(1, min(_MAX_CONCURRENT_READS, _MAX_READ_BYTES // max(2 * largest, 1)))
