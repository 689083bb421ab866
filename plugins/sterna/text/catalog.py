"""The regions' catalogs, and what was done to them, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sterna.catalog.model import Commit
from sterna.errors import printable
from sterna.pipelines.ingest.recovered_batches import RecoveredBatches
from sterna.replication.failover.model import CatalogSite, Primary
from sterna.replication.failover.promote import Promoted, Promotion
from sterna.replication.failover.rejoin import LostCommits, Rejoined
from sterna.replication.failover.site import resolve_primary
from sterna.replication.failover.tables import MovePlan
from sterna.text.lines import join_lines
from sterna.text.plain import to_plain

_ALWAYS_SHOWN_FIELDS = ("region", "problem", "refuses", "unasked", "slow")
_RUNBOOK_REFERENCE = 'docs/operations.md, "The primary is gone"'


def status_text(sites: list[CatalogSite]) -> str:
    """Return the regions' catalogs as lines for people.

    A recommendation is given only where it is certain: an unseen region may have newer facts.
    """
    primary = resolve_primary(sites)
    return join_lines(
        _primary_lines(sites, primary)
        + [f"{site.region}: {_site_text(site, primary)}" for site in sites]
        + [
            f"  slot {slot.name} in {site.region}: {'' if slot.active else 'NOT '}active, {slot.behind} bytes "
            f"behind, {slot.wal_status}"
            + (": sterna catalog resync" if slot.wal_status == "lost" and site.region == primary.region else "")
            for site in sites
            for slot in site.slots
        ]
    )


def status_fields(sites: Sequence[CatalogSite]) -> Mapping[str, object]:
    """Return the regions' catalogs and the primary as data; fields that could not be read are null."""
    return {"primary": resolve_primary(sites), "sites": [_site_fields(site) for site in sites]}


def _site_fields(site: CatalogSite) -> Mapping[str, object]:
    fields: dict[str, object] = to_plain(site)
    if not site.problem:
        return fields
    return {name: value if name in _ALWAYS_SHOWN_FIELDS else None for name, value in fields.items()}


def _primary_lines(sites: Sequence[CatalogSite], primary: Primary) -> list[str]:
    if primary.known and primary.newest:
        return [f"primary: {primary.newest.region}, term {primary.newest}"]
    if primary.known:
        return ["no primary yet: sterna catalog promote --region <the first one>"]
    reasons = [f"{site.region} {site.unseen_reason}" for site in sites if site.problem]
    # What was not seen and is no site is not in the registry.
    listed_regions = {site.region for site in sites}
    reasons += [f"{region}: {reason}" for region, reason in primary.unseen.items() if region not in listed_regions]
    lines = [f"can't determine the primary: {'; '.join([*reasons, *primary.doubts]) or 'there is no region'}"]
    if primary.newest is None:
        return [*lines, "as far as was seen, no region has a term"]
    lines.append(f"as far as was seen, primary: {primary.newest.region}, term {primary.newest}")
    lines += [
        _unreachable_primary_line(site) for site in sites if site.problem and site.region == primary.newest.region
    ]
    return lines


def _unreachable_primary_line(site: CatalogSite) -> str:
    """Return the facts of the region of the newest term where it was not seen: the decision is an operator's."""
    if not site.is_silent:
        return f"{site.region} may be at work, and take commits"
    return (
        f"{site.region} is down, or can't be reached from here; to replace it is the "
        f"operator's decision, once it is certain that it takes no commits: {_RUNBOOK_REFERENCE}"
    )


def promotion_text(promotion: Promotion, moves: MovePlan | None = None) -> str:
    """Return what a promotion would do, with tables where there are moves, for people."""
    lines = [f"{promotion_headline(promotion)} at its main {promotion.main[:12] or '(empty)'}."]
    if promotion.old and promotion.planned:
        lines.append(
            f"{promotion.old} takes no more commits; once {promotion.region} has all of them it takes over, and "
            "nothing is lost."
        )
    elif promotion.old:
        lines += _unplanned_lines(promotion)
    lines += unverified_lines(promotion)
    return join_lines([*lines, *(_move_lines(moves) if moves else [])])


def unverified_lines(promotion: Promotion) -> list[str]:
    """Return what is uncertain about a promotion, whose risk the approver takes."""
    lines = [
        f"{_unreachable_text(name, promotion)}. It may take commits: make sure that it takes none."
        for name in promotion.silent
        if name == promotion.old
    ]
    if promotion.resumed:
        lines.append(
            f"{promotion.region} is the one of term {promotion.term} and takes no commits now: it takes them again."
        )
    lines += [
        f"{_unreachable_text(name, promotion)}: it has to rejoin later. It may be the primary by now."
        for name in promotion.silent
        if name != promotion.old
    ]
    return lines


def _unreachable_text(name: str, promotion: Promotion) -> str:
    return f"{name} is given up" if name in promotion.gone else f"{name} does not answer"


def promotion_headline(promotion: Promotion) -> str:
    """Return the lines that identify a promotion."""
    return f"{promotion.region} becomes the primary: term {promotion.term} begins"


def _unplanned_lines(promotion: Promotion) -> list[str]:
    old, time = promotion.old, "%Y-%m-%d %H:%M:%S %Z"
    last_contact = f"{old} was heard last at {promotion.heard:{time}}." if promotion.heard else ""
    newest = f"{promotion.newest:{time}}" if promotion.newest else "an unknown time: its Nessie does not answer"
    return [
        *([] if old in promotion.silent else [f"{old} takes no commits."]),
        *([last_contact] if last_contact else []),
        f"The newest commit on {promotion.region}'s main is of {newest}.",
        f"What {old} committed after that is not here.",
        f"When it is back, `sterna catalog rejoin --region {old}` lists that and keeps it on branches.",
    ]


def promoted_text(promoted: Promoted) -> str:
    """Return what a promotion did, for people."""
    return join_lines(
        [f"{promoted.term.region} is the primary, term {promoted.term}"]
        + [f"  {name} follows it" for name in promoted.following]
        + [f"  {name} does not follow it yet: {reason}" for name, reason in promoted.left.items()]
        + _lost_lines(promoted.lost)
        + (_move_lines(promoted.tables) if promoted.tables else [])
    )


def moves_text(plan: MovePlan) -> str:
    """Return which tables a promotion with tables moves, and what each loses, for people."""
    return join_lines(_move_lines(plan))


def _move_lines(plan: MovePlan) -> list[str]:
    lines = [
        f"The storage of {', '.join(plan.lost)} is taken for lost: what its tables still get there is not seen any "
        "more."
    ]
    lines.append(f"{len(plan.moves)} tables and views of main continue from the replica in {plan.region}:")
    for move in plan.moves:
        missing = f"; {len(move.lost)} commits are not here and stay behind:" if move.lost else ""
        lines.append(
            f"  {move.key}{missing}{'; an older version, its missing commits are unknown' if move.untold else ''}"
        )
        lines += [f"    {_commit_line(commit)}" for commit in move.lost]
    return [*lines, *(f"  {key} stays as it is: {reason}" for key, reason in sorted(plan.left.items()))]


def rejoined_text(rejoined: Rejoined, batches: Sequence[RecoveredBatches] = ()) -> str:
    """Return what a rejoin did, for people.

    Args:
        batches: batches of ingestion in the commits that only the region had.
    """
    seeded = rejoined.seeded
    line = f"{seeded.region} follows {seeded.source}; {seeded.objects} objects copied; main {seeded.main[:12]}"
    return join_lines([line, *_lost_lines(rejoined.lost), *map(_batch_line, batches)])


def _batch_line(recovered: RecoveredBatches) -> str:
    if recovered.problem:
        return f"  {recovered.table}: can't list the recovered batches: {recovered.problem}"
    batches = f"  {recovered.table}, channel {recovered.channel}, batches {recovered.first} to {recovered.last}"
    if recovered.is_complete:
        return f"{batches}: they are on main again, and need not be copied from there"
    progress = f"on main again up to {recovered.again}" if recovered.again else "not on main again yet"
    region = recovered.channel.partition(".")[0]
    return f"{batches}: {progress}; workers of {region} publish them again: don't copy them from there"


def _lost_lines(lost: Sequence[LostCommits]) -> list[str]:
    lines = []
    for branch in lost:
        lines.append(
            f"  {len(branch.commits)} commits of {branch.branch} were only there; they are kept on {branch.kept}:"
        )
        lines += [f"    {_commit_line(commit)}" for commit in branch.commits]
    return lines


def _site_text(site: CatalogSite, primary: Primary) -> str:
    if site.problem:
        return f"{site.unseen_reason}: {site.problem}"
    primary_region = primary.newest.region if primary.newest else ""
    main = f"main {site.main[:12] or '(empty)'}"
    rights = "takes commits" if site.writable else "takes no commits"
    if site.region == primary_region:
        return (
            f"{'primary' if primary.known else 'primary as far as was seen'}, {main}, "
            f"{rights}{_unwritable_reason(site, primary)}"
        )
    # This holds whatever was not seen: terms only grow, and a rejoin keeps what only this region has.
    warning = ", AN OLD PRIMARY: sterna catalog rejoin" if site.writable and primary_region else ""
    subscription = site.following
    if subscription is None:
        resync_hint = ": sterna catalog resync" if primary.region and not site.writable else ""
        return f"{main}, {rights}{warning}, follows no region{resync_hint}"
    last_contact = (
        f", heard {(datetime.now(UTC) - subscription.heard).total_seconds():.0f} s ago" if subscription.heard else ""
    )
    stale = (
        f" (not the primary: sterna catalog rejoin --region {site.region})"
        if primary_region and subscription.region != primary_region
        else ""
    )
    return (
        f"{main}, {rights}{warning}, follows "
        f"{subscription.region}{stale}{'' if subscription.working else ', NOT CONNECTED'}{last_contact}"
    )


def _unwritable_reason(site: CatalogSite, primary: Primary) -> str:
    """Return why the region of the newest term takes no commits, and what to do where that is known."""
    if site.writable:
        return ""
    if primary.known:
        return ": promotion not finished, repeat it"
    return ": a switch is not finished, or another region has replaced it"


def _commit_line(commit: Commit) -> str:
    """Return a commit in one line; its message is whatever its author wrote."""
    return f"{commit.hash[:12]} {commit.commit_time:%Y-%m-%d %H:%M:%S} {printable(commit.message, 200)}"
