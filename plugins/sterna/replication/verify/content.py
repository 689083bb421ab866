"""Comparing a replica's files with those on `main` that they were made from: bytes of copies, meaning of rewritten
files.

Files that stay in place are `main`'s own. A source that is gone by now, expired since the copy was made, can't be
compared with: it is counted, and no fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final, TypeVar

from sterna.catalog.model import Content
from sterna.catalog.tables import content_snapshot_id
from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, MetadataVersion, list_metadata_versions
from sterna.errors import BrokenMetadata, ObjectMissing, StoreUnreachable, TableError
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.compare_avro import list_differences, manifest_differences
from sterna.replication.verify.compare_deletes import delete_differences
from sterna.replication.verify.compare_json import metadata_differences
from sterna.replication.verify.findings import DIFFERS, UNREADABLE, Findings
from sterna.replication.verify.json_file import read_json
from sterna.replication.verify.locations import Places
from sterna.replication.verify.table import TableReach
from sterna.storage.client import call_store
from sterna.storage.content import stream_content
from sterna.storage.objects import Objects

_MAX_CONCURRENT_REWRITTEN: Final = 2  # both sides of each are in memory
_MAX_CONCURRENT_COPIES: Final = 8
_MAX_PENDING_FILES: Final = 256
_CHUNK_BYTES: Final = 8 << 20
_MAX_SHOWN_DIFFERENCES: Final = 3  # differences of one file
_PROGRESS_FILES: Final = 1_000  # files between two lines of progress

Differences = Callable[[bytes, str, bytes, str, Places], Iterator[str]]
"""Yields the differences between a file of the replica and its source: bytes and URI of the one, then of the other."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class _RewrittenFile:
    """A file whose content is to be compared with that of the first of its possible sources that exists."""

    uri: str
    sources: Sequence[str]
    compare: Differences


@dataclass(frozen=True)
class _ComparisonResult:
    """What comparing one file came to.

    Args:
        uri: the file.
        size: its size, None when it could not be compared.
        faults: what is wrong with it.
        kind: of faults in its comparison.
        missing: the replica's own file is gone, which is a fault of structure.
    """

    uri: str
    size: int | None = None
    faults: tuple[str, ...] = ()
    kind: str = DIFFERS
    missing: bool = False


@dataclass(frozen=True)
class Comparison:
    """How the files of one table are compared.

    Args:
        places: its judgement of URIs.
        includes: whether a file is to be compared, by its URI.
        progress: called now and then.
    """

    context: RegionContext
    places: Places
    includes: Callable[[str], bool]
    progress: Callable[[str], None]

    def compare_table(self, reached: TableReach, origin: Content | None, findings: Findings) -> None:
        """Compare the files of one table or view below the replica root with their sources.

        Args:
            reached: what the table reaches, as the check of its structure found it.
            origin: what `main` held when the replica's version was written, None where that is no longer known.
            findings: takes the faults, and counts.

        Raises:
            StoreUnreachable, StoreDenied: a store can't be used, this region's or the source's.
        """
        main = (origin.metadata_location if origin else None) or ""
        sources = partial(self.places.sources, metadata=main, metadata_versions=self._metadata_versions(main))
        shown = content_snapshot_id(origin)
        rewritten = (
            file for file in self._rewritten_files(reached, main, sources, shown) if self._is_included(file.uri)
        )
        copies = ((uri, sources(uri)) for uri in reached.content if self._is_included(uri))
        self._record(_map_in_threads(self._compare_meaning, rewritten, _MAX_CONCURRENT_REWRITTEN), findings)
        self._record(_map_in_threads(self._compare_bytes, copies, _MAX_CONCURRENT_COPIES), findings)

    def _is_included(self, uri: str) -> bool:
        return self.places.below_root(uri) and self.includes(uri)

    def _record(self, outcomes: Iterator[_ComparisonResult], findings: Findings) -> None:
        for outcome in outcomes:
            if outcome.missing:
                continue
            if outcome.size is None:
                findings.not_comparable += 1
            else:
                findings.compared += 1
                findings.compared_bytes += outcome.size
            for message in outcome.faults:
                findings.add(outcome.kind, outcome.uri, message)
            if (findings.compared + findings.not_comparable) % _PROGRESS_FILES == 0:
                self.progress(f"{findings.table}: {findings.compared} files, {findings.compared_bytes} bytes compared")

    def _metadata_versions(self, main: str) -> list[MetadataVersion]:
        """Return the metadata versions in the region where `main` has a table's files, the likeliest first."""
        owner = self.places.owner(main)
        if owner is None:
            return []
        likeliest = self.context.mapping.metadata_version(main)
        in_store = list_metadata_versions(self.context.objects.folders(f"{owner.replica_root}/{LOCALIZED_FOLDER}"))
        return list(dict.fromkeys((*filter(None, [likeliest]), *in_store)))

    def _rewritten_files(
        self, reached: TableReach, main: str, sources: Callable[[str], Sequence[str]], shown: int | None
    ) -> Iterator[_RewrittenFile]:
        compare_documents = partial(_document_differences, self._may_be_pruned(reached, main), shown)
        yield _RewrittenFile(reached.metadata, [main] if main else [], compare_documents)
        comparisons: Iterator[tuple[str, Differences]] = chain(
            ((uri, list_differences) for uri in reached.lists),
            ((uri, manifest_differences) for uri in reached.manifests),
            ((uri, partial(delete_differences, file_format)) for uri, file_format in reached.deletes),
        )
        for uri, compare in comparisons:
            yield _RewrittenFile(uri, sources(uri), compare)

    def _may_be_pruned(self, reached: TableReach, main: str) -> bool:
        """Return whether a policy, today's or the one that the file was written under, may have removed snapshots."""
        policy = self.context.registry.policy(reached.name)
        if policy.history.latest is not None or policy.history.since is not None:
            return True
        mapping = self.context.mapping
        metadata_version = current_metadata_version(mapping, reached.metadata)
        return bool(main) and not mapping.is_metadata_uri(reached.metadata, main, policy, metadata_version)

    def _compare_meaning(self, file: _RewrittenFile) -> _ComparisonResult:
        objects = self.context.objects
        try:
            replica = objects.read(file.uri)
        except (ObjectMissing, TableError):
            return _ComparisonResult(file.uri, missing=True)
        try:
            name, source = _read_first(objects.read, file.sources)
            differences = tuple(
                islice(file.compare(replica, file.uri, source, name, self.places), _MAX_SHOWN_DIFFERENCES)
            )
        except ObjectMissing:
            return _ComparisonResult(file.uri)
        except TableError as error:
            # The expected content is unknown where the source can't be read.
            if error.file != file.uri:
                return _ComparisonResult(file.uri)
            return _ComparisonResult(file.uri, len(replica), (error.message,), UNREADABLE)
        return _ComparisonResult(file.uri, len(replica), differences)

    def _compare_bytes(self, copy: tuple[str, Sequence[str]]) -> _ComparisonResult:
        uri, sources = copy
        try:
            size, replica_sha256 = sha256_of(self.context.objects, uri)
        except (ObjectMissing, TableError):
            return _ComparisonResult(uri, missing=True)
        try:
            source, (_, source_sha256) = _read_first(partial(sha256_of, self.context.objects), sources)
        except (ObjectMissing, TableError):
            return _ComparisonResult(uri)
        if replica_sha256 == source_sha256:
            return _ComparisonResult(uri, size)
        fault = f"its content is not that of {source}: SHA-256 {replica_sha256}, there {source_sha256}"
        return _ComparisonResult(uri, size, (fault,))


def _read_first(read: Callable[[str], _T], uris: Sequence[str]) -> tuple[str, _T]:
    """Read the first of some objects that is there.

    Raises:
        ObjectMissing: none is.
    """
    for uri in uris:
        try:
            return uri, read(uri)
        except ObjectMissing:
            continue
    raise ObjectMissing("there is no such object", file=uris[0] if uris else "")


def _document_differences(
    pruned: bool, shown: int | None, replica: bytes, uri: str, source: bytes, source_uri: str, places: Places
) -> Iterator[str]:
    replica_document, source_document = (
        read_json(data, name, places.limits) for data, name in ((replica, uri), (source, source_uri))
    )
    try:
        yield from metadata_differences(replica_document, source_document, places, pruned=pruned, shown=shown)
    except (TypeError, KeyError, AttributeError) as error:
        raise BrokenMetadata(f"not a table's or view's metadata: {type(error).__name__}", file=uri) from error


def _map_in_threads(function: Callable[[_T], _R], items: Iterator[_T], workers: int) -> Iterator[_R]:
    """Call a function on each item in threads and yield the results in order, never far ahead of the reader."""
    with ThreadPoolExecutor(workers, thread_name_prefix="sterna-verify") as pool:
        while part := list(islice(items, _MAX_PENDING_FILES)):
            yield from pool.map(function, part)


def sha256_of(objects: Objects, uri: str) -> tuple[int, str]:
    """Return an object's size and the SHA-256 of its content, read in chunks.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    import obstore

    store, key = objects._locate(uri)

    def hash_stream() -> tuple[int, str]:
        result = obstore.get(store.client, key)
        expected, hasher, size = result.meta["size"], hashlib.sha256(), 0
        chunks = stream_content(store, key, uri, result, _CHUNK_BYTES)
        del result  # the chunks release it
        for chunk in chunks:
            hasher.update(chunk)
            size += len(chunk)
        if size != expected:
            raise StoreUnreachable(f"{size} of {expected} bytes came", file=uri)
        return size, hasher.hexdigest()

    return call_store(store, uri, hash_stream)
