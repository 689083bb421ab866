"""Which of a region's own files are needed: all that any needed version reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW
from sterna.config.orphan_removal import swept_folders
from sterna.errors import ReplicaBroken, TableError, UpkeepBlocked
from sterna.maintenance.deletion.references import ReferenceVersions
from sterna.maintenance.tables.retention import NeedReason, Retention
from sterna.replication.replica.reachability import AllUris, ReachabilityWalk, ReachedFiles, TableVersion, UriScope
from sterna.replication.replica.region import RegionContext

_SLASHES = re.compile("//+")
_DRIVERS = {
    **dict.fromkeys(("abfs", "abfss"), ("wasb", ".dfs.", ".blob.")),
    **dict.fromkeys(("wasb", "wasbs"), ("abfs", ".blob.", ".dfs.")),
}
_PAST_REASONS = (NeedReason.HISTORY, NeedReason.HELD, NeedReason.TRANSIT, NeedReason.HEAD)


@dataclass
class ReferencedFiles:
    """The region's own files that are needed; the set grows during a sweep.

    Args:
        near_roots: as `swept_folders` takes them.
    """

    context: RegionContext
    progress: Callable[[str], None]
    near_roots: Collection[str] = ()
    files: ReachedFiles = field(default_factory=ReachedFiles)

    def __post_init__(self) -> None:
        self._scopes = [UriScope(folder.uri) for folder in swept_folders(self.context.mapping, self.near_roots)]
        self._walk = ReachabilityWalk(self.context, self.add, self.progress, scope=AllUris())
        self._lenient_walk = ReachabilityWalk(
            self.context, self.add, self.progress, ignore_missing=True, scope=AllUris()
        )
        self._lenient_walk._visited = self._walk._visited  # versions of one table share most of their files
        self._seen: set[TableVersion] = set()

    def add_retained(self, retention: Retention) -> None:
        """Add the files of all versions that must be retained.

        Replicas of other regions reach nothing here: they name files of their own region.

        Raises:
            UpkeepBlocked: a metadata file can't be read, or it names files that can't be mapped to this region.
        """
        versions = [(version, need) for version, need in retention.needed.items() if self._is_relevant(need.replica_of)]
        self._walk_new(self._walk, (version for version, need in versions if need.reason not in _PAST_REASONS))
        # No reference shows these any more: files of them that are missing have no reader.
        self._walk_new(self._lenient_walk, (version for version, need in versions if need.reason in _PAST_REASONS))

    def add_references(self, references: Iterable[ReferenceVersions]) -> bool:
        """Add the files that changed or new references reach; return whether there were new versions.

        Raises:
            UpkeepBlocked: as `add_retained`.
        """
        before = len(self._seen)
        self._walk_new(
            self._walk,
            (
                version
                for reference in references
                if self._is_relevant(reference.replica_of)
                for version in reference.versions
            ),
        )
        return len(self._seen) > before

    def _is_relevant(self, replica_of: str) -> bool:
        return replica_of in ("", self.context.region.name)

    def _walk_new(self, walk: ReachabilityWalk, versions: Iterable[TableVersion]) -> None:
        unseen = set(versions) - self._seen
        _require_supported_kinds(unseen)
        try:
            walk.visit(unseen)
        except ReplicaBroken as error:
            raise UpkeepBlocked(
                error.message.replace("a kept head needs this file", "something that is needed needs this file"),
                table=error.table,
                file=error.file,
                hint="restore it, or delete what needs it: a branch, a tag, a table",
            ) from error
        self._seen |= unseen

    def add(self, uris: Iterable[str]) -> None:
        """Add files, in any spelling of their URIs that metadata may have."""
        self.files.add(self._listed_uris(uris))

    def _listed_uris(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield the URIs in swept folders, as the store lists them; of a copy, those of its original."""
        for uri in uris:
            for target in (uri, *self._origin(uri)):
                for spelling in (target, *_alternate_uris(target)):
                    for scope in self._scopes:
                        for local_uri in scope.filter((spelling,)):
                            yield local_uri
                            yield from _decoded_uris(local_uri)

    def _origin(self, uri: str) -> Iterator[str]:
        mapping = self.context.mapping
        if mapping.below_replica_root(uri):
            try:
                yield from dict.fromkeys((mapping.origin_uri(uri), mapping.metadata_origin(uri)))
            except TableError as error:
                if not uri.startswith(f"{self.context.region.replica_root}/"):
                    raise UpkeepBlocked(f"what it is a copy of is unknown: {error.message}", file=uri) from error


def _require_supported_kinds(versions: Iterable[TableVersion]) -> None:
    for version in versions:
        if version.kind not in (ICEBERG_TABLE, ICEBERG_VIEW) or not version.metadata:
            raise UpkeepBlocked(
                f"which files a content of type {version.kind} needs is unknown",
                table=version.key,
                hint="take it off, or sweep no location in this catalog",
            )


def _alternate_uris(uri: str) -> Iterator[str]:
    """Yield the other URIs under which a listing may show a file.

    Azure's two drivers, both of which Iceberg accepts, have a scheme and a host each for the same container. Some
    engines treat several slashes as one.
    """
    scheme, _, path = uri.partition("://")
    other_scheme, host_suffix, other_suffix = _DRIVERS.get(scheme, ("", "", ""))
    authority, slash, rest = path.partition("/")
    if other_scheme and host_suffix in authority:
        yield f"{other_scheme}://{authority.replace(host_suffix, other_suffix, 1)}{slash}{rest}"
    if "//" in path:
        yield f"{scheme}://{_SLASHES.sub('/', path)}"


def _decoded_uris(uri: str) -> Iterator[str]:
    """Yield other spellings under which a store may list an unusual name; one too many only keeps a file."""
    scheme, _, path = uri.partition("://")
    if "//" in path:
        yield f"{scheme}://{_SLASHES.sub('/', path)}"
    if "%" in path:
        yield f"{scheme}://{unquote(path)}"
