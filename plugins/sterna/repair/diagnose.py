"""What can be done about the faults that verify found: which files are brought anew from `main`, and which can't be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sterna.catalog.model import ICEBERG_VIEW, Content, key_name
from sterna.errors import TableError
from sterna.iceberg.metadata.model import TableMetadata
from sterna.registry.mapping import shown_by
from sterna.replica import file_list as listing
from sterna.replica.editions import edition_now
from sterna.replica.file_list import CONTENT, METADATA, VIEW_METADATA
from sterna.replica.head import read_head, with_held
from sterna.replica.region import RegionContext
from sterna.replica.wanted import kept
from sterna.sync.plan.reading import read_metadata
from sterna.sync.plan.table_files import table_files, view_files
from sterna.verify.findings import Finding, Verified
from sterna.verify.origins import find_origins, source_of, stands_for
from sterna.verify.places import Places

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Mend:
    """One file below the replica root that is brought anew.

    Args:
        table: key name.
        file: its URI here.
        source: the file on `main` that it is made from.
        how: `copy`, byte for byte, or `localize`.
        why: what is wrong with it.
    """

    table: str
    file: str
    source: str
    how: Literal["copy", "localize"]
    why: str


@dataclass(frozen=True)
class Left:
    """One fault that stays.

    Args:
        table: key name.
        file: the URI that verify names.
        fault: what verify says of it.
        why: why it can't be repaired, and what else can be done.
    """

    table: str
    file: str
    fault: str
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """What can be done.

    Args:
        mends: files that are brought anew.
        left: faults that stay.
        files: all files of the tables that something is mended of (`sterna.replica.file_list`).
    """

    mends: tuple[Mend, ...]
    left: tuple[Left, ...]
    files: pa.Table


def diagnose(context: RegionContext, found: Verified) -> Diagnosis:
    """Find out what can be done about faults; reads `main`'s metadata of the tables that have some, and writes nothing.

    Raises:
        CatalogError, StoreError: something does not answer.
    """
    tables: dict[str, dict[str, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for finding in found.findings:
        tables[finding.table][finding.file].append(finding)
    head = with_held(context.objects, read_head(context.catalog, context.region.replica_branch))
    entries = context.catalog.entries(context.region.replica_branch, head.hash)
    contents = {
        name: content for name, content in ((key_name(key), content) for key, content in entries) if name in tables
    }
    origins = find_origins(context, head, contents, Places(context.mapping))
    mends: list[Mend] = []
    left: list[Left] = []
    parts: list[pa.Table] = []
    for name, broken in tables.items():
        if name not in contents:
            left += [left_over(findings, "its table is no more on the replica branch") for findings in broken.values()]
            continue
        try:
            files = _files(context, name, contents[name], origins.get(name), broken)
        except TableError as error:
            why = (
                f"its table can't be listed on main: {error}; bring the replica up to date by `sterna "
                "sync`, then repair"
            )
            left += [left_over(findings, why) for findings in broken.values()]
            continue
        some, others = _judged(context, name, files, broken)
        mends, left, parts = [*mends, *some], [*left, *others], [*parts, files]
    return Diagnosis(tuple(mends), tuple(left), listing.joined(parts))


def left_over(findings: list[Finding], why: str) -> Left:
    """Return the findings of one file as a fault that stays, and why."""
    return Left(findings[0].table, findings[0].file, _fault(findings), why)


def _fault(findings: list[Finding]) -> str:
    return "; ".join(f"{finding.kind}: {finding.message}" for finding in findings)


def _files(
    context: RegionContext, name: str, content: Content, origin: Content | None, broken: dict[str, list[Finding]]
) -> pa.Table:
    """List all files that the replica's version of a table has, with their sources."""
    target = content.metadata_location or ""
    source = source_of(target, Places(context.mapping)) or ""
    # After a promotion with tables `main` names no origins, and its own file alone tells what it names.
    moved = origin is not None and context.mapping.below_replica_root(origin.metadata_location or "")
    if moved and origin and stands_for(content, origin, Places(context.mapping)):
        source = origin.metadata_location or ""
    if content.kind == ICEBERG_VIEW:
        return view_files(name, source, target)
    metadata = _metadata(context, name, source, target, trusted=target not in broken and not moved)
    return table_files(context, name, source, target, metadata, None, prove=False)


def _metadata(context: RegionContext, name: str, source: str, target: str, *, trusted: bool) -> TableMetadata:
    """Return a table's metadata in terms of `main`.

    From the replica's own file when that is sound, since `main`'s may be gone by now.
    """
    from sterna.iceberg.metadata.history import pruned

    if not trusted:
        metadata = read_metadata(context, source)
        return pruned(metadata, kept(context.registry.policy(name), metadata, shown_by(target)))
    metadata, back = read_metadata(context, target), context.mapping.source
    snapshots = (
        replace(
            item,
            manifest_list=item.manifest_list and back(item.manifest_list),
            manifests=tuple(map(back, item.manifests)),
        )
        for item in metadata.snapshots
    )
    statistics = (replace(item, path=back(item.path)) for item in metadata.statistics)
    return replace(metadata, snapshots=tuple(snapshots), statistics=tuple(statistics))


def _judged(
    context: RegionContext, name: str, files: pa.Table, broken: dict[str, list[Finding]]
) -> tuple[list[Mend], list[Left]]:
    """Say of each broken file of a table whether it can be brought anew."""
    rows = {
        row["target"]: row for row in files.to_pylist() if row["target"] in broken and row["target"] != row["source"]
    }
    sizes = context.objects.sizes({row["source"] for row in rows.values()})
    mends, left = [], []
    for uri, findings in broken.items():
        row = rows.get(uri)
        why = _hindrance(context, name, uri, row, sizes[row["source"]] if row else None)
        if row is None or why:
            left.append(left_over(findings, why))
        else:
            mends.append(
                Mend(name, uri, row["source"], "copy" if row["role"] == CONTENT else "localize", _fault(findings))
            )
    if any(mend.how == "localize" for mend in mends):
        mends += _unseen(context, name, files, broken)
    return mends, left


def _unseen(context: RegionContext, name: str, files: pa.Table, broken: dict[str, list[Finding]]) -> list[Mend]:
    """Return files that are gone as well, and that verify could not see as missing behind those that are broken."""
    foreign = {
        row["target"]: row["source"]
        for row in listing.to_localize(files).to_pylist()
        if row["target"] not in broken and not context.mapping.is_local(row["source"])  # a local one may stay in place
    }
    sizes = context.objects.sizes(foreign) if foreign else {}
    return [Mend(name, uri, source, "localize", "missing") for uri, source in foreign.items() if sizes[uri] is None]


def _hindrance(context: RegionContext, name: str, uri: str, row: dict[str, object] | None, size: int | None) -> str:
    """Return why a file can't be brought anew, "" when it can."""
    if not Places(context.mapping).below_root(uri):
        return "it lies outside the replica root, and is main's own: restore it, or repair the table on main"
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
    if row["role"] != CONTENT and not _made_as_now(context, name, uri, source, str(row["role"])):
        return "it was made under another registry or by another version: `sterna sync --everything` makes a new one"
    return ""


def _made_as_now(context: RegionContext, name: str, uri: str, source: str, role: str) -> bool:
    """Tell whether what this version would make of a file belongs where it stands."""
    edition = edition_now(context.mapping, uri)
    if role in (METADATA, VIEW_METADATA):
        policy = context.registry.policy(name)
        place = context.mapping.metadata(source, policy, edition, view=role == VIEW_METADATA, shown=shown_by(uri))
        return uri == place
    return uri == context.mapping.localized(source, edition)
