"""The view Regions: one card a region, by what `sterna status` and the lag alert go by."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.source import Source
from sterna.errors import CatalogError, CredentialError, ServicesError, printable
from sterna.render.plain import plain

if TYPE_CHECKING:
    from sterna.replica.region import RegionContext
    from sterna.status.model import RegionStatus

_MOST_POINTS = 400


def region_names(source: Source) -> dict[str, Any]:
    """Return the regions' names, this Airflow's own first."""
    own, registry = source.region(), source.registry()
    return {"own": own, "regions": [own, *(name for name in registry.region_names if name != own)]}


def region_card(source: Source, name: str) -> dict[str, Any]:
    """Return what a region's card shows.

    A region whose catalog doesn't answer is `dark`: then the card has what this Airflow's own catalog knows of it.
    """
    try:
        with source.other(name) as context:
            return _card(source, context)
    except (CatalogError, CredentialError) as error:
        return {"region": name, "dark": printable(str(error)), **_known_here(source, name)}


def _card(source: Source, context: RegionContext) -> dict[str, Any]:
    from sterna.status.alarms import alarms
    from sterna.status.gather import watch_status

    upkeep, unread = None, ""
    try:
        upkeep = source.services().upkeep
    except ServicesError as error:  # it hides nothing else
        unread = printable(f"whom upkeep waits for: {error}")
    status = watch_status(context, upkeep=upkeep)
    status = replace(status, unseen=(*status.unseen, unread)) if unread else status
    raised = alarms(status, source.limits())
    card: dict[str, Any] = plain(status)
    looked = context.without_primary() if status.cut_off else context
    return {
        **card,
        "cut_off": status.cut_off.line if status.cut_off else "",
        "unread_held": status.unread_held.line if status.unread_held else "",
        "alarms": [{"kind": alarm.kind, "text": alarm.text} for alarm in raised],
        **_reign(source, context),
        "day": _day(looked, status),
    }


def _reign(source: Source, context: RegionContext) -> dict[str, Any]:
    from sterna.edges.postgres.epoch import find_epoch

    if not context.registry.has_copies:
        return {"shared": True, "primary": "", "epoch": None}
    with suppress(CatalogError, CredentialError):
        epoch = find_epoch(context.registry.regions, source.secrets)
        return {"shared": False, "primary": epoch.region, "epoch": epoch.number}
    return {"shared": False, "primary": "", "epoch": None}


def _day(context: RegionContext, status: RegionStatus) -> list[list[float]]:
    from sterna.status.lag_day import lag_over_day

    if status.problem:
        return []
    points = lag_over_day(context)
    step = max(1, len(points) // _MOST_POINTS)
    # Of each few points the highest: a peak must not fall out.
    groups = (points[at : at + step] for at in range(0, len(points), step))
    return [[each.at, round(each.lag, 1)] for each in (max(group, key=lambda point: point.lag) for group in groups)]


def _known_here(source: Source, name: str) -> dict[str, Any]:
    from sterna.replica.head import read_head

    if name == source.region():
        return {}
    with suppress(CatalogError, CredentialError), source.own() as context:
        head = read_head(context.catalog, context.registry.region(name).replica_branch)
        moment = head.commit_time.isoformat() if head.commit_time else ""
        return {"watermark": head.watermark, "last_commit": moment, "seen_from": context.region.name}
    return {}
