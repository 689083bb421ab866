"""What a replica branch shows under each key, against what `main` had at the watermark."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.head import Head
from sterna.replication.replica.metadata_version import sync_digest
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import STALE, Finding
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_versions import is_derived_from, planned_contents


def find_stale_entries(
    context: RegionContext, head: Head, entries: dict[str, Content], places: Places, names: Collection[str] | None
) -> Iterator[Finding]:
    """Yield the keys under which the branch shows something else than the watermark says, though they aren't held.

    No sync looks at them before `main` changes them again. So this is judged only where the next sync wouldn't compare
    all keys: after a sync of chosen tables, an unfinished seed, or a change of the registry it would.

    Args:
        head: the replica branch's head, with its held keys.
        entries: all tables and views of the branch, by key name.
        places: the region's judgement of URIs.
        names: the keys to look at; None: all, also those that the branch lacks.
    """
    is_complete = head.watermark and head.digest == sync_digest(context.registry, context.mapping)
    if not is_complete or head.held_list.read_error:
        return
    try:
        main_entries = dict(context.catalog.entries(SOURCE_BRANCH, head.watermark))
    except ReferenceNotFound:
        return
    expected = {
        name: content
        for name, content in ((key_name(key), content) for key, content in main_entries.items())
        if content.kind in (ICEBERG_TABLE, ICEBERG_VIEW)
        and not context.registry.exclusion_reason(name, context.region.name)
    }
    unheld = (entries.keys() | expected.keys() if names is None else set(names)) - head.held_by_key.keys()
    at_watermark = f"main at the watermark {head.watermark[:12]}"
    for name in sorted(unheld - entries.keys()):
        file = expected[name].metadata_location or ""
        yield Finding(name, STALE, file, f"{at_watermark} has it, and the replica branch doesn't, nor is it held")
    for name in sorted(unheld - expected.keys()):
        file = entries[name].metadata_location or ""
        yield Finding(name, STALE, file, f"{at_watermark} doesn't have it for this region, and the replica branch does")
    differing = [
        name
        for name in sorted(unheld & entries.keys() & expected.keys())
        if not is_derived_from(entries[name], expected[name], places)
    ]
    for name, taken in planned_contents(context, head, differing).items():
        if taken.with_id(None) != expected[name].with_id(None):
            file = entries[name].metadata_location or ""
            yield Finding(name, STALE, file, f"{at_watermark} has a newer version, and it isn't held")
