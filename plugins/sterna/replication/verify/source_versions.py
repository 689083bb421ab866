"""The version of `main` that each table of a replica was made from, and is compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sterna.catalog.model import Content, key_name, parse_key
from sterna.config.metadata_names import without_digest
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.head import PLANNED_HASH, RESTORED_OVER, Head
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.locations import Places


def find_origins(context: RegionContext, head: Head, entries: dict[str, Content], places: Places) -> dict[str, Content]:
    """Find what `main` held under each key when the replica's version of it was made.

    This is the watermark's version; of a held key its last good one; of a key that a sync of chosen tables, or an
    unfinished seed, published, the one that its own commit names.

    Args:
        head: the replica branch's head.
        entries: the tables and views, by key name.
        places: the region's judgement of URIs.

    Returns:
        By key name; a key is missing when the catalog has forgotten that version.
    """
    last_good_hashes = {held_key.key: held_key.good for held_key in head.held}
    origins = _read_contents(context, {name: last_good_hashes.get(name) or head.watermark for name in entries})
    unresolved = [
        name for name in entries if name not in origins or not is_derived_from(entries[name], origins[name], places)
    ]
    return origins | planned_contents(context, head, unresolved)


def planned_contents(context: RegionContext, head: Head, names: Iterable[str]) -> dict[str, Content]:
    """Return what `main` held under some keys at the commits that the syncs which published them were planned for.

    A key is missing when the catalog has forgotten that.
    """
    return _read_contents(context, _planned_hashes(context, head, names))


def is_derived_from(replica: Content, origin: Content, places: Places) -> bool:
    """Return whether the content of a replica branch under a key was made from that of `main`.

    Another place, and nothing else changed.
    """
    source_uri = source_metadata_uri(replica.metadata_location or "", places)
    return _without_location(replica) == _without_location(origin) and source_uri == places.origin(
        origin.metadata_location or ""
    )


def _without_location(content: Content) -> dict[str, object]:
    return {name: value for name, value in content.payload.items() if name not in ("id", "metadataLocation")}


def source_metadata_uri(uri: str, places: Places) -> str | None:
    """Return the origin of the metadata.json that a replica's was made from.

    Its place taken back, and the digest out of its name, with the snapshot behind it where there is one.
    """
    origin = places.origin(uri)
    return origin if origin is None or origin == uri else without_digest(origin)


def _read_contents(context: RegionContext, hashes: dict[str, str]) -> dict[str, Content]:
    """Return what `main` held under each key at a hash of its own."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, hash in hashes.items():
        groups[hash].append(name)
    contents_by_name: dict[str, Content] = {}
    for hash, names in groups.items():
        try:
            contents = (
                context.catalog.contents(SOURCE_BRANCH, hash, [parse_key(name) for name in names]) if hash else {}
            )
        except ReferenceNotFound:
            continue
        contents_by_name |= {key_name(key): content for key, content in contents.items()}
    return contents_by_name


def _planned_hashes(context: RegionContext, head: Head, names: Iterable[str]) -> dict[str, str]:
    """Return the hash of `main` that the newest commit on the replica branch which put a key was planned for."""
    pending = {parse_key(name): name for name in names}
    hashes: dict[str, str] = {}
    if not pending:
        return hashes
    for commit in context.catalog.history(f"{context.region.replica_branch}@{head.hash}", operations=True):
        # What a restored branch has back is what an earlier commit took; another client's commits took nothing.
        planned = "" if RESTORED_OVER in commit.properties else commit.properties.get(PLANNED_HASH, "")
        for put in commit.puts if planned else ():
            if put.key in pending:
                hashes[pending.pop(put.key)] = planned
        if not pending:
            break
    return hashes
