"""The state of one table in a region as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sterna.operations.status.model import HeldStatus


class TableState(StrEnum):
    """What a region has of a key of `main`."""

    FRESH = "fresh"
    BEHIND = "behind"
    HELD = "held"
    IN_TRANSIT = "in transit"
    WAITING_FOR_COMPACTION = "waiting for compaction"
    EXCLUDED = "excluded"
    DROPPED = "dropped"
    NEVER_ON_MAIN = "never on main"
    NOT_ON_MAIN = "not on main"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TableStatus:
    """Why a key is in a region as it is.

    Args:
        key: key name.
        kind: the error's class name, as for `Held`, or "".
        reason: what is wrong or under way, and which rule excludes it, for people.
        file: the URI it is about, or "".
        since: when (ISO 8601, UTC) this state began on `main`, "" when unknown.
        lag_seconds: how far it is behind; None when unknown, or when it isn't to be here.
        group: the keys that are published together with it, itself included; empty when it moves alone.
        blocker: the held key that has the fault, where that is another one; None where it is unknown or there is none.
        tries, last_try: as for a held key; None and "" where it isn't held, or they were not read.
        remedy: what an operator does, or that nothing has to be done.
        next_try: when a sync takes it up, for people; "" where none will.
        card: link to the run book's card of the error, its own or the blocker's, or "".
        note: where the primary's catalog does not answer, or has a head that isn't served here yet: as of when all of
            this is; else "".
    """

    region: str
    key: str
    state: TableState
    kind: str = ""
    reason: str = ""
    file: str = ""
    since: str = ""
    lag_seconds: float | None = None
    group: tuple[str, ...] = ()
    blocker: HeldStatus | None = None
    tries: int | None = None
    last_try: str = ""
    remedy: str = "nothing has to be done"
    next_try: str = ""
    card: str = ""
    note: str = ""
