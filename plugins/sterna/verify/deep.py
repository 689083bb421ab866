"""Comparing a replica's files with those on `main` that they were made from: bytes of copies, meaning of rewritten
files.

Files that stay in place are `main`'s own. A source that is gone by now, expired since the copy was made, can't be
compared with: it is counted, and no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final, TypeVar

from sterna.catalog.model import Content
from sterna.errors import BrokenMetadata, ObjectMissing, TableError
from sterna.registry.edition import LOCALIZED, Edition, editions_among
from sterna.registry.mapping import shown_by
from sterna.replica.editions import edition_now
from sterna.replica.region import RegionContext
from sterna.verify.findings import DIFFERS, UNREADABLE, Findings
from sterna.verify.hashing import sha256_of
from sterna.verify.json_file import read_json
from sterna.verify.places import Places
from sterna.verify.same_avro import list_differences, manifest_differences
from sterna.verify.same_deletes import delete_differences
from sterna.verify.same_json import metadata_differences
from sterna.verify.table import TableReach

_REWRITTEN_AT_ONCE: Final = 2  # both sides of each are in memory
_COPIES_AT_ONCE: Final = 8
_WAITING: Final = 256
_SHOWN: Final = 3  # differences of one file
_NEWS: Final = 1_000  # files between two lines of progress

Differences = Callable[[bytes, str, bytes, str, Places], Iterator[str]]
"""Yields the differences between a file of the replica and its source: bytes and URI of the one, then of the other."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class _Rewritten:
    """A file whose meaning is to be compared with that of the first of its possible sources that is there."""

    uri: str
    sources: Sequence[str]
    compare: Differences


@dataclass(frozen=True)
class _Outcome:
    """What comparing one file came to.

    Args:
        uri: the file.
        size: its size, None when it could not be compared.
        faults: what is wrong with it.
        kind: of these faults.
        lost: the replica's own file is gone, which is a fault of structure.
    """

    uri: str
    size: int | None = None
    faults: tuple[str, ...] = ()
    kind: str = DIFFERS
    lost: bool = False


@dataclass(frozen=True)
class Comparison:
    """How the files of one table are compared.

    Args:
        context: the region.
        places: its judgement of URIs.
        takes: tells whether a file is to be compared.
        progress: called now and then.
    """

    context: RegionContext
    places: Places
    takes: Callable[[str], bool]
    progress: Callable[[str], None]

    def table(self, reached: TableReach, origin: Content | None, found: Findings) -> None:
        """Compare the files of one table or view below the replica root with their sources.

        Args:
            reached: what the table reaches, as the check of its structure found it.
            origin: what `main` held when the replica's version was made, None where nobody can tell any more.
            found: takes the faults, and counts.

        Raises:
            StoreUnreachable, StoreDenied: a store can't be used, this region's or the source's.
        """
        main = (origin.metadata_location if origin else None) or ""
        sources = partial(self.places.sources, metadata=main, editions=self._editions(main))
        shown = origin.payload.get("snapshotId") if origin else None
        rewritten = (item for item in self._rewritten(reached, main, sources, shown) if self._wanted(item.uri))
        copies = ((uri, sources(uri)) for uri in reached.content if self._wanted(uri))
        self._take(_mapped(self._compare_meaning, rewritten, _REWRITTEN_AT_ONCE), found)
        self._take(_mapped(self._compare_bytes, copies, _COPIES_AT_ONCE), found)

    def _wanted(self, uri: str) -> bool:
        return self.places.below_root(uri) and self.takes(uri)

    def _take(self, outcomes: Iterator[_Outcome], found: Findings) -> None:
        for outcome in outcomes:
            if outcome.lost:
                continue
            if outcome.size is None:
                found.not_comparable += 1
            else:
                found.compared += 1
                found.compared_bytes += outcome.size
            for message in outcome.faults:
                found.add(outcome.kind, outcome.uri, message)
            if (found.compared + found.not_comparable) % _NEWS == 0:
                self.progress(f"{found.table}: {found.compared} files, {found.compared_bytes} bytes compared")

    def _editions(self, main: str) -> list[Edition]:
        """Return the editions of localized files in the region that `main` names a table in, the likeliest first."""
        owner = self.places.owner(main)
        if owner is None:
            return []
        likeliest = self.context.mapping.edition(main)
        found = editions_among(self.context.objects.folders(f"{owner.replica_root}/{LOCALIZED}"))
        return list(dict.fromkeys((*filter(None, [likeliest]), *found)))

    def _rewritten(
        self, reached: TableReach, main: str, sources: Callable[[str], Sequence[str]], shown: int | None
    ) -> Iterator[_Rewritten]:
        compare_documents = partial(_document_differences, self._pruned(reached, main), shown)
        yield _Rewritten(reached.metadata, [main] if main else [], compare_documents)
        listed: Iterator[tuple[str, Differences]] = chain(
            ((uri, list_differences) for uri in reached.lists),
            ((uri, manifest_differences) for uri in reached.manifests),
            ((uri, partial(delete_differences, file_format)) for uri, file_format in reached.deletes),
        )
        for uri, compare in listed:
            yield _Rewritten(uri, sources(uri), compare)

    def _pruned(self, reached: TableReach, main: str) -> bool:
        """Tell whether a policy may have taken snapshots out: today's, or another one that the file was made under."""
        policy = self.context.registry.policy(reached.name)
        if policy.history.latest is not None or policy.history.since is not None:
            return True
        mapping = self.context.mapping
        edition, shown = edition_now(mapping, reached.metadata), shown_by(reached.metadata)
        return bool(main) and mapping.metadata(main, policy, edition, shown=shown) != reached.metadata

    def _compare_meaning(self, item: _Rewritten) -> _Outcome:
        objects = self.context.objects
        try:
            replica = objects.read(item.uri)
        except (ObjectMissing, TableError):
            return _Outcome(item.uri, lost=True)
        try:
            name, source = _first(objects.read, item.sources)
            found = tuple(islice(item.compare(replica, item.uri, source, name, self.places), _SHOWN))
        except ObjectMissing:
            return _Outcome(item.uri)
        except TableError as error:
            # Of a source that can't be read nobody can say what the replica should be.
            return (
                _Outcome(item.uri, len(replica), (error.message,), UNREADABLE)
                if error.file == item.uri
                else _Outcome(item.uri)
            )
        return _Outcome(item.uri, len(replica), found)

    def _compare_bytes(self, copy: tuple[str, Sequence[str]]) -> _Outcome:
        uri, sources = copy
        try:
            size, mine = sha256_of(self.context.objects, uri)
        except (ObjectMissing, TableError):
            return _Outcome(uri, lost=True)
        try:
            source, (_, theirs) = _first(partial(sha256_of, self.context.objects), sources)
        except (ObjectMissing, TableError):
            return _Outcome(uri)
        return _Outcome(
            uri,
            size,
            () if mine == theirs else (f"its content is not that of {source}: SHA-256 {mine}, there {theirs}",),
        )


def _first(read: Callable[[str], _T], uris: Sequence[str]) -> tuple[str, _T]:
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
    mine, theirs = (read_json(data, name, places.limits) for data, name in ((replica, uri), (source, source_uri)))
    try:
        yield from metadata_differences(mine, theirs, places, pruned=pruned, shown=shown)
    except (TypeError, KeyError, AttributeError) as error:
        raise BrokenMetadata(f"not a table's or view's metadata: {type(error).__name__}", file=uri) from error


def _mapped(function: Callable[[_T], _R], items: Iterator[_T], workers: int) -> Iterator[_R]:
    """Call a function on each item in threads and yield the results in order, never far ahead of the reader."""
    with ThreadPoolExecutor(workers, thread_name_prefix="sterna-verify") as pool:
        while part := list(islice(items, _WAITING)):
            yield from pool.map(function, part)
