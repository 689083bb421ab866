"""Which version of `main` each table of a replica stands for: what it is to be compared with."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from sterna.catalog.model import Content, Put, key_name, parse_key
from sterna.errors import ReferenceNotFound
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import PLANNED_HASH, Head
from sterna.replica.region import RegionContext
from sterna.verify.places import Places

_DIGEST = re.compile(r"-[0-9a-f]{16}(-s-?[0-9]{1,19})?(?=(\.gz)?\.metadata\.json(\.gz)?$)")


def find_origins(context: RegionContext, head: Head, entries: dict[str, Content], places: Places) -> dict[str, Content]:
    """Find what `main` held under each key when the replica's version of it was made.

    This is the watermark's version; of a held key its last good one; of a key that a sync of chosen tables brought, or
    a seed that isn't over, the one that its own commit names.

    Args:
        context: the region.
        head: the replica branch's head.
        entries: the tables and views to look up, by key name.
        places: the region's judgement of URIs.

    Returns:
        By key name; a key is missing when the catalog has forgotten that version.
    """
    good = {item.key: item.good for item in head.held}
    found = _at(context, {name: good.get(name) or head.watermark for name in entries})
    doubtful = [name for name in entries if name not in found or not stands_for(entries[name], found[name], places)]
    return found | _at(context, _planned(context, head, doubtful))


def stands_for(replica: Content, origin: Content, places: Places) -> bool:
    """Tell whether what a replica branch holds under a key was made from what `main` held.

    Another place, and nothing else changed.
    """
    made_from = source_of(replica.metadata_location or "", places)
    return _bare(replica) == _bare(origin) and made_from == places.origin(origin.metadata_location or "")


def _bare(content: Content) -> dict[str, object]:
    return {name: value for name, value in content.payload.items() if name not in ("id", "metadataLocation")}


def source_of(uri: str, places: Places) -> str | None:
    """Return the origin of the metadata.json that a replica's was made from.

    Its place taken back, and the digest out of its name, with the snapshot behind it where there is one.
    """
    origin = places.origin(uri)
    return origin if origin is None or origin == uri else _DIGEST.sub("", origin)


def _at(context: RegionContext, hashes: dict[str, str]) -> dict[str, Content]:
    """Return what `main` held under each key at a hash of its own."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, hash in hashes.items():
        groups[hash].append(name)
    found: dict[str, Content] = {}
    for hash, names in groups.items():
        try:
            contents = (
                context.catalog.contents(SOURCE_BRANCH, hash, [parse_key(name) for name in names]) if hash else {}
            )
        except ReferenceNotFound:
            continue
        found |= {key_name(key): content for key, content in contents.items()}
    return found


def _planned(context: RegionContext, head: Head, names: Iterable[str]) -> dict[str, str]:
    """Return the hash of `main` that the newest commit on the replica branch which put a key was planned for."""
    left = {parse_key(name): name for name in names}
    found: dict[str, str] = {}
    if not left:
        return found
    for commit in context.catalog.history(f"{context.region.replica_branch}@{head.hash}", operations=True):
        for operation in commit.operations or ():
            if isinstance(operation, Put) and operation.key in left:
                found[left.pop(operation.key)] = commit.properties.get(PLANNED_HASH, "")
        if not left:
            break
    return found
