"""Where a region keeps verbatim copies of other regions' path-bearing files, and which of its own files need them.

A localized file lacks what localizing drops, such as bounds and split offsets, and has other lengths. So a commit to
`main` is made from the originals. With their copies a region's REST address takes commits to a table while the store of
its home does not answer.

Copies are in `<replica root>/_sterna/verbatim/<location>/<path>`, by the rule that the localized files have. There are
none of this region's own files, and none of files below a replica root, as `main` names them after a promotion with
tables: the address takes no commits to such tables.

Beside them is a marker for each version of a table whose copies are all here. It has the name of the localized
metadata.json, by which the version's snapshots are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sterna.config.mapping import Mapping
from sterna.config.metadata_names import without_digest
from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, split_metadata_version
from sterna.config.registry.folders import VERBATIM, state_folder
from sterna.config.registry.paths import validate_key
from sterna.errors import TableError


def verbatim_uri(mapping: Mapping, uri: str) -> str:
    """Return where a region keeps the verbatim copy of a path-bearing file of `main`; "" where it keeps none.

    Args:
        mapping: of the region.
        uri: as `main` names the file.
    """
    if not mapping.region.verbatim_copies:
        return ""
    try:
        if mapping.is_local(uri) or mapping.below_replica_root(uri):
            return ""
        mapping.require_resident(uri)
        copy = f"{_copies_root(mapping)}{mapping.locate(uri).replica_path}"
        validate_key(uri, copy)
    except TableError:
        return ""  # no file that is replicated
    return copy


def regions_with_copies(mapping: Mapping) -> tuple[Mapping, ...]:
    """Return the mappings of all regions that keep verbatim copies: a region's own first, then by what it pays there.

    Args:
        mapping: of the region that reads.
    """
    here = mapping.region.name

    def rank(other: Mapping) -> tuple[bool, float, str]:
        location = mapping.locate(other.region.replica_root).location
        return other.region.name != here, location.egress_price(here), other.region.name

    registry = mapping.registry
    mappings = (Mapping(registry, region) for region in registry.regions if region.verbatim_copies)
    return tuple(sorted(mappings, key=rank))


def content_copy(mapping: Mapping, uri: str) -> str:
    """Return where a region has its copy of a content file; "" where that is the file itself, or it may have none."""
    try:
        copy = mapping.content_uri(uri)
    except TableError:
        return ""
    return "" if copy == uri else copy


def marker_uri(mapping: Mapping, target: str) -> str:
    """Return where a region marks that all verbatim copies of a table's version are there; "" where it marks none.

    Args:
        mapping: of the region.
        target: URI of the version's localized metadata.json.
    """
    path = target.removeprefix(f"{mapping.region.replica_root}/")
    version, path = split_metadata_version(path)
    if not mapping.region.verbatim_copies or version is None or without_digest(path) == path:
        return ""
    return f"{_copies_root(mapping)}{path}"


def copies_of_localized(mapping: Mapping, uris: Iterable[str]) -> Iterator[str]:
    """Yield the places of the verbatim copies and markers that belong to localized files, whether or not they exist.

    Args:
        mapping: of the region.
        uris: files below its replica root; what isn't localized has no copy.
    """
    root = f"{mapping.region.replica_root}/"
    if not mapping.region.verbatim_copies:
        return
    for uri in uris:
        if uri.startswith(f"{root}{LOCALIZED_FOLDER}/"):
            path = split_metadata_version(uri.removeprefix(root))[1]
            yield f"{_copies_root(mapping)}{path}"
            if (origin := without_digest(path)) != path:
                yield f"{_copies_root(mapping)}{origin}"


def _copies_root(mapping: Mapping) -> str:
    return f"{state_folder(mapping.region.replica_root, VERBATIM)}/"
