"""Expiry: snapshots of `main`'s tables that nobody needs any more go from their metadata. No file is deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import SternaError, UpkeepBlocked, UsageError
from sterna.ha.certain import refuse_other_epoch
from sterna.iceberg.metadata.history import asked_for
from sterna.iceberg.metadata.table import TableMetadata, read_table_metadata
from sterna.registry.policy import matching
from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep, UpkeepRule
from sterna.upkeep.facts import Facts, Shown
from sterna.upkeep.gather import gather
from sterna.upkeep.horizon import Horizon, horizon, removable
from sterna.upkeep.results import ExpiredTable, Expiry

_TRIES = 5


class RemoveSnapshots(Protocol):
    """Whoever commits."""

    def __call__(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        """Take snapshots out of a table's metadata, if `main` still shows it as it was looked at.

        Args:
            key: key name.
            metadata: the metadata.json that was looked at.
            snapshots: ids of those that go.

        Returns:
            Whether it was done; not where somebody else committed first.
        """
        ...


@dataclass(frozen=True)
class _Work:
    """What every table of one look has in common."""

    context: RegionContext
    facts: Facts
    found: Horizon


def expire(
    context: RegionContext,
    settings: Upkeep,
    *,
    tables: Collection[str] = (),
    remove: RemoveSnapshots | None = None,
    progress: Callable[[str], None] = lambda line: None,
    now: datetime | None = None,
) -> Expiry:
    """Take out of the metadata of `main`'s tables the snapshots that lie behind the horizon.

    Args:
        context: the region.
        settings: of upkeep: its rules say which tables, and how much of their history stays in any case.
        tables: patterns over key names; none: all that a rule matches.
        remove: commits; None: it is only told what would be done.
        progress: called with lines for people.
        now: the time; default: the clock's.

    Returns:
        What was found and done. A table that another writer was too fast for has a `problem`: a later run goes on.

    Raises:
        UsageError: a table was asked for that isn't there, or that no rule matches.
        UpkeepBlocked: which region is the primary isn't certain.
        Busy: the primary was switched meanwhile.
        CatalogError, StoreError, EngineError: something doesn't answer; a later run goes on.
    """
    at = now or datetime.now(UTC)
    done: dict[str, ExpiredTable] = {}
    asked = tuple(tables)
    for number in range(_TRIES):
        work = _look(context, settings, now or datetime.now(UTC))
        if not number:
            _refuse_unknown(work.facts, settings, asked)
        left = [each for each in _wanted(work.facts, settings, asked) if each[0].key not in done]
        for shown, rule in left:
            found = _decided(work, shown, rule, settings.reproduce.get(shown.key, 0))
            if remove is None or found.problem or not found.expired:
                done[found.key] = found
                continue
            refuse_other_epoch(context, settings.gone, work.facts.epoch)
            if remove(found.key, found.metadata, found.expired):
                progress(f"{found.key}: {len(found.expired)} of {found.snapshots} snapshots expired")
                done[found.key] = replace(found, done=True)
            elif number == _TRIES - 1:
                done[found.key] = replace(found, problem="others committed first at each try: a later run goes on")
        if all(shown.key in done for shown, _ in left):
            break
    return Expiry(
        region=context.region.name,
        dry_run=remove is None,
        at=at.isoformat(),
        main=work.facts.head,
        epoch=work.facts.epoch,
        tables=tuple(done[key] for key in sorted(done)),
        blocks=work.found.blocks,
    )


def refuse_blocked(found: Expiry) -> None:
    """Raise what kept tables from being expired, once all others are.

    Raises:
        UpkeepBlocked: a region has to be waited for, or a table's metadata can't be read.
    """
    stopped = [item for item in found.tables if item.problem]
    if stopped:
        raise UpkeepBlocked(f"{len(stopped)} tables were left as they are: {stopped[0].problem}", table=stopped[0].key)


def _look(context: RegionContext, settings: Upkeep, now: datetime) -> _Work:
    facts, _ = gather(context, settings, now)
    patience = timedelta(seconds=settings.patience)
    return _Work(context, facts, horizon(facts, patience=patience, without=settings.left_out))


def _wanted(facts: Facts, settings: Upkeep, asked: Collection[str]) -> Iterator[tuple[Shown, UpkeepRule]]:
    for shown in facts.main:
        rule = next((rule for rule in settings.tables if matching(rule.match, shown.key) is not None), None)
        if shown.kind == ICEBERG_TABLE and rule and (not asked or matching(list(asked), shown.key) is not None):
            yield shown, rule


def _refuse_unknown(facts: Facts, settings: Upkeep, asked: Collection[str]) -> None:
    wanted = [shown.key for shown, _ in _wanted(facts, settings, ())]
    for pattern in asked:
        if not any(matching([pattern], key) for key in wanted):
            raise UsageError(f"{pattern}: no table of main that a rule of the section upkeep matches")


def _decided(work: _Work, shown: Shown, rule: UpkeepRule, reproduce: int) -> ExpiredTable:
    """Return what is to become of one table."""
    try:
        metadata = _read(work.context, shown)
    except SternaError as error:
        return ExpiredTable(shown.key, shown.metadata, 0, (), {}, problem=error.message)
    keep, past = timedelta(seconds=rule.keep), timedelta(seconds=reproduce)
    gone = removable(metadata, work.found, keep=keep, now=work.facts.now, reproduce=past)
    blocks = work.found.blocks_of(shown.key)
    problem = "; ".join(f"{block.region}: {block.reason}" for block in blocks)
    if not problem and asked_for(metadata, 0) is None:
        problem = "how much of its history it asks to be kept, in its settings or a branch's, is no number"
    needs = work.found.snapshots
    needed = Counter(str(needs[item.snapshot_id].why) for item in metadata.snapshots if item.snapshot_id in needs)
    count = len(metadata.snapshots)
    return ExpiredTable(shown.key, shown.metadata, count, () if blocks else gone, dict(needed), problem=problem)


def _read(context: RegionContext, shown: Shown) -> TableMetadata:
    data = context.objects.read(shown.metadata)
    return read_table_metadata(data, shown.metadata, context.region.limits)
