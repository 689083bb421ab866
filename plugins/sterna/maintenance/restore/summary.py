"""How much a version of a table has, by its own metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Content
from sterna.iceberg.json_text import read_document
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class Counts:
    """What a table's current snapshot counts; None where it doesn't say."""

    rows: int | None = None
    data_files: int | None = None
    bytes: int | None = None


def read_counts(context: RegionContext, content: Content) -> Counts:
    """Return what a version of a table has, by the summary of its current snapshot.

    Args:
        context: a region whose stores have its metadata.json.
        content: the catalog's entry.

    Raises:
        BrokenMetadata: its metadata.json doesn't parse.
        StoreError: it can't be read.
    """
    uri = content.metadata_location
    if content.kind != ICEBERG_TABLE or not uri:
        return Counts()
    metadata: Any = json.loads(read_document(context.objects.read(uri), uri, context.region.limits).text)
    current = metadata.get("current-snapshot-id")
    snapshot = next((it for it in metadata.get("snapshots") or () if it.get("snapshot-id") == current), None)
    summary: Mapping[str, Any] = (snapshot or {}).get("summary") or {}
    if snapshot is None:
        return Counts(0, 0, 0)
    return Counts(*(_count(summary.get(name)) for name in ("total-records", "total-data-files", "total-files-size")))


def _count(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdigit() else None
