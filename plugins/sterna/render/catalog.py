"""The regions' catalogs, and what was done to them, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sterna.catalog.model import Commit
from sterna.errors import printable
from sterna.ha.model import CatalogSite, Primary
from sterna.ha.promote import Promoted, Promotion
from sterna.ha.rejoin import Lost, Rejoined
from sterna.ha.site import tell_primary
from sterna.ha.tables import Moves
from sterna.ingest.came_back import CameBack
from sterna.render.lines import joined
from sterna.render.plain import plain

_SEEN_OR_NOT = ("region", "problem", "refuses", "unasked", "slow")
_RUN_BOOK = 'docs/operations.md, "The primary is gone"'


def status_text(sites: list[CatalogSite]) -> str:
    """Return the regions' catalogs as lines for people.

    What to do stands there only where it is known: whoever was not seen may know better.
    """
    told = tell_primary(sites)
    return joined(
        _primary_lines(sites, told)
        + [f"{site.region}: {_site(site, told)}" for site in sites]
        + [
            f"  slot {slot.name} in {site.region}: {'' if slot.active else 'NOT '}active, {slot.behind} bytes "
            f"behind, {slot.wal_status}"
            + (": sterna catalog reseed" if slot.wal_status == "lost" and site.region == told.region else "")
            for site in sites
            for slot in site.slots
        ]
    )


def status_facts(sites: Sequence[CatalogSite]) -> Mapping[str, object]:
    """Return the regions' catalogs, and who the primary is, as data; what was not seen is null."""
    return {"primary": tell_primary(sites), "sites": [_facts(site) for site in sites]}


def _facts(site: CatalogSite) -> Mapping[str, object]:
    facts: dict[str, object] = plain(site)
    if not site.problem:
        return facts
    return {name: value if name in _SEEN_OR_NOT else None for name, value in facts.items()}


def _primary_lines(sites: Sequence[CatalogSite], told: Primary) -> list[str]:
    if told.known and told.newest:
        return [f"primary: {told.newest.region}, epoch {told.newest}"]
    if told.known:
        return ["no primary yet: sterna catalog promote --region <the first one>"]
    whys = [f"{site.region} {site.unseen}" for site in sites if site.problem]
    # What was not seen and is no site is not in the registry.
    named = {site.region for site in sites}
    whys += [f"{region}: {why}" for region, why in told.unseen.items() if region not in named]
    lines = [f"can't tell who the primary is: {'; '.join([*whys, *told.doubts]) or 'there is no region'}"]
    if told.newest is None:
        return [*lines, "as far as was seen, no region knows an epoch"]
    lines.append(f"as far as was seen, primary: {told.newest.region}, epoch {told.newest}")
    lines += [_primary_unseen(site) for site in sites if site.problem and site.region == told.newest.region]
    return lines


def _primary_unseen(site: CatalogSite) -> str:
    """Return what is known of the region of the newest epoch where it was not seen: the decision is somebody's."""
    if not site.silent:
        return f"{site.region} may be at work, and take commits"
    return (
        f"whether {site.region} is down, or only can't be reached, can't be told from here; to replace it is the "
        f"operator's decision, once it is certain that it takes no commits: {_RUN_BOOK}"
    )


def promotion_text(promotion: Promotion, moves: Moves | None = None) -> str:
    """Return what a promotion would do, with tables where there are moves, for people."""
    lines = [f"{begins_text(promotion)} at its main {promotion.main[:12] or '(empty)'}."]
    if promotion.old and promotion.planned:
        lines.append(
            f"{promotion.old} takes no more commits; once {promotion.region} has all of them it takes over, and "
            "nothing is lost."
        )
    elif promotion.old:
        lines += _unplanned_lines(promotion)
    lines += unknown_lines(promotion)
    return joined([*lines, *(_moves_lines(moves) if moves else [])])


def unknown_lines(promotion: Promotion) -> list[str]:
    """Return what nobody can tell of a promotion, and whoever agrees to it takes upon himself."""
    lines = [
        f"{_unseen(name, promotion)}. Whether it takes commits can't be told from here: make sure that it takes none."
        for name in promotion.silent
        if name == promotion.old
    ]
    if promotion.resumed:
        lines.append(
            f"{promotion.region} is the one of epoch {promotion.epoch} and takes no commits now: it takes them again."
        )
    lines += [
        f"{_unseen(name, promotion)}: it has to rejoin later. Whether it is the primary by now can't be told from here."
        for name in promotion.silent
        if name != promotion.old
    ]
    return lines


def _unseen(name: str, promotion: Promotion) -> str:
    return f"{name} is given up" if name in promotion.gone else f"{name} does not answer"


def begins_text(promotion: Promotion) -> str:
    """Return what tells a promotion from any other one, for people."""
    return f"{promotion.region} becomes the primary: epoch {promotion.epoch} begins"


def _unplanned_lines(promotion: Promotion) -> list[str]:
    old, time = promotion.old, "%Y-%m-%d %H:%M:%S %Z"
    heard = f"{old} was heard last at {promotion.heard:{time}}." if promotion.heard else ""
    newest = f"{promotion.newest:{time}}" if promotion.newest else "an unknown time: its Nessie does not answer"
    return [
        *([] if old in promotion.silent else [f"{old} takes no commits."]),
        *([heard] if heard else []),
        f"The newest commit on {promotion.region}'s main is of {newest}.",
        f"What {old} committed after that is not here.",
        f"When it is back, `sterna catalog rejoin --region {old}` tells what that was and keeps it on branches.",
    ]


def promoted_text(done: Promoted) -> str:
    """Return what a promotion did, for people."""
    return joined(
        [f"{done.epoch.region} is the primary, epoch {done.epoch}"]
        + [f"  {name} follows it" for name in done.following]
        + [f"  {name} does not follow it yet: {reason}" for name, reason in done.left.items()]
        + _lost_lines(done.lost)
        + (_moves_lines(done.tables) if done.tables else [])
    )


def moves_text(found: Moves) -> str:
    """Return which tables a promotion with tables moves, and what each loses, for people."""
    return joined(_moves_lines(found))


def _moves_lines(found: Moves) -> list[str]:
    lines = [
        f"The storage of {', '.join(found.lost)} is taken for lost: what its tables still get there is not seen any "
        "more."
    ]
    lines.append(f"{len(found.moves)} tables and views of main go on from the replica in {found.region}:")
    for each in found.moves:
        lacks = f"; {len(each.lost)} commits are not here and stay behind:" if each.lost else ""
        lines.append(f"  {each.key}{lacks}{'; an older version, nobody can tell what it lacks' if each.untold else ''}")
        lines += [f"    {_commit(commit)}" for commit in each.lost]
    return [*lines, *(f"  {key} stays as it is: {why}" for key, why in sorted(found.left.items()))]


def rejoined_text(done: Rejoined, batches: Sequence[CameBack] = ()) -> str:
    """Return what a rejoin did, for people.

    Args:
        done: what it did.
        batches: batches of ingestion in the commits that only the region had.
    """
    seeded = done.seeded
    line = f"{seeded.region} follows {seeded.source}; {seeded.objects} objects copied; main {seeded.main[:12]}"
    return joined([line, *_lost_lines(done.lost), *map(_batch_line, batches)])


def _batch_line(each: CameBack) -> str:
    if each.problem:
        return f"  {each.table}: which batches came back can't be told: {each.problem}"
    which = f"  {each.table}, channel {each.channel}, batches {each.first} to {each.last}"
    if each.whole:
        return f"{which}: they are on main again, and need not be brought from there"
    some = f"on main again up to {each.again}" if each.again else "not on main again yet"
    region = each.channel.partition(".")[0]
    return f"{which}: {some}; workers of {region} publish them anew: don't bring them from there"


def _lost_lines(lost: Sequence[Lost]) -> list[str]:
    lines = []
    for each in lost:
        lines.append(f"  {len(each.commits)} commits of {each.branch} were only there; they are kept on {each.kept}:")
        lines += [f"    {_commit(commit)}" for commit in each.commits]
    return lines


def _site(site: CatalogSite, told: Primary) -> str:
    if site.problem:
        return f"{site.unseen}: {site.problem}"
    primary = told.newest.region if told.newest else ""
    main = f"main {site.main[:12] or '(empty)'}"
    rights = "takes commits" if site.writable else "takes no commits"
    if site.region == primary:
        return f"{'primary' if told.known else 'primary as far as was seen'}, {main}, {rights}{_why_none(site, told)}"
    # This holds whatever was not seen: epochs only grow, and a rejoin keeps what only this region has.
    warning = ", AN OLD PRIMARY: sterna catalog rejoin" if site.writable and primary else ""
    follows = site.following
    if follows is None:
        reseed = ": sterna catalog reseed" if told.region and not site.writable else ""
        return f"{main}, {rights}{warning}, follows nobody{reseed}"
    heard = f", heard {(datetime.now(UTC) - follows.heard).total_seconds():.0f} s ago" if follows.heard else ""
    stale = (
        f" (not the primary: sterna catalog rejoin --region {site.region})"
        if primary and follows.region != primary
        else ""
    )
    return (
        f"{main}, {rights}{warning}, follows "
        f"{follows.region}{stale}{'' if follows.working else ', NOT CONNECTED'}{heard}"
    )


def _why_none(site: CatalogSite, told: Primary) -> str:
    """Return why the region of the newest epoch takes no commits, and what to do where that is known."""
    if site.writable:
        return ""
    if told.known:
        return ": promotion not finished, repeat it"
    return ": a switch is not finished, or another region has replaced it"


def _commit(commit: Commit) -> str:
    """Return a commit in one line; its message is whatever its author wrote."""
    return f"{commit.hash[:12]} {commit.commit_time:%Y-%m-%d %H:%M:%S} {printable(commit.message, 200)}"
