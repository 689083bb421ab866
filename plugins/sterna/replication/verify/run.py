"""Verifying a replica branch: its structure always, and as much of its content as requested."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, key_name
from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, list_metadata_versions
from sterna.config.registry.model import is_inside, prefix_spellings
from sterna.config.registry.policy import Policy
from sterna.config.registry.residency import ExcludedPlace
from sterna.errors import UsageError, list_some
from sterna.replication.replica.head import load_held_list, read_head
from sterna.replication.replica.region import RegionContext
from sterna.replication.verify.content import Comparison
from sterna.replication.verify.entries import find_stale_entries
from sterna.replication.verify.findings import NOT_RESIDENT, Findings, VerificationReport, combine_findings
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_faults import source_contradictions, source_digest_function
from sterna.replication.verify.source_versions import find_origins
from sterna.replication.verify.table import TableReach, check_structure

_MAX_CONCURRENT_TABLES = 4
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Sample:
    """A share of all files, a different one each day.

    Args:
        parts: how many parts are included.
        total_parts: into how many parts files are divided, by the hash of their URI.
        day: days since 1970.
    """

    parts: int
    total_parts: int
    day: int

    def includes(self, uri: str) -> bool:
        """Return whether a file is in the day's share: each file is once in `total_parts / parts` days, rounded up."""
        part = int.from_bytes(hashlib.sha256(uri.encode()).digest()[:8], "big") % self.total_parts
        return (part - self.day * self.parts) % self.total_parts < self.parts


def parse_sample(text: str, today: date) -> Sample:
    """Read a share such as `1/30`.

    Raises:
        UsageError: the text is no such share.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    parts, total_parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < parts <= total_parts:
        raise UsageError(f"{text!r} is no share: expected one such as 1/30")
    return Sample(parts, total_parts, (today - _EPOCH).days)


@dataclass(frozen=True)
class Depth:
    """How much of a replica is verified beside its structure.

    Args:
        deep: also compare the files below the replica root with those on `main` that they were made from.
        sample: of those, only these; None: all.
    """

    deep: bool = False
    sample: Sample | None = None


def verify(
    context: RegionContext,
    depth: Depth,
    tables: Iterable[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> VerificationReport:
    """Verify a region's replica branch, as its head is now.

    Args:
        depth: how much is verified.
        tables: key names or patterns, as in a policy; default: all tables and views.
        progress: called with a line per table, and now and then while many files are compared.

    Returns:
        Counts and findings; no finding means that nothing is wrong with what was checked.

    Raises:
        UsageError: a name or pattern fits no table or view on the branch; the message names those that are.
        CatalogError, StoreError: something does not answer.
        EngineError: local disk is too small for the files of a very large table.
    """
    head = load_held_list(context.objects, read_head(context.catalog, context.region.replica_branch))
    branch_entries = context.catalog.entries(context.region.replica_branch, head.hash) if head.exists else ()
    entries: dict[str, Content] = {}
    namespaces: set[str] = set()
    for key, content in branch_entries:
        if content.kind in (ICEBERG_TABLE, ICEBERG_VIEW):
            entries[key_name(key)] = content
        elif content.kind == NAMESPACE and len(key) == 1:
            namespaces.add(key[0])
    names = list(tables)
    chosen = _select_entries(context, entries, names)
    places = Places(context.mapping, frozenset(namespaces))
    origins = find_origins(context, head, chosen, places)
    includes = depth.sample.includes if depth.sample else lambda uri: True
    comparison = Comparison(context, places, includes, progress) if depth.deep else None

    digest = source_digest_function(context)

    def check_table(name: str) -> Findings:
        origin = origins.get(name)
        reached, findings = _check_structure(context, places, chosen[name], origin, Findings(name, digest))
        if comparison is not None:
            comparison.compare_table(reached, origin, findings)
        return findings

    def report(findings: Findings) -> None:
        progress(_format_findings(findings, depth))

    verified = combine_findings(_check_concurrently(check_table, chosen, report))
    stale = tuple(find_stale_entries(context, head, entries, places, chosen if names else None))
    verified = replace(verified, findings=(*verified.findings, *stale), faults=verified.faults + len(stale))
    return _with_residency(context, verified, progress)


def verify_structure(
    context: RegionContext, tables: Iterable[str] = (), progress: Callable[[str], None] = lambda line: None
) -> VerificationReport:
    """Check the structure alone of a region's replica branch, which needs no other region.

    Args:
        tables: key names or patterns, as in a policy; default: all tables and views.
        progress: called with a line per table.

    Returns:
        Counts and findings; no finding means that the replica is closed.

    Raises:
        UsageError: a table isn't on the branch; the message names those that are.
        CatalogError, StoreError: something does not answer.
        EngineError: local disk is too small for the files of a very large table.
    """
    return verify(context, Depth(), tables, progress)


def _check_structure(
    context: RegionContext, places: Places, content: Content, origin: Content | None, findings: Findings
) -> tuple[TableReach, Findings]:
    """Check the structure of a table, and separate its writer's mistakes from faults of the replica."""
    reached = check_structure(context, places, content, origin, findings)
    source_digests = source_contradictions(context, origin, findings)
    findings.move_to_main(source_digests)
    if not findings.hides_own_faults(source_digests):
        return reached, findings
    # Only digests of the hidden faults were kept: a second check finds them.
    rechecked = Findings(findings.table, findings.digest, source_digests)
    return check_structure(context, places, content, origin, rechecked), rechecked


def _check_concurrently(
    check_table: Callable[[str], Findings], names: Iterable[str], report: Callable[[Findings], None]
) -> list[Findings]:
    """Check tables in threads; where one raises, those that wait are not begun."""
    findings = []
    pool = ThreadPoolExecutor(_MAX_CONCURRENT_TABLES, thread_name_prefix="sterna-tables")
    try:
        for future in [pool.submit(check_table, name) for name in names]:
            findings.append(future.result())
            report(findings[-1])
    finally:
        pool.shutdown(cancel_futures=True)
    return findings


def _with_residency(
    context: RegionContext, verified: VerificationReport, progress: Callable[[str], None]
) -> VerificationReport:
    """Add the files below the replica root that a residency rule keeps out of this region, where there is one."""
    if not context.mapping.excluded_places:
        return verified
    findings = _check_residency(context)
    progress(f"residency: {findings.files} files that may not be here")
    return replace(verified, findings=(*verified.findings, *findings.kept), faults=verified.faults + findings.faults)


def _check_residency(context: RegionContext) -> Findings:
    """Find copies of files that this region may not have: one fault a folder, however many they are.

    They are listed in the store, below the replica root, whatever the branch or a plan names.

    Raises:
        StoreError: the region's store doesn't answer.
    """
    findings = Findings("(below the replica root)")
    root = context.region.replica_root
    metadata_versions = list_metadata_versions(context.objects.folders(f"{root}/{LOCALIZED_FOLDER}"))
    roots = (root, *(f"{root}/{version.folder}" for version in metadata_versions))
    for place in context.mapping.excluded_places:
        for folder in (f"{root}/{name}" for name in _excluded_folders(context, place) for root in roots):
            count, size, first = 0, 0, ""
            for uri, length, _ in context.objects.list(folder):
                count, size, first = count + 1, size + length, first or uri
            findings.files, findings.bytes = findings.files + count, findings.bytes + size
            if count:
                more = f" and {count - 1} more below {folder}" if count > 1 else ""
                findings.add(NOT_RESIDENT, first, f"may not be in {context.region.name}: {place.rule}{more}")
    return findings


def _excluded_folders(context: RegionContext, place: ExcludedPlace) -> Iterator[str]:
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
            name = f"{location.id}~{alias}" if alias else location.id
            yield f"{name}{below}"


def _format_findings(findings: Findings, depth: Depth) -> str:
    compared = f", {findings.compared} compared, {findings.not_comparable} not comparable" if depth.deep else ""
    return f"{findings.table}: {findings.files} files{compared}, {findings.faults} faults"


def _select_entries(context: RegionContext, entries: dict[str, Content], names: list[str]) -> dict[str, Content]:
    """Return the entries that match names or patterns, sorted; all where there are none."""
    matches = {
        text: {name for name in entries if name == text or Policy(tables=[text]).matches(name)} for text in names
    }
    for text, matching in matches.items():
        if not matching:
            shown = list_some(sorted(entries)) or "none"
            raise UsageError(f"no table {text!r} on {context.region.replica_branch}: there are {shown}")
    chosen = set().union(*matches.values()) if names else set(entries)
    return {name: entries[name] for name in sorted(chosen)}
