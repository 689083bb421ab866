"""What branches and tags show: their versions of tables and views, polled again and again during a pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sterna.catalog.model import NAMESPACE, Commit, Content, Key, Reference, key_name
from sterna.catalog.reader import CatalogReader, entries_since
from sterna.config.registry.model import Registry
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.reachability import TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.tags import has_region_prefix

OWN_COPY = "this region's copy of"


@dataclass(frozen=True)
class ReferenceVersions:
    """A branch or tag, at its head.

    Args:
        versions: those that it shows.
        replica_of: the region whose replica it shows, where sterna created it; else "".
        hash: of its head.
    """

    name: str
    versions: tuple[TableVersion, ...]
    replica_of: str = ""
    hash: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether it was read from this region's own copy of the catalog."""
        return self.name.startswith(f"{OWN_COPY} ")


class ReferencePoller:
    """Polls all branches and tags, and some branches in this region's own copy of the catalog, where it has one.

    Each poll after the first costs only what changed since.

    Args:
        copied_branches: names of the branches that are polled in the own copy.
        excluded_branch: name of a branch that isn't polled at the primary.
    """

    def __init__(self, context: RegionContext, copied_branches: Collection[str], excluded_branch: str = "") -> None:
        self._context = context
        self._copied_branches = copied_branches
        self.excluded_branch = excluded_branch
        self._polled_hashes: dict[str, str] = {}

    @property
    def polled_hashes(self) -> dict[str, str]:
        """The references that were polled, with their commits; those in the own copy have its name in front."""
        return dict(self._polled_hashes)

    def poll(self) -> Iterator[ReferenceVersions]:
        """Yield what the references show; of one that was polled before, what was put there since."""
        context = self._context
        for reference in context.primary.references():
            if reference.name != self.excluded_branch:
                yield from self._read_changes(context.primary, reference, reference.name)
        for branch in self._copied_branches if context.catalog is not context.primary else ():
            name = f"{OWN_COPY} {branch}"
            try:
                reference = context.catalog.reference(branch)
            except ReferenceNotFound:
                self._polled_hashes.pop(name, None)
                continue  # the copy does not have it yet: it has no readers there
            yield from self._read_changes(context.catalog, reference, name)

    def _read_changes(self, catalog: CatalogReader, reference: Reference, name: str) -> list[ReferenceVersions]:
        """Return what a reference shows, or nothing where it is dropped meanwhile."""
        while True:
            polled_hash = self._polled_hashes.get(name)
            if reference.hash in (polled_hash, catalog.no_ancestor()):
                return []
            try:
                versions = tuple(read_versions(catalog, reference.name, reference.hash, polled_hash))
                break
            except ReferenceNotFound:
                existing = {other.name: other for other in catalog.references()}.get(reference.name)
                if existing is None:
                    return []
                # A commit that the catalog has forgotten can't be compared with.
                forgotten = self._polled_hashes.pop(name, None)
                if forgotten is None and existing.hash == reference.hash:
                    raise
                reference = existing
        self._polled_hashes[name] = reference.hash
        replica_of = _replica_of(self._context.registry, reference)
        return [ReferenceVersions(name, versions, replica_of, reference.hash)]


def read_versions(
    catalog: CatalogReader, reference: str, hash: str, since: str | None = None
) -> Iterator[TableVersion]:
    """Return what a reference shows at a commit, read as it is iterated over.

    Args:
        since: an earlier commit: only what was put since; None: everything.
    """
    return _content_versions(entries_since(catalog, reference, since, hash))


def put_versions(commit: Commit) -> Iterator[TableVersion]:
    """Yield what a commit put."""
    return _content_versions((put.key, put.content) for put in commit.puts)


def _content_versions(entries: Iterable[tuple[Key, Content]]) -> Iterator[TableVersion]:
    for key, content in entries:
        if content.kind != NAMESPACE:
            yield TableVersion(key_name(key), content.kind, content.metadata_location or "", content.snapshot_id)


def _replica_of(registry: Registry, reference: Reference) -> str:
    """Return the region whose replica a reference shows, "" where that isn't certain."""
    for region in registry.regions:
        if reference.name == region.replica_branch:
            return region.name
    # One region's name may begin as another's does: then it isn't certain.
    candidates = [
        region.name
        for region in registry.regions
        if reference.kind == "TAG" and has_region_prefix(region.name, reference.name)
    ]
    return candidates[0] if len(candidates) == 1 else ""
