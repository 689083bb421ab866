"""The epoch that deletions go by: where every region was seen, and nothing contradicts it.

A sync may follow the newest epoch of the regions that answer: what it publishes can be put right. A deletion can't.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sterna.errors import Busy, UpkeepBlocked
from sterna.ha.model import CatalogSite
from sterna.ha.site import look_at_all, look_at_epoch, tell_primary
from sterna.replica.region import RegionContext


def certain_epoch(context: RegionContext, gone: Collection[str] = ()) -> str:
    """Return the epoch that the primary's catalog is read under; "" where the regions share one catalog.

    Args:
        context: the region.
        gone: names of the regions that are gone for good, as an operator says (`upkeep.gone`): one that is silent is
            not waited for.

    Raises:
        UpkeepBlocked: another region was not seen, so that it may be the primary by now, or what was seen contradicts
            itself.
        Busy: another region became the primary since the connection was opened.
    """
    if not context.registry.has_copies:
        return ""
    sites = tuple(look_at_all(context.registry.regions, context.secrets, look_at_epoch).values())
    refuse_uncertain(sites, gone)
    epoch = tell_primary(sites).newest
    assert epoch is not None  # `refuse_uncertain` saw to it
    if epoch.region != context.ports.primary_region.name:
        raise Busy(f"{epoch.region} became the primary meanwhile", hint="a later run looks at everything again")
    return str(epoch)


def refuse_other_epoch(context: RegionContext, gone: Collection[str], epoch: str) -> None:
    """See that what was looked at still is what counts.

    Args:
        context: the region.
        gone: as in `certain_epoch`.
        epoch: what was looked at.

    Raises:
        UpkeepBlocked: that isn't certain any more.
        Busy: the primary was switched meanwhile.
    """
    now = certain_epoch(context, gone)
    if now != epoch:
        raise Busy(f"the epoch changed from {epoch} to {now} meanwhile: nothing more is changed", hint="start again")


def refuse_uncertain(sites: Sequence[CatalogSite], gone: Collection[str]) -> None:
    """Refuse to delete by an epoch that may be an old one.

    A region that answers and lets nobody in may be at work: it has to be seen, whoever left it out. So has the primary.

    Args:
        sites: of all regions, with their epochs.
        gone: as in `certain_epoch`.

    Raises:
        UpkeepBlocked: with every region that was not seen, and every contradiction.
    """
    primary = tell_primary(sites)
    newest = primary.newest.region if primary.newest else ""
    left_out = {site.region for site in sites if site.silent and site.region in gone and site.region != newest}
    unseen = [f"{region} was not seen: {why}" for region, why in primary.unseen.items() if region not in left_out]
    doubts = [*primary.doubts, *([] if newest or unseen else ["no region knows an epoch"])]
    if unseen or doubts:
        raise UpkeepBlocked(
            f"nothing is expired or deleted while another region may be the primary: {'; '.join((*unseen, *doubts))}",
            hint="wait, and run this again once all regions answer and sterna catalog status names one primary; a "
            "region that is gone for good is named in upkeep.gone of the services file",
        )
