"""What versions of tables reach below the replica root: what a reader of theirs could open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sterna.catalog.model import ICEBERG_TABLE
from sterna.config.limits import Limits
from sterna.config.registry.model import prefix_spellings
from sterna.errors import EngineError, ObjectMissing, ReplicaBroken, SternaError, StoreDenied, StoreUnreachable
from sterna.libraries import np, pa
from sterna.replication.replica.region import RegionContext
from sterna.storage.spill.integer_set import Int64Set

_MAX_CONCURRENT_READS = 8  # files read at once; about as many more wait in memory


@dataclass(frozen=True)
class TableVersion:
    """A version of a table or view, as a commit of the catalog shows it.

    Args:
        key: key name.
        kind: content type.
        metadata: its metadata.json.
        snapshot: its current snapshot; None where it has none.
    """

    key: str
    kind: str
    metadata: str
    snapshot: int | None = None


class UriScope:
    """URIs below a replica root, in the root's own spelling.

    Args:
        root: the replica root.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._prefixes = tuple(f"{spelling}/" for spelling in prefix_spellings(root).values())

    def filter(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield those of some URIs that are below the root."""
        own = f"{self.root}/"
        for uri in uris:
            if uri.startswith(own):
                yield uri
            elif uri.startswith(self._prefixes):
                yield own + next(uri.removeprefix(prefix) for prefix in self._prefixes if uri.startswith(prefix))


class AllUris(UriScope):
    """All URIs, as they are spelled."""

    def __init__(self) -> None:
        super().__init__("")

    def filter(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield them all."""
        yield from uris


class ReachedFiles:
    """A set of URIs that may have many millions, eight bytes each; on local disk beyond some millions.

    Two may be taken for one, and then one too many is kept.
    """

    def __init__(self) -> None:
        self._hashes = Int64Set()

    def add(self, uris: Iterable[str]) -> None:
        """Add URIs.

        Raises:
            EngineError: local disk is full.
        """
        self._hashes.add(np.fromiter(map(hash, uris), np.int64))

    def contains(self, uris: Sequence[str]) -> pa.BooleanArray:
        """Return for each URI whether it is in the set."""
        return pa.array(self._hashes.contains(np.fromiter(map(hash, uris), np.int64, len(uris))))


@dataclass
class ReachabilityWalk:
    """A walk over versions of tables, which reads each file once.

    Only files below the replica root are read, unless `scope` has more. A list or manifest elsewhere in the
    region is there because all that it names maps to itself, so that it leads to nothing below the root; and `main` may
    have expired it since.

    Args:
        add: takes the URIs below the replica root that are reached.
        progress: called with lines for people.
        ignore_missing: the versions may be expired: their missing files are skipped.
        scope: where the files are that are read and added; None: below the replica root.
        with_metadata_log: earlier metadata.json are added, which no reader of a version needs.

    Attributes:
        outside: key names of tables that name files out of the scope, but for earlier metadata.json.
    """

    context: RegionContext
    add: Callable[[Iterable[str]], None]
    progress: Callable[[str], None] = lambda line: None
    ignore_missing: bool = False
    scope: UriScope | None = None
    with_metadata_log: bool = True
    outside: set[str] = field(default_factory=set)
    _scope: UriScope = field(init=False)
    _visited: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._scope = self.scope or UriScope(self.context.region.replica_root)

    def visit(self, versions: Iterable[TableVersion]) -> None:
        """Reach all that some versions reach.

        Raises:
            ReplicaBroken: a file of theirs can't be read; the error names table and file.
            StoreUnreachable, StoreDenied: the store can't be used.
            EngineError: local disk is too small for what is reached.
        """
        tables: dict[str, str] = {}
        for version in versions:
            self._add_referencing(tables, [version.metadata], version.key, follow=version.kind == ICEBERG_TABLE)
        lists: dict[str, str] = {}
        manifests: dict[str, str] = {}
        limits = self.context.region.limits
        self._visit_files(tables, lambda uri, data: self._visit_metadata(uri, data, tables[uri], lists, manifests))
        self._visit_files(
            lists,
            lambda uri, data: self._add_referencing(manifests, _read_manifest_paths(data, uri, limits), lists[uri]),
        )
        self._visit_files(
            manifests, lambda uri, data: self.add(self._in_scope(_read_live_files(data, uri, limits), manifests[uri]))
        )
        self.progress(f"read {len(tables)} metadata.json, {len(lists)} manifest lists, {len(manifests)} manifests")

    def _visit_metadata(
        self, uri: str, data: bytes, key: str, lists: dict[str, str], manifests: dict[str, str]
    ) -> None:
        from sterna.iceberg.metadata.table import read_table_metadata

        metadata = read_table_metadata(data, uri, self.context.region.limits)
        self._add_referencing(
            lists, (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list), key
        )
        self._add_referencing(manifests, (path for snapshot in metadata.snapshots for path in snapshot.manifests), key)
        self.add(self._in_scope((file.path for file in metadata.statistics), key))
        if self.with_metadata_log:
            self.add(self._scope.filter(metadata.metadata_log))

    def _add_referencing(
        self, unvisited: dict[str, str], uris: Iterable[str], key: str, *, follow: bool = True
    ) -> None:
        """Add files that name others; those that weren't read before go into `unvisited` with their table."""
        in_scope = [uri for uri in self._in_scope(uris, key) if uri not in self._visited]
        self.add(in_scope)
        if follow:
            self._visited.update(in_scope)
            unvisited.update(dict.fromkeys(in_scope, key))

    def _in_scope(self, uris: Iterable[str], key: str) -> list[str]:
        """Return those of a table's files that are in the scope."""
        named = list(uris)
        in_scope = list(self._scope.filter(named))
        if len(in_scope) < len(named):
            self.outside.add(key)
        return in_scope

    def _visit_files(self, files: dict[str, str], visit_file: Callable[[str, bytes], None]) -> None:
        """Pass the content of each file to a callback; a failure with one is an error that names its table."""
        for uri, data in self.context.objects.read_many(files, _MAX_CONCURRENT_READS):
            if isinstance(data, (StoreUnreachable, StoreDenied)):
                raise data
            if isinstance(data, ObjectMissing) and self.ignore_missing:
                continue
            try:
                if isinstance(data, SternaError):
                    raise data
                visit_file(uri, data)
            except EngineError:
                raise  # the local disk is full: not a fault of this file
            except SternaError as error:
                raise ReplicaBroken(
                    f"a kept head needs this file, and it can't be read: {error.message}; nothing is deleted",
                    table=files[uri],
                    file=uri,
                    hint="repair the replica; while only older heads need it, a shorter --keep lets them go",
                ) from error


def _read_manifest_paths(data: bytes, uri: str, limits: Limits) -> list[str]:
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    return [manifest.path for manifest in read_manifest_list(data, uri, limits)]


def _read_live_files(data: bytes, uri: str, limits: Limits) -> list[str]:
    """Return the files of a manifest's live entries.

    Of deleted ones a reader opens nothing, unless another snapshot has them live.
    """
    from sterna.iceberg.manifests.manifest import live_entries, read_entries

    files: list[str] = live_entries(read_entries(data, uri, limits)).column("file_path").to_pylist()
    return files
