"""What verify says of a branch's entries: nothing, as long as all else holds."""

from __future__ import annotations

from sterna.catalog.model import NAMESPACE, key_name
from sterna.replication.replica.head import load_held_list, read_head
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.entries import find_stale_entries
from sterna.replication.verify.findings import Finding
from sterna.replication.verify.locations import Places


def stale_entries(context: RegionContext) -> list[Finding]:
    """Return the entries of a region's branch that are other than the watermark says, by verify."""
    head = load_held_list(context.objects, read_head(context.catalog, context.region.replica_branch))
    entries = {
        key_name(key): content
        for key, content in context.catalog.entries(context.region.replica_branch, head.hash)
        if content.kind != NAMESPACE
    }
    return list(find_stale_entries(context, head, entries, Places(context.mapping), None))
