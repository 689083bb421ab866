"""What versions of tables reach below the replica root: what a reader of theirs could open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE
from sterna.edges.disk.numbers import Numbers
from sterna.errors import EngineError, ObjectMissing, ReplicaBroken, SternaError, StoreDenied, StoreUnreachable
from sterna.limits import Limits
from sterna.registry.model import respell
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 8  # files read at once; about as many more wait in memory
_DELETED = 2  # manifest entry status


@dataclass(frozen=True)
class TableVersion:
    """One version of a table or view: its key name, its content type, and its metadata.json."""

    key: str
    kind: str
    metadata: str


class Below:
    """URIs below a replica root, in the root's own spelling.

    Args:
        root: the replica root.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._spelled = tuple(f"{spelling}/" for spelling in respell(root).values())

    def of(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield those of some URIs that lie below the root."""
        own = f"{self.root}/"
        for uri in uris:
            if uri.startswith(own):
                yield uri
            elif uri.startswith(self._spelled):
                yield own + next(uri.removeprefix(prefix) for prefix in self._spelled if uri.startswith(prefix))


class Anywhere(Below):
    """All URIs, as they are spelled."""

    def __init__(self) -> None:
        super().__init__("")

    def of(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield them all."""
        yield from uris


class ReachedFiles:
    """A set of URIs that may have many millions, eight bytes each; on local disk beyond some millions.

    Two may be taken for one, and then one too many is kept.
    """

    def __init__(self) -> None:
        self._hashes = Numbers()

    def add(self, uris: Iterable[str]) -> None:
        """Add URIs.

        Raises:
            EngineError: there is no room on local disk.
        """
        import numpy as np

        self._hashes.add(np.fromiter(map(hash, uris), np.int64))

    def has(self, uris: Sequence[str]) -> pa.BooleanArray:
        """Tell of each URI whether it is in the set."""
        import numpy as np
        import pyarrow as pa

        return pa.array(self._hashes.has(np.fromiter(map(hash, uris), np.int64, len(uris))))


@dataclass
class Walk:
    """A walk over versions of tables, which reads each file once.

    Only files below the replica root are read, unless told otherwise. A list or manifest elsewhere in the region stands
    there because all that it names maps to itself, so that it leads to nothing below the root; and `main` may have
    expired it since.

    Args:
        context: the region.
        add: takes the URIs below the replica root that are reached.
        progress: called with lines for people.
        gone_is_fine: versions that nobody promised to keep: what is gone of them leads nowhere.
        places: where the files are that are read and added; None: below the replica root.
    """

    context: RegionContext
    add: Callable[[Iterable[str]], None]
    progress: Callable[[str], None] = lambda line: None
    gone_is_fine: bool = False
    places: Below | None = None
    _below: Below = field(init=False)
    _read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._below = self.places or Below(self.context.region.replica_root)

    def over(self, versions: Iterable[TableVersion]) -> None:
        """Reach all that some versions reach.

        Raises:
            ReplicaBroken: a file of theirs can't be read; the error names table and file.
            StoreUnreachable, StoreDenied: the store can't be used.
            EngineError: there is no room on local disk for what is reached.
        """
        tables: dict[str, str] = {}
        for version in versions:
            self._take(tables, [version.metadata], version.key, leads_on=version.kind == ICEBERG_TABLE)
        lists: dict[str, str] = {}
        manifests: dict[str, str] = {}
        limits = self.context.region.limits
        self._each(tables, lambda uri, data: self._metadata(uri, data, tables[uri], lists, manifests))
        self._each(lists, lambda uri, data: self._take(manifests, _manifests_of(data, uri, limits), lists[uri]))
        self._each(manifests, lambda uri, data: self.add(self._below.of(_files_of(data, uri, limits))))
        self.progress(f"read {len(tables)} metadata.json, {len(lists)} manifest lists, {len(manifests)} manifests")

    def _metadata(self, uri: str, data: bytes, key: str, lists: dict[str, str], manifests: dict[str, str]) -> None:
        from sterna.iceberg.metadata.table import read_table_metadata

        metadata = read_table_metadata(data, uri, self.context.region.limits)
        self._take(lists, (item.manifest_list for item in metadata.snapshots if item.manifest_list), key)
        self._take(manifests, (path for item in metadata.snapshots for path in item.manifests), key)
        self.add(self._below.of(item.path for item in metadata.statistics))
        self.add(self._below.of(metadata.metadata_log))

    def _take(self, found: dict[str, str], uris: Iterable[str], key: str, *, leads_on: bool = True) -> None:
        """Add files that name others; those that weren't read before go into `found` with their table."""
        below = [uri for uri in self._below.of(uris) if uri not in self._read]
        self.add(below)
        if leads_on:
            self._read.update(below)
            found.update(dict.fromkeys(below, key))

    def _each(self, files: dict[str, str], use: Callable[[str, bytes], None]) -> None:
        """Use the content of each file; what goes wrong with one is an error that names its table."""
        for uri, data in self.context.objects.read_many(files, _AT_ONCE):
            if isinstance(data, (StoreUnreachable, StoreDenied)):
                raise data
            if isinstance(data, ObjectMissing) and self.gone_is_fine:
                continue
            try:
                if isinstance(data, SternaError):
                    raise data
                use(uri, data)
            except EngineError:
                raise  # there is no room for what was found: it isn't this file
            except SternaError as error:
                raise ReplicaBroken(
                    f"a kept head needs this file, and it can't be read: {error.message}; nothing is deleted",
                    table=files[uri],
                    file=uri,
                    hint="repair the replica; while only older heads need it, a shorter --keep lets them go",
                ) from error


def _manifests_of(data: bytes, uri: str, limits: Limits) -> list[str]:
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    return [item.path for item in read_manifest_list(data, uri, limits)]


def _files_of(data: bytes, uri: str, limits: Limits) -> list[str]:
    """Return the files of a manifest's live entries.

    Of deleted ones a reader opens nothing, unless another snapshot has them live.
    """
    import pyarrow.compute as pc

    from sterna.iceberg.manifests.manifest import read_entries

    entries = read_entries(data, uri, limits)
    files: list[str] = entries.filter(pc.not_equal(entries.column("status"), _DELETED)).column("file_path").to_pylist()
    return files
