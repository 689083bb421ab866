"""Judging URIs by the registry's prefixes.

Local or foreign, below the replica root or not, and what they were copied from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import Region, is_inside, prefix_spellings
from sterna.errors import TableError
from sterna.libraries import pa, pc

# What only `Mapping.locate` can judge: control characters, queries, empty path parts, and "." or ".." as a path part,
# spelled out or not.
_UNUSUAL = r"[\x00-\x1f\x7f?]|[^:/]//|/[^/]*://|(?i:%2[ef])|/\.{0,2}$|/\.{1,2}/"


class Places:
    """Classifies URIs for one region: local, foreign, or stray.

    Args:
        namespaces: those at the root of the branch.
        mapping: the region's mapping. URIs are classified by its prefixes and its inverse; where this region reads a
            data file, and the names of a promoted table's files, follow from the mapping itself.
    """

    def __init__(self, mapping: Mapping, namespaces: frozenset[str] = frozenset()) -> None:
        self.mapping = mapping
        self.namespaces = namespaces
        self._mappings: dict[str, Mapping] = {}
        self.region = mapping.region.name
        self._root = mapping.region.replica_root
        self.limits = mapping.region.limits

    def is_local(self, uri: str) -> bool:
        """Return whether a URI is in this region; one in no location, or that must not be followed, is not."""
        try:
            return self.mapping.is_local(uri)
        except TableError:
            return False

    def is_foreign(self, value: str) -> bool:
        """Return whether a text, which need not be a URI, is a URI of another region."""
        return self.is_registered(value) and not self.is_local(value.removesuffix("/"))

    def is_registered(self, value: str) -> bool:
        """Return whether a text, which need not be a URI, is in any location."""
        return any(is_inside(value.rstrip("/"), prefix) for prefix, _ in self._prefixes)

    def below_root(self, uri: str) -> bool:
        """Return whether a URI is below this region's replica root."""
        return is_inside(uri, self._root)

    def select_foreign(self, uris: pa.Array | pa.ChunkedArray) -> list[str]:
        """Return the distinct ones among many URIs that are not in this region; nulls are passed over."""
        # Only copies are below the replica root, so nearly all of a replica's URIs are judged by this one
        # prefix.
        is_unusual = pc.match_substring_regex(uris, _UNUSUAL)
        is_below_root = pc.and_not(pc.starts_with(uris, f"{self._root}/"), is_unusual)
        foreign: list[str] = []
        remaining = uris.filter(pc.invert(is_below_root))
        is_unusual = is_unusual.filter(pc.invert(is_below_root))
        foreign += [uri for uri in remaining.filter(is_unusual).unique().to_pylist() if not self.is_local(uri)]
        remaining = remaining.filter(pc.invert(is_unusual))
        for prefix, local in self._prefixes:
            matches = pc.starts_with(remaining, f"{prefix}/")
            foreign += [] if local else remaining.filter(matches).unique().to_pylist()
            remaining = remaining.filter(pc.invert(matches))
        return [*foreign, *remaining.unique().to_pylist()]

    def origin(self, uri: str) -> str | None:
        """Return the origin of a file that a replica names, or that `main` names; None when unknown."""
        try:
            return self.mapping.origin_uri(uri)
        except TableError:
            return None

    def owner(self, metadata: str) -> Region | None:
        """Return the region below whose replica root a metadata.json is."""
        return next(
            (region for region in self.mapping.registry.regions if is_inside(metadata, region.replica_root)), None
        )

    def sources(self, uri: str, metadata: str, metadata_versions: Sequence[MetadataVersion]) -> list[str]:
        """Return the URIs that a replica's file may have on `main`, the likelier first.

        Args:
            uri: the file.
            metadata: the table's metadata.json on `main`; after a promotion with tables it is below a region's replica
                root, and so are all files that it names: written by sterna, or by writers since.
            metadata_versions: those of that region's localized files.
        """
        origin, owner = self.origin(uri), self.owner(metadata)
        if origin is None or owner is None:
            return [origin] if origin else []
        owner_mapping = self._mappings.setdefault(owner.name, Mapping(self.mapping.registry, owner))
        try:
            localized = (
                owner_mapping.localized_uri(origin, metadata_version) for metadata_version in metadata_versions
            )
            return list(
                dict.fromkeys((owner_mapping.replica_uri(origin), owner_mapping.content_uri(origin), *localized))
            )
        except TableError:
            return []

    def is_stray(self, uri: str) -> bool:
        """Return whether this region reads a local URI's data file at another URI, or not at all.

        A delete that names such a URI has no effect. One that names a right URI whose data file is gone is no fault:
        deletes outlive the files that they were written for, on `main` too.
        """
        origin = self.origin(uri)
        try:
            return origin is None or self.mapping.content_uri(origin) != uri
        except TableError:
            return True

    @cached_property
    def _prefixes(self) -> list[tuple[str, bool]]:
        """Every spelling of every location's prefix, longest first, and whether it is in this region."""
        local_by_prefix: dict[str, bool] = {}
        for location in self.mapping.registry.locations:
            for alias, prefix in prefix_spellings(location.prefix).items():
                # A spelling that the registry uses for a location of its own is no alias of another.
                if not alias or prefix not in local_by_prefix:
                    local_by_prefix[prefix] = location.region == self.region
        return sorted(local_by_prefix.items(), key=lambda item: len(item[0]), reverse=True)
