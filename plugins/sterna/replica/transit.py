"""The large lane's sign of life: which tables it copies, and how far it is.

It stands beside the replica, in `<replica root>/_sterna/transit/`, and is written over again and again. While it is
fresh nobody else looks at those tables, which may have a million files. When a table's files are all here it says that,
too: what they are need not be listed again. Deleting it loses nothing: what is here is found by looking then.

    round.json             the newest round: its tables; once it is over, what it has brought and what it could not
    <run id>/<n>.json      how far copy batch n of that round is
    <run id>/at-work.json  written over while the round localizes and proves
    <run id>/here-…        a table's files are all here, and localized: it need not wait for the round's others
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sterna.errors import ObjectMissing, SternaError
from sterna.json_record import FLAG, INTEGER, TEXT, Field, Record, by_name, many, parse_json
from sterna.registry.folders import TRANSIT, own_folder
from sterna.registry.model import Region, digest
from sterna.repeating import repeated
from sterna.replica.codecs import HELD, TABLE_FAILURE
from sterna.replica.held import Held
from sterna.replica.records import TableFailure
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects

BEAT_SECONDS = 30.0
FRESH_SECONDS = 150.0  # some beats may be late, or lost
_PATIENCE = 1.0
_ROUND = "round.json"
_AT_WORK = "at-work.json"


@dataclass(frozen=True)
class Moving:
    """A table that a round copies.

    Args:
        key: key name.
        since: that of its entry at the replica's head, which tells this time in transit from earlier ones.
        bytes: what was to be copied as the round began.
        batches: the numbers of the copy batches that have files for it, or for what moves together with it.
        target: where its localized metadata.json goes.
        manifests: how many new ones it had, where they were very many; else 0.
        voided: so many rounds before had brought it whole in this time in transit, and something was deleted then.
    """

    key: str
    since: str
    bytes: int
    batches: tuple[int, ...] = ()
    target: str = ""
    manifests: int = 0
    voided: int = 0


@dataclass(frozen=True)
class Round:
    """One run of the large lane.

    Args:
        run_id: names it.
        tables: what it copies.
        over: it is.
        failed: what it could not bring.
        replica_hash: the head of the replica branch that it was planned for.
        digest, registry, epoch: of its plan.
        whole: key names of what it has brought, once it is over: every file is here, and localized.
        held: what its plan had to leave out.
    """

    run_id: str
    tables: tuple[Moving, ...]
    over: bool = False
    failed: tuple[TableFailure, ...] = ()
    replica_hash: str = ""
    digest: str = ""
    registry: str = ""
    epoch: str = ""
    whole: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()

    def moving(self, item: Held) -> Moving | None:
        """Return a held key as this round copies it; None where it doesn't, or did so at an earlier time in transit."""
        return self._moving.get((item.key, item.since))

    def began_with(self, item: Held) -> int | None:
        """Return how much was to be copied for a held key; None where this round doesn't copy it."""
        moving = self.moving(item)
        return moving.bytes if moving else None

    def failure(self, item: Held) -> TableFailure | None:
        """Return why a held key could not be brought."""
        if left_out := self._held.get((item.key, item.since)):
            return TableFailure(left_out.key, left_out.kind, left_out.reason, left_out.file)
        return self._failed.get(item.key) if self.over and self.moving(item) else None

    def has_brought(self, key: str) -> bool:
        """Tell whether it has brought a key whole, now that it is over."""
        return key in self._whole

    # Each plan asks for all that is in transit: thousands of tables, while a lake is brought for the first time.

    @cached_property
    def _moving(self) -> dict[tuple[str, str], Moving]:
        return {(each.key, each.since): each for each in self.tables}

    @cached_property
    def _held(self) -> dict[tuple[str, str], Held]:
        return {(each.key, each.since): each for each in self.held}

    @cached_property
    def _failed(self) -> dict[str, TableFailure]:
        return {each.table: each for each in reversed(self.failed)}

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(self.whole)


MOVING: Final = Record(
    Moving,
    (
        Field("key", TEXT),
        Field("since", TEXT),
        Field("bytes", INTEGER),
        Field("batches", many(INTEGER), ()),
        Field("target", TEXT, ""),
        Field("manifests", INTEGER, 0),
        Field("voided", INTEGER, 0),
    ),
)
ROUND: Final = Record(
    Round,
    (
        Field("run_id", TEXT),
        Field("tables", many(MOVING.kind)),
        Field("over", FLAG, False),
        Field("failed", many(TABLE_FAILURE), ()),
        Field("replica_hash", TEXT, ""),
        Field("digest", TEXT, ""),
        Field("registry", TEXT, ""),
        Field("epoch", TEXT, ""),
        Field("whole", many(TEXT), ()),
        Field("held", many(HELD.kind), ()),
    ),
)
"""One that isn't understood is as good as none: its tables are listed anew."""
_HERE: Final = by_name(INTEGER)


@dataclass(frozen=True)
class Transit:
    """What the large lane is at.

    Args:
        round: the newest round.
        at: when it was last heard of, None where it isn't known.
        fresh: it is at work, for all that is known.
        left: by key name, how many bytes of it are left to be copied, where that was asked for.
        marks: names of what the round has written.
    """

    round: Round
    at: datetime | None = None
    fresh: bool = False
    left: dict[str, int] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()

    def is_at(self, item: Held) -> bool:
        """Tell whether a key in transit is being copied right now."""
        under_way = self.fresh and self.round.began_with(item) is not None
        return under_way and item.in_transit and not self.is_here(item.key)

    def is_here(self, key: str) -> bool:
        """Tell whether the round has brought and localized all files of a key."""
        return _here(key) in self.marks or self.round.has_brought(key)


def read_transit(objects: Objects, region: Region, *, counts: bool = False) -> Transit | None:
    """Return what the large lane is at; None where it has left no sign, or one that nobody understands.

    Args:
        objects: the stores.
        region: whose large lane.
        counts: find out how much is left, too; costs a request a batch.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    try:
        found = ROUND.loads(objects.read(round_uri(region)))
    except (ObjectMissing, ValueError):
        return None
    if found.over and not counts:
        return Transit(found)
    beats = {uri: modified for uri, _, modified in objects.list(f"{_folder(region)}/{found.run_id}")}
    at = max(beats.values(), default=None)
    fresh = not found.over and at is not None and (datetime.now(UTC) - at).total_seconds() < FRESH_SECONDS
    marks = frozenset(uri.rpartition("/")[2] for uri in beats)
    return Transit(found, at, fresh, _left(objects, found, beats) if counts else {}, marks)


def round_uri(region: Region) -> str:
    """Return where the newest round of a region's large lane is written down."""
    return f"{_folder(region)}/{_ROUND}"


def begin_round(context: RegionContext, begun: Round) -> None:
    """Say that a round begins."""
    _save(context, f"{begun.run_id}/begin.json", {})
    _save(context, _ROUND, begun)


def end_round(context: RegionContext, ended: Round) -> None:
    """Say that a round is over, and what it brought and could not bring."""
    _save(context, _ROUND, replace(ended, over=True))


def mark_here(context: RegionContext, run_id: str, keys: Iterable[str]) -> None:
    """Say that a round has brought and localized all files of some keys."""
    for key in keys:
        _save(context, f"{run_id}/{_here(key)}", {})


@contextmanager
def at_work(context: RegionContext, run_id: str) -> Iterator[None]:
    """Show now and then that a round is alive, while something is done that may say nothing for minutes."""

    def show() -> None:
        with suppress(SternaError):
            _save(context, f"{run_id}/{_AT_WORK}", {})

    show()
    # A store that is silent holds up nobody; and a late sign does no harm.
    with repeated(show, BEAT_SECONDS, "sterna-at-work", _PATIENCE):
        yield


@dataclass
class Heart:
    """What tells, now and then, how far the copy of one batch is. Whether anybody hears it doesn't matter to the copy.

    Args:
        context: the region.
        run_id: names the round.
        batch: the batch's number.
        tables: by key name, how many bytes of the batch are for it.
    """

    context: RegionContext
    run_id: str
    batch: int
    tables: Mapping[str, int]
    _due: float = 0.0

    def beat(self, share: float, *, now: bool = False) -> None:
        """Tell which share of the batch is here, where it is time to, or at once."""
        if not now and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + BEAT_SECONDS
        here = {name: int(size * share) for name, size in self.tables.items()}
        with suppress(SternaError):
            _save(self.context, f"{self.run_id}/{self.batch}.json", here)


def _left(objects: Objects, found: Round, beats: Iterable[str]) -> dict[str, int]:
    left = {item.key: item.bytes for item in found.tables}
    for _, data in objects.read_many(beats):
        with suppress(ValueError):
            here = _HERE.decode(parse_json(data), "") if isinstance(data, bytes) else {}
            left = {name: max(0, size - here.get(name, 0)) for name, size in left.items()}
    return left


def _here(key: str) -> str:
    return f"here-{digest([key])}.json"


def brought_text(brought: Mapping[str, int]) -> str:
    """Return what a batch has brought, in bytes by key name, as its file says it."""
    return json.dumps(brought)


def _save(context: RegionContext, name: str, value: Round | Mapping[str, int]) -> None:
    text = ROUND.dumps(value) if isinstance(value, Round) else brought_text(value)
    context.objects.overwrite(f"{_folder(context.region)}/{name}", text.encode())


def _folder(region: Region) -> str:
    return own_folder(region.replica_root, TRANSIT)
