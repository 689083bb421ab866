"""The term that deletions rely on: every region was seen, and nothing contradicts it.

A sync may follow the newest term of the regions that answer: what it publishes can be corrected. A deletion can't.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sterna.errors import Busy, UpkeepBlocked
from sterna.replication.failover.model import CatalogSite
from sterna.replication.failover.site import inspect_sites, inspect_term, resolve_primary
from sterna.replication.replica.region import RegionContext


def require_certain_term(context: RegionContext, gone: Collection[str] = ()) -> str:
    """Return the term that the primary's catalog is read under; "" where the regions share one catalog.

    Args:
        gone: names of the regions that an operator declared lost (`maintenance.gone`): one that is silent is not waited
            for.

    Raises:
        UpkeepBlocked: another region was not seen, so that it may be the primary by now, what was seen contradicts
            itself, or an old primary has not rejoined.
        Busy: another region became the primary since the connection was opened.
    """
    if not context.registry.has_regional_catalogs:
        return ""
    sites = tuple(inspect_sites(context.registry.regions, context.secrets, inspect_term).values())
    require_certain_primary(sites, gone)
    term = resolve_primary(sites).newest
    assert term is not None  # `require_certain_primary` saw to it
    if term.region != context.ports.primary_region.name:
        raise Busy(f"{term.region} became the primary meanwhile", hint="a later run checks everything again")
    require_newest_term(sites)
    return str(term)


def require_same_term(context: RegionContext, gone: Collection[str], expected: str) -> None:
    """Require that the term has not changed since it was read.

    Args:
        gone: as in `require_certain_term`.
        expected: the term as it was read.

    Raises:
        UpkeepBlocked: that isn't certain any more.
        Busy: the primary was switched meanwhile.
    """
    current = require_certain_term(context, gone)
    if current != expected:
        raise Busy(
            f"the term changed from {expected} to {current} meanwhile: nothing more is changed", hint="start again"
        )


def require_certain_primary(sites: Sequence[CatalogSite], gone: Collection[str]) -> None:
    """Refuse to delete by a term that may be an old one.

    A region that answers but refuses the login may be running: it has to be read, even one named in `gone`. So has the
    primary.

    Args:
        sites: of all regions, with their terms.
        gone: as in `require_certain_term`.

    Raises:
        UpkeepBlocked: with every region that was not seen, and every contradiction.
    """
    primary = resolve_primary(sites)
    newest = primary.newest.region if primary.newest else ""
    left_out = {site.region for site in sites if site.is_silent and site.region in gone and site.region != newest}
    unseen = [f"{region} was not seen: {reason}" for region, reason in primary.unseen.items() if region not in left_out]
    contradictions = [*primary.doubts, *([] if newest or unseen else ["no region has a term"])]
    if unseen or contradictions:
        raise UpkeepBlocked(
            "nothing is expired or deleted while another region may be the primary: "
            f"{'; '.join((*unseen, *contradictions))}",
            hint="wait, and run this again once all regions answer and sterna catalog status names one primary; a "
            "retired region is named in maintenance.gone of the services file",
        )


def require_newest_term(sites: Sequence[CatalogSite]) -> None:
    """Refuse to delete while a region that answers has an older term than others.

    It was the primary and has not rejoined, or is behind. `rejoin` keeps its last commits on a branch, and what they
    name has to be there then.

    Args:
        sites: of all regions, with their terms.

    Raises:
        UpkeepBlocked: with every such region.
    """
    newest = resolve_primary(sites).newest
    older = [f"{site.region} at term {site.term}" for site in sites if site.term and site.term != newest]
    if older:
        raise UpkeepBlocked(
            f"nothing is expired or deleted while a region has not come to term {newest}, and may have commits that "
            f"others lack: {', '.join(older)}",
            hint="let an old primary rejoin, or turn it off and name it in maintenance.gone of the services file; a "
            "region that is only behind comes to it by itself",
        )
