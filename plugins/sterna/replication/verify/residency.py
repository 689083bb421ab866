"""Files that may not be in this region: a residency rule by location or prefix excludes their origin.

They are listed in the store, below the replica root, whatever the branch or a plan names. The names of folders are the
mapping's own rule. Which of them an excluded place may have is told independently of it: from the registry, by every
spelling, those included that the mapping makes no copies of.
"""

from __future__ import annotations

from collections.abc import Iterator

from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, list_metadata_versions
from sterna.config.registry.model import is_inside, prefix_spellings
from sterna.config.registry.replica_paths import replica_path, version_root
from sterna.config.registry.residency import ExcludedPlace
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import NOT_RESIDENT, Findings


def check_residency(context: RegionContext) -> Findings:
    """Find copies of files that this region may not have: one fault a folder, however many they are.

    Raises:
        StoreError: the region's store doesn't answer.
    """
    findings = Findings("(below the replica root)")
    root = context.region.replica_root
    metadata_versions = (
        list_metadata_versions(context.objects.folders(f"{root}/{LOCALIZED_FOLDER}"))
        if context.mapping.excluded_places
        else []
    )
    roots = [version_root(root, version) for version in (None, *metadata_versions)]
    for place in context.mapping.excluded_places:
        for folder in (f"{root}/{name}" for name in _folders(context, place) for root in roots):
            count, size, first = 0, 0, ""
            for uri, length, _ in context.objects.list(folder):
                count, size, first = count + 1, size + length, first or uri
            findings.files, findings.bytes = findings.files + count, findings.bytes + size
            if count:
                more = f" and {count - 1} more below {folder}" if count > 1 else ""
                findings.add(NOT_RESIDENT, first, f"may not be in {context.region.name}: {place.rule}{more}")
    return findings


def _folders(context: RegionContext, place: ExcludedPlace) -> Iterator[str]:
    """Yield where copies of a place's files, and what was localized of them, would stand below their roots."""
    for location in context.registry.locations:
        if place.location not in ("", location.id):
            continue
        for alias, prefix in prefix_spellings(location.prefix).items():
            if place.location or is_inside(prefix, place.prefix):
                below = ""
            elif is_inside(place.prefix, prefix):
                below = place.prefix.removeprefix(prefix)
            else:
                continue
            yield replica_path(location.id, alias, below.removeprefix("/"))
