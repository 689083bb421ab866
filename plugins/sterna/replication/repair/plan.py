"""The plan of a repair: which faulty files can be restored from `main`, and which can't."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from sterna.catalog.model import ICEBERG_VIEW, Content, key_name
from sterna.config.metadata_names import extra_snapshot_id
from sterna.errors import TableError
from sterna.iceberg.metadata.model import TableMetadata
from sterna.libraries import pa
from sterna.replication.plan.manifests import list_shard
from sterna.replication.plan.metadata_reader import read_metadata
from sterna.replication.plan.table_files import list_table_files, list_view_files
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.desired_state import retained_snapshots
from sterna.replication.replica.file_list import CONTENT, METADATA, VIEW_METADATA
from sterna.replication.replica.head import load_held_list, read_head
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.findings import STALE, Finding, VerificationReport
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_versions import find_origins, is_derived_from, source_metadata_uri


@dataclass(frozen=True)
class FileRepair:
    """One file below the replica root that is restored.

    Args:
        table: key name.
        file: its URI in this region.
        source: the file on `main` that it is made from.
        how: `copy`, byte for byte, or `localize`.
        why: its fault.
    """

    table: str
    file: str
    source: str
    how: Literal["copy", "localize"]
    why: str


@dataclass(frozen=True)
class RemainingFault:
    """One fault that stays.

    Args:
        table: key name.
        file: the URI that verify names.
        fault: the finding of verify.
        why: why it can't be repaired, and what else can be done.
    """

    table: str
    file: str
    fault: str
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """The faults that a repair can fix, and those that it can't.

    Args:
        repairs: files that are restored.
        remaining: faults that stay.
        files: all files of the tables that are repaired (`sterna.replication.replica.file_list`).
    """

    repairs: tuple[FileRepair, ...]
    remaining: tuple[RemainingFault, ...]
    files: pa.Table


def diagnose(context: RegionContext, report: VerificationReport) -> Diagnosis:
    """Find out what can be done about faults; reads `main`'s metadata of the tables that have some, and writes nothing.

    Raises:
        CatalogError, StoreError: something does not answer.
    """
    tables: dict[str, dict[str, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for finding in report.findings:
        if finding.kind != STALE:
            tables[finding.table][finding.file].append(finding)
    head = load_held_list(context.objects, read_head(context.catalog, context.region.replica_branch))
    entries = context.catalog.entries(context.region.replica_branch, head.hash)
    contents = {
        name: content for name, content in ((key_name(key), content) for key, content in entries) if name in tables
    }
    origins = find_origins(context, head, contents, Places(context.mapping))
    repairs: list[FileRepair] = []
    remaining = [
        remaining_fault([finding], "no file is wrong: `sterna sync --full` compares all tables with main")
        for finding in report.findings
        if finding.kind == STALE
    ]
    parts: list[pa.Table] = []
    for name, broken in tables.items():
        if name not in contents:
            remaining += [
                remaining_fault(findings, "its table is no more on the replica branch") for findings in broken.values()
            ]
            continue
        try:
            files = _list_files(context, name, contents[name], origins.get(name), broken)
        except TableError as error:
            reason = f"its table can't be listed on main: {error}; update the replica by `sterna sync`, then repair"
            remaining += [remaining_fault(findings, reason) for findings in broken.values()]
            continue
        table_repairs, table_remaining = _plan_repairs(context, name, files, broken)
        repairs, remaining, parts = [*repairs, *table_repairs], [*remaining, *table_remaining], [*parts, files]
    return Diagnosis(tuple(repairs), tuple(remaining), listing.concat_files(parts))


def remaining_fault(findings: list[Finding], reason: str) -> RemainingFault:
    """Return the findings of one file as a fault that stays, and why."""
    return RemainingFault(findings[0].table, findings[0].file, _format_findings(findings), reason)


def _format_findings(findings: list[Finding]) -> str:
    return "; ".join(f"{finding.kind}: {finding.message}" for finding in findings)


def _list_files(
    context: RegionContext, name: str, content: Content, origin: Content | None, broken: dict[str, list[Finding]]
) -> pa.Table:
    """List all files that the replica's version of a table has, with their sources."""
    target = content.metadata_location or ""
    source = source_metadata_uri(target, Places(context.mapping)) or ""
    # After a promotion with tables `main` names no origins; they follow from its own file alone.
    moved = origin is not None and context.mapping.below_replica_root(origin.metadata_location or "")
    if moved and origin and is_derived_from(content, origin, Places(context.mapping)):
        source = origin.metadata_location or ""
    if content.kind == ICEBERG_VIEW:
        return list_view_files(name, source, target)
    metadata = _read_source_metadata(context, name, source, target, trusted=target not in broken and not moved)
    return list_table_files(
        context, name, source, target, metadata, None, list_content=partial(list_shard, proves=False)
    )


def _read_source_metadata(
    context: RegionContext, name: str, source: str, target: str, *, trusted: bool
) -> TableMetadata:
    """Return a table's metadata in terms of `main`.

    From the replica's own file when that is sound, since `main`'s may be gone by now.
    """
    from sterna.iceberg.metadata.history import prune_snapshots

    if not trusted:
        metadata = read_metadata(context, source)
        return prune_snapshots(
            metadata, retained_snapshots(context.registry.policy(name), metadata, extra_snapshot_id(target))
        )
    metadata, to_source = read_metadata(context, target), context.mapping.origin_uri
    snapshots = (
        replace(
            snapshot,
            manifest_list=snapshot.manifest_list and to_source(snapshot.manifest_list),
            manifests=tuple(map(to_source, snapshot.manifests)),
        )
        for snapshot in metadata.snapshots
    )
    statistics = (replace(file, path=to_source(file.path)) for file in metadata.statistics)
    return replace(metadata, snapshots=tuple(snapshots), statistics=tuple(statistics))


def _plan_repairs(
    context: RegionContext, name: str, files: pa.Table, broken: dict[str, list[Finding]]
) -> tuple[list[FileRepair], list[RemainingFault]]:
    """Divide the faulty files of a table into those that can be restored, and those that can't."""
    rows = {
        row["target"]: row for row in files.to_pylist() if row["target"] in broken and row["target"] != row["source"]
    }
    sizes = context.objects.sizes({row["source"] for row in rows.values()})
    repairs, remaining = [], []
    for uri, findings in broken.items():
        row = rows.get(uri)
        reason = _unrepairable_reason(context, name, uri, row, sizes[row["source"]] if row else None)
        if row is None or reason:
            remaining.append(remaining_fault(findings, reason))
        else:
            repairs.append(
                FileRepair(
                    name,
                    uri,
                    row["source"],
                    "copy" if row["role"] == CONTENT else "localize",
                    _format_findings(findings),
                )
            )
    if any(repair.how == "localize" for repair in repairs):
        repairs += _plan_missing(context, name, files, broken)
    return repairs, remaining


def _plan_missing(
    context: RegionContext, name: str, files: pa.Table, broken: dict[str, list[Finding]]
) -> list[FileRepair]:
    """Return files that are gone as well, and that verify could not see as missing behind those that are broken."""
    foreign = {
        row["target"]: row["source"]
        for row in listing.files_to_localize(files).to_pylist()
        if row["target"] not in broken and not context.mapping.is_local(row["source"])  # a local one may stay in place
    }
    sizes = context.objects.sizes(foreign) if foreign else {}
    return [
        FileRepair(name, uri, source, "localize", "missing") for uri, source in foreign.items() if sizes[uri] is None
    ]


def _unrepairable_reason(
    context: RegionContext, name: str, uri: str, row: dict[str, object] | None, size: int | None
) -> str:
    """Return why a file can't be restored, "" when it can."""
    if not Places(context.mapping).below_root(uri):
        return "it is outside the replica root, and main's own: restore it, or repair the table on main"
    if row is None:
        return (
            "main names it where it is, after a promotion with tables, or has no such file, which --deep "
            "finds: restore it"
        )
    source = str(row["source"])
    if size is None:
        return (
            f"its source {source} is gone: once main's current version does without it, `sterna sync` "
            "takes it off the replica"
        )
    if row["size"] not in (-1, size):
        return f"its source {source} has {size} bytes, its metadata says {row['size']}: repair the table on main"
    if row["role"] != CONTENT and not _matches_current_mapping(context, name, uri, source, str(row["role"])):
        return "it was made under another registry or by another version: `sterna sync --full` makes a new one"
    return ""


def _matches_current_mapping(context: RegionContext, name: str, uri: str, source: str, role: str) -> bool:
    """Return whether this version of sterna localizes a file to the URI that it has."""
    metadata_version = current_metadata_version(context.mapping, uri)
    if role in (METADATA, VIEW_METADATA):
        policy = context.registry.policy(name)
        is_view = role == VIEW_METADATA
        return context.mapping.is_metadata_uri(uri, source, policy, metadata_version, view=is_view)
    return uri == context.mapping.localized_uri(source, metadata_version)
