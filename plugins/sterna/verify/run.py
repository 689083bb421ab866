"""Verifying a replica branch: its structure always, and as much of its content as was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, key_name
from sterna.errors import UsageError
from sterna.registry.policy import Policy
from sterna.replica.head import read_head, with_held
from sterna.replica.region import RegionContext
from sterna.verify.deep import Comparison
from sterna.verify.findings import Findings, Verified, summed
from sterna.verify.on_main import digest_on_main, writers_mistakes
from sterna.verify.origins import find_origins
from sterna.verify.places import Places
from sterna.verify.residency import check_residency
from sterna.verify.sample import Sample
from sterna.verify.table import TableReach, check_structure

_TABLES_AT_ONCE = 4
_SHOWN = 20  # names in a message


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
) -> Verified:
    """Verify a region's replica branch, as its head is now.

    Args:
        context: the region.
        depth: how much is verified.
        tables: key names or patterns, as in a policy; default: all tables and views.
        progress: called with a line per table, and now and then while many files are compared.

    Returns:
        Counts and findings; no finding means that nothing is wrong with what was looked at.

    Raises:
        UsageError: a name or pattern fits no table or view on the branch; the message names those that are.
        CatalogError, StoreError: something does not answer.
        EngineError: there is no room on local disk for the files of a very large table.
    """
    head = with_held(context.objects, read_head(context.catalog, context.region.replica_branch))
    listed = context.catalog.entries(context.region.replica_branch, head.hash) if head.exists else ()
    entries: dict[str, Content] = {}
    namespaces: set[str] = set()
    for key, content in listed:
        if content.kind in (ICEBERG_TABLE, ICEBERG_VIEW):
            entries[key_name(key)] = content
        elif content.kind == NAMESPACE and len(key) == 1:
            namespaces.add(key[0])
    chosen = _chosen(context, entries, list(tables))
    places = Places(context.mapping, frozenset(namespaces))
    origins = find_origins(context, head, chosen, places)
    takes = depth.sample.takes if depth.sample else lambda uri: True
    comparison = Comparison(context, places, takes, progress) if depth.deep else None

    digest = digest_on_main(context)

    def one(name: str) -> Findings:
        origin = origins.get(name)
        reached, found = _structure(context, places, chosen[name], origin, Findings(name, digest))
        if comparison is not None:
            comparison.table(reached, origin, found)
        return found

    def tell(found: Findings) -> None:
        progress(_line(found, depth))

    return _with_residency(context, summed(_at_once(one, chosen, tell)), progress)


def _structure(
    context: RegionContext, places: Places, content: Content, origin: Content | None, found: Findings
) -> tuple[TableReach, Findings]:
    """Check the structure of a table, and tell its writer's mistakes from faults of the replica."""
    reached = check_structure(context, places, content, origin, found)
    own = writers_mistakes(context, origin, found)
    found.move_to_main(own)
    if not found.are_hidden(own):
        return reached, found
    again = Findings(found.table, found.digest, own)  # what is hidden has only its digest here: it is looked for anew
    return check_structure(context, places, content, origin, again), again


def _at_once(one: Callable[[str], Findings], names: Iterable[str], tell: Callable[[Findings], None]) -> list[Findings]:
    """Check tables in threads; where one raises, those that wait are not begun."""
    parts = []
    pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="sterna-tables")
    try:
        for future in [pool.submit(one, name) for name in names]:
            parts.append(future.result())
            tell(parts[-1])
    finally:
        pool.shutdown(cancel_futures=True)
    return parts


def _with_residency(context: RegionContext, verified: Verified, progress: Callable[[str], None]) -> Verified:
    """Add the files below the replica root that a residency rule keeps out of this region, where there is one."""
    if not context.mapping.kept_out:
        return verified
    found = check_residency(context)
    progress(f"residency: {found.files} files that may not be here")
    return replace(verified, findings=(*verified.findings, *found.kept), faults=verified.faults + found.faults)


def _line(found: Findings, depth: Depth) -> str:
    compared = f", {found.compared} compared, {found.not_comparable} not comparable" if depth.deep else ""
    return f"{found.table}: {found.files} files{compared}, {found.faults} faults"


def _chosen(context: RegionContext, entries: dict[str, Content], names: list[str]) -> dict[str, Content]:
    """Return the entries that names or patterns ask for, sorted; all where there are none."""
    wanted = {text: {name for name in entries if name == text or Policy(tables=[text]).matches(name)} for text in names}
    for text, fitting in wanted.items():
        if not fitting:
            there = sorted(entries)
            shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
            raise UsageError(f"no table {text!r} on {context.region.replica_branch}: there are {shown or 'none'}")
    chosen = set().union(*wanted.values()) if names else set(entries)
    return {name: entries[name] for name in sorted(chosen)}
