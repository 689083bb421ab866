"""The regions' catalogs, and what was done to them, for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sterna.catalog.model import Commit
from sterna.errors import printable
from sterna.ha.model import CatalogSite
from sterna.ha.promote import Promoted, Promotion
from sterna.ha.rejoin import Lost, Rejoined
from sterna.ha.site import newest_epoch
from sterna.ha.tables import Moves
from sterna.ingest.came_back import CameBack
from sterna.render.lines import joined


def status_text(sites: list[CatalogSite]) -> str:
    """Return the regions' catalogs as lines for people."""
    newest = newest_epoch(sites)
    return joined(
        [
            f"primary: {newest.region}, epoch {newest}"
            if newest
            else "no primary yet: sterna catalog promote --region <the first one>"
        ]
        + [f"{site.region}: {_site(site, newest.region if newest else '')}" for site in sites]
        + [
            f"  slot {slot.name} in {site.region}: {'' if slot.active else 'NOT '}active, {slot.behind} bytes "
            f"behind, {slot.wal_status}" + (": sterna catalog reseed" if slot.wal_status == "lost" else "")
            for site in sites
            for slot in site.slots
        ]
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
    lines += [f"{name} does not answer: it has to rejoin later." for name in promotion.silent if name != promotion.old]
    return joined([*lines, *(_moves_lines(moves) if moves else [])])


def begins_text(promotion: Promotion) -> str:
    """Return what tells a promotion from any other one, for people."""
    return f"{promotion.region} becomes the primary: epoch {promotion.epoch} begins"


def _unplanned_lines(promotion: Promotion) -> list[str]:
    old, time = promotion.old, "%Y-%m-%d %H:%M:%S %Z"
    heard = f"; it was heard last at {promotion.heard:{time}}" if promotion.heard else ""
    newest = f"{promotion.newest:{time}}" if promotion.newest else "an unknown time: its Nessie does not answer"
    return [
        f"{old} takes no commits{heard}. The newest commit on {promotion.region}'s main is of {newest}.",
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


def _site(site: CatalogSite, primary: str) -> str:
    if site.problem:
        return f"{'refuses' if site.refuses else 'does not answer'}: {site.problem}"
    main = f"main {site.main[:12] or '(empty)'}"
    rights = "takes commits" if site.writable else "takes no commits"
    if site.region == primary:
        return f"primary, {main}, {rights}" + ("" if site.writable else ": promotion not finished, repeat it")
    warning = ", AN OLD PRIMARY: sterna catalog rejoin" if site.writable else ""
    follows = site.following
    if follows is None:
        return f"{main}, {rights}{warning}, follows nobody" + ("" if site.writable else ": sterna catalog reseed")
    heard = f", heard {(datetime.now(UTC) - follows.heard).total_seconds():.0f} s ago" if follows.heard else ""
    stale = f" (not the primary: sterna catalog rejoin --region {site.region})" if follows.region != primary else ""
    return (
        f"{main}, {rights}{warning}, follows "
        f"{follows.region}{stale}{'' if follows.working else ', NOT CONNECTED'}{heard}"
    )


def _commit(commit: Commit) -> str:
    """Return a commit in one line; its message is whatever its author wrote."""
    return f"{commit.hash[:12]} {commit.commit_time:%Y-%m-%d %H:%M:%S} {printable(commit.message, 200)}"
