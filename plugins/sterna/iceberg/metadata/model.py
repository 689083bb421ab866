"""What sterna reads of a table's metadata.json, as data.

Source of the fields: Iceberg specification, "Table Metadata Fields", "Snapshots", "Snapshot References" and
"Statistics" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Snapshot:
    """One retained version of a table.

    Args:
        parent_id: the id of the snapshot it was made from, if recorded; that one may have expired.
        timestamp_ms: when it was made, in milliseconds since 1970.
        manifest_list: the URI of its manifest list; None when its manifests are inline.
        schema_id: the id of the schema it was written with, if recorded.
        manifests: the URIs of its inline manifests, which v1 writers could use in place of a manifest list.
        wap_id: its summary's `wap.id`, under which it was staged (write-audit-publish), or "".
        operation: its summary's `operation`, such as `append`; "" where it has none.
        sterna_properties: what of its summary sterna wrote: names that begin with `sterna.`, with their values.
        has_inherited_files: its summary counts files of a snapshot before it, kept or taken away.
    """

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    manifest_list: str | None
    schema_id: int | None
    manifests: tuple[str, ...] = ()
    wap_id: str = ""
    operation: str = ""
    sterna_properties: tuple[tuple[str, str], ...] = ()
    has_inherited_files: bool = False


@dataclass(frozen=True)
class StatisticsFile:
    """A table or partition statistics file: a content file that metadata.json names itself.

    Args:
        length: its size in bytes.
        snapshot_id: the id of the snapshot that it describes.
    """

    path: str
    length: int
    snapshot_id: int


@dataclass(frozen=True)
class Branch:
    """A branch of a table, and its retention settings for expiry.

    Args:
        snapshot_id: the snapshot that it points at.
        max_age_ms: snapshots that are younger stay; None: the table's setting counts.
        min_snapshots: so many stay, the branch's newest; None: the table's setting counts.
        has_invalid_retention: one of the two is no number that a limit can be.
    """

    snapshot_id: int
    max_age_ms: int | None = None
    min_snapshots: int | None = None
    has_invalid_retention: bool = False


@dataclass(frozen=True)
class TableMetadata:
    """What sterna reads of one metadata.json.

    Args:
        format_version: 1, 2 or 3.
        uuid: the table's UUID; v1 tables may have none.
        location: the table's base location.
        current_snapshot_id: the current snapshot, or None for an empty table.
        last_updated_ms: when the file was written, in milliseconds since 1970.
        snapshots: the retained snapshots, in the file's order.
        statistics: table and partition statistics files.
        refs: branches and tags, by name, with the id of the snapshot that each points at.
        snapshot_log: ids of the snapshots that were current one after another, as far back as the log goes.
        metadata_log: the URIs of the table's earlier metadata.json, as far back as the log goes.
        branches: those among the refs that are no tags.
        dropped_source_fields: by id of a partition spec, the names of those of its fields whose columns were dropped:
            Iceberg writes no files by such a spec any more.
    """

    format_version: int
    uuid: str | None
    location: str
    current_snapshot_id: int | None
    last_updated_ms: int
    snapshots: tuple[Snapshot, ...]
    statistics: tuple[StatisticsFile, ...]
    properties: dict[str, str]
    refs: dict[str, int]
    snapshot_log: tuple[int, ...]
    metadata_log: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()
    dropped_source_fields: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
