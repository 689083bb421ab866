"""The horizon: what is needed still, by whom, and what keeps upkeep waiting. Pure.

A snapshot is needed while somebody's catalog entry shows it as current. A file is needed while the metadata.json of any
such entry reaches it, whatever snapshot it is of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sterna.iceberg.metadata.history import asked_for, current_line, staged_snapshots
from sterna.iceberg.metadata.model import TableMetadata
from sterna.replica.held import Held, held_since
from sterna.upkeep.facts import Facts, MainCommit, RegionFacts, Shown
from sterna.upkeep.model import PRICE_MARK
from sterna.wap.model import marked_snapshots

_DAY = timedelta(days=1)


class Why(StrEnum):
    """Why something is needed."""

    MAIN = "main shows it"
    HISTORY = "main showed it since the oldest watermark of a region that is entitled to it"
    HELD = "a region holds the table at its last good version"
    TRANSIT = "a region copies the table"
    REFERENCE = "a branch or tag shows it"
    HEAD = "a head of a replica branch that clean-ups keep shows it: it may have been announced"


@dataclass(frozen=True)
class Need:
    """Why a version is needed.

    Args:
        why: the reason.
        who: the region or reference.
        replica_of: the region, where only its replica shows it; else "".
    """

    why: Why
    who: str = ""
    replica_of: str = ""


@dataclass(frozen=True)
class Block:
    """A region that upkeep has to wait for.

    Args:
        region: its name.
        reason: why, for people.
        alarm: it is silent for longer than it is waited for without one.
        spares: keys that it isn't entitled to: these don't wait.
    """

    region: str
    reason: str
    alarm: bool = False
    spares: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Horizon:
    """What is needed.

    Args:
        needed: by version, why.
        since: snapshots that `main` showed since the oldest watermark, and those from which a flow or a view goes on.
        blocks: what upkeep has to wait for.
        waits: what expiry of single tables has to wait for, by key.
    """

    needed: Mapping[Shown, Need]
    since: frozenset[int]
    blocks: tuple[Block, ...]
    waits: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)

    @property
    def snapshots(self) -> dict[int, Need]:
        """The snapshots that somebody shows as current."""
        found: dict[int, Need] = {}
        for shown, need in self.needed.items():
            if shown.snapshot is not None:
                found.setdefault(shown.snapshot, need)
        return found

    def blocks_of(self, key: str) -> tuple[Block, ...]:
        """Return what keeps one table waiting."""
        return (*(block for block in self.blocks if key not in block.spares), *self.waits.get(key, ()))


def horizon(facts: Facts, *, patience: timedelta, without: Collection[str] = ()) -> Horizon:
    """Return what is needed, and by whom.

    Args:
        facts: all that it depends on.
        patience: for how long a region is waited for without an alarm.
        without: names of the regions whose watermark, held tables and tables in transit don't count.
    """
    places = {commit.hash: number for number, commit in enumerate(facts.commits)}
    needed: dict[Shown, Need] = {shown: Need(Why.MAIN) for shown in facts.main}
    blocks: list[Block] = []
    for region in facts.regions:
        if region.name in without or all(shown.key in region.refused for shown in _ever(facts)):
            continue
        block = _block(facts, region, places, patience)
        if block is not None:
            blocks.append(block)
        for shown, why in wanted_by(facts, region, places):
            needed.setdefault(shown, Need(why, region.name))
    since = frozenset(
        shown.snapshot
        for shown, need in needed.items()
        if shown.snapshot is not None and need.why in (Why.HISTORY, Why.HELD, Why.TRANSIT)
    )
    since |= {each.snapshot for each in facts.followed}
    for reference in sorted(facts.references, key=lambda each: bool(each.replica_of)):
        for shown in reference.shown:
            needed.setdefault(shown, Need(Why.REFERENCE, reference.name, reference.replica_of))
    for region in facts.regions:
        for shown in region.heads:
            needed.setdefault(shown, Need(Why.HEAD, region.name, region.name))
    return Horizon(needed, since, tuple(blocks), _waits(facts, without))


def removable(
    metadata: TableMetadata, found: Horizon, *, keep: timedelta, now: datetime, reproduce: timedelta = timedelta()
) -> tuple[int, ...]:
    """Return the ids of a table's snapshots that may be taken out of its metadata, oldest first.

    What its own settings and its branches ask for stays, whatever a rule says; all of it where that can't be read. The
    heads of its refs stay, the current snapshot, staged ones that nobody has published, and what is younger than
    `keep`; what upkeep made within a day, for the price of a day is told by it; and on the current snapshot's line
    whatever lies before one that `main` showed since the oldest watermark: a commit may bring several. The same before
    one that stays and that a channel's mark was set with: else it would be no ancestor any more, and the table look as
    if it had been rolled back. And before one that was staged and published, while a replica needs it: else it would
    look as if it had never been published, and stay for ever.

    Args:
        metadata: the table, as `main` shows it.
        found: what is needed.
        keep: a floor: it keeps more, never less.
        now: the time.
        reproduce: for so long what was current stays readable, and what lies between it and now; none: not.
    """
    asked = asked_for(metadata, now.timestamp() * 1000)
    if asked is None:
        return ()
    line = current_line(metadata)
    past = _reproduced(metadata, line, now - reproduce if reproduce else None)
    whole = {*found.since, *past, *marked_snapshots(metadata.properties) & {*metadata.refs.values(), *found.snapshots}}
    needs = found.snapshots
    whole |= {item.snapshot_id for item in metadata.snapshots if item.wap_id and _passes(needs.get(item.snapshot_id))}
    deepest = max((number for number, id in enumerate(line) if id in whole), default=-1)
    stays = {
        *asked,
        *metadata.refs.values(),
        *line[: max(deepest, 0) + 1],
        *staged_snapshots(metadata),
        *found.snapshots,
    }
    young = (now - keep).timestamp() * 1000
    day = min(young, (now - _DAY).timestamp() * 1000)
    gone = [
        item
        for item in metadata.snapshots
        if item.snapshot_id not in stays and item.timestamp_ms < (day if dict(item.marks).get(PRICE_MARK) else young)
    ]
    return tuple(item.snapshot_id for item in sorted(gone, key=lambda item: item.timestamp_ms))


def _waits(facts: Facts, without: Collection[str]) -> dict[str, tuple[Block, ...]]:
    waits: dict[str, tuple[Block, ...]] = {}
    for each in facts.untold:
        if each.region not in without:
            waits[each.key] = (*waits.get(each.key, ()), Block(each.region, each.reason))
    return waits


def _reproduced(metadata: TableMetadata, line: list[int], since: datetime | None) -> set[int]:
    """Return the snapshot of the current line that was current at a moment; later ones lie before it."""
    if since is None or not line:
        return set()
    times = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    return {next((id for id in line if times[id] <= since.timestamp() * 1000), line[-1])}


def _passes(need: Need | None) -> bool:
    """Tell whether something is needed for a while, by a replica alone; somebody's tag may stay for ever."""
    return need is not None and bool(need.replica_of)


def _ever(facts: Facts) -> Iterator[Shown]:
    yield from facts.main
    yield from facts.base
    for commit in facts.commits:
        yield from commit.put


def _block(facts: Facts, region: RegionFacts, places: Mapping[str, int], patience: timedelta) -> Block | None:
    """Return why a region has to be waited for, None where nothing about it is unknown."""
    if not region.watermark:
        return Block(region.name, "it has no watermark: it was never synced, or is being seeded", spares=region.refused)
    if region.watermark not in places:
        reason = f"its watermark {region.watermark[:12]} is no commit of main's history: see sterna status"
        return Block(region.name, reason, spares=region.refused)
    if region.lost:
        return Block(region.name, region.lost, spares=region.refused)
    for item in region.held:
        if _place_of(facts.commits, places, item) is None:
            reason = f"since when it holds {item.key}, or at which commit of main, isn't known"
            return Block(region.name, reason, spares=region.refused)
    behind = facts.commits[: places[region.watermark]]
    if behind and facts.now - behind[-1].at > patience:
        since = behind[-1].at.isoformat(timespec="seconds")
        reason = f"it is silent: main has commits since {since} that it doesn't show"
        return Block(region.name, reason, alarm=True, spares=region.refused)
    return None


def wanted_by(facts: Facts, region: RegionFacts, places: Mapping[str, int]) -> Iterator[tuple[Shown, Why]]:
    """Yield what `main` showed since a region's watermark of the keys that it is entitled to.

    Of a key that it holds, since its last good commit.
    """
    for shown in _shown_since(facts, places.get(region.watermark, len(facts.commits))):
        if shown.key not in region.refused:
            yield shown, Why.HISTORY
    held: dict[int, dict[str, Why]] = {}
    for item in region.held:
        place = _place_of(facts.commits, places, item)
        keys = held.setdefault(len(facts.commits) if place is None else place, {})
        keys[item.key] = Why.TRANSIT if item.in_transit else Why.HELD
    for place, keys in held.items():
        for shown in _shown_since(facts, place):
            if shown.key in keys and shown.key not in region.refused:
                yield shown, keys[shown.key]


def _place_of(commits: tuple[MainCommit, ...], places: Mapping[str, int], item: Held) -> int | None:
    """Return where in `main`'s history the last good commit of a held key is; None where nobody knows."""
    if item.good:
        return places.get(item.good)
    since = held_since(item)
    if since is None:
        return None
    return sum(1 for commit in commits if commit.at >= since)


def _shown_since(facts: Facts, place: int) -> Iterator[Shown]:
    """Yield what `main` showed at a commit, and what each later one put. What was dropped before may be among it."""
    for commit in facts.commits[:place]:
        yield from commit.put
    standing = {shown.key: shown for shown in facts.base}
    for commit in reversed(facts.commits[place:]):
        standing |= {shown.key: shown for shown in commit.put}
    yield from standing.values()
