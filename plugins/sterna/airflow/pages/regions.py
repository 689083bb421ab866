"""The view Regions: one card a region, by what `sterna status` and the lag alert go by."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.source import Source
from sterna.errors import CatalogError, CredentialError, ServicesError, printable
from sterna.text.plain import to_plain

if TYPE_CHECKING:
    from sterna.replication.replica.region import RegionContext


def region_names(source: Source) -> dict[str, Any]:
    """Return the regions' names, this Airflow's own first."""
    own, registry = source.region(), source.registry()
    return {"own": own, "regions": [own, *(name for name in registry.region_names if name != own)]}


def region_card(source: Source, name: str) -> dict[str, Any]:
    """Return what a region's card shows.

    A region whose catalog doesn't answer is `dark`: then the card shows what this Airflow's own catalog has of it.
    """
    try:
        with source.open_region(name) as context:
            return _card(source, context)
    except (CatalogError, CredentialError) as error:
        return {"region": name, "dark": printable(str(error)), **_own_catalog_fields(source, name)}


def _card(source: Source, context: RegionContext) -> dict[str, Any]:
    from sterna.operations.alarms import find_alarms
    from sterna.operations.status.read import read_alarm_status

    maintenance, unread_services = None, ""
    try:
        maintenance = source.services().maintenance
    except ServicesError as error:  # it hides nothing else
        unread_services = printable(f"regions that maintenance waits for: {error}")
    status = read_alarm_status(context, maintenance=maintenance)
    status = replace(status, unseen=(*status.unseen, unread_services)) if unread_services else status
    active_alarms = find_alarms(status, source.limits())
    card: dict[str, Any] = to_plain(status)
    return {
        **card,
        "cut_off": status.cut_off.line if status.cut_off else "",
        "unread_held": status.unread_held.line if status.unread_held else "",
        "alarms": [{"kind": alarm.reason, "text": alarm.message} for alarm in active_alarms],
        **_primary_term(source, context),
    }


def _primary_term(source: Source, context: RegionContext) -> dict[str, Any]:
    from sterna.postgres.term import find_term

    if not context.registry.has_regional_catalogs:
        return {"shared": True, "primary": "", "epoch": None}
    with suppress(CatalogError, CredentialError):
        term = find_term(context.registry.regions, source.secrets)
        return {"shared": False, "primary": term.region, "epoch": term.number}
    return {"shared": False, "primary": "", "epoch": None}


def _own_catalog_fields(source: Source, name: str) -> dict[str, Any]:
    from sterna.replication.replica.head import read_head

    if name == source.region():
        return {}
    with suppress(CatalogError, CredentialError), source.open_own() as context:
        head = read_head(context.catalog, context.registry.region(name).replica_branch)
        commit_time = head.commit_time.isoformat() if head.commit_time else ""
        return {"watermark": head.watermark, "last_commit": commit_time, "seen_from": context.region.name}
    return {}
