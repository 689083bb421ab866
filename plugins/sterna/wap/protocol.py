"""Is it published? Is it staged? Else load, stage, audit, publish: each time by looking, and never twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from sterna.errors import CatalogStateUnknown, NotStaged, TableMoved
from sterna.wap.decide import Append, FastForward, MarkOnly, Published, Stage, decide, is_staged
from sterna.wap.model import COMMIT, Step, TableState

LOOKS = 30
"""How often a table is looked at for one step before that is left to a later run."""
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 2.0  # seconds

Base = TypeVar("Base")
Change = FastForward | Append | MarkOnly


@dataclass(frozen=True)
class Look(Generic[Base]):
    """A table at one moment.

    Args:
        state: what its metadata says.
        base: that metadata, which a commit is made against.
    """

    state: TableState
    base: Base


@dataclass(frozen=True)
class Landed:
    """A commit that was made.

    Args:
        snapshot: the table's current snapshot with it.
        commit: a commit of `main` that has it; "" where the catalog doesn't tell.
    """

    snapshot: int
    commit: str = ""


class WapTable(Protocol[Base]):
    """A table of `main` to put steps on."""

    def look(self) -> Look[Base]:
        """Return the table's metadata as it is now.

        Raises:
            TableGone: there is no such table.
        """

    def commit(self, look: Look[Base], change: Change, step: Step) -> Landed:
        """Make a change and set the step's mark, in one commit, against exactly the metadata that was looked at.

        Never tries again by itself.

        Raises:
            TableMoved: the table is another one by now; nothing was committed.
            CatalogStateUnknown: the answer was lost.
        """


@dataclass(frozen=True)
class Outcome:
    """How a step stands after all.

    Args:
        snapshot: the snapshot that it is in; None: that is expired, and the mark tells.
        commit: a commit of `main` that has it; "" where the catalog doesn't tell.
        mine: whether this very call published it.
        looks: how often the table was looked at.
        staged: how often it was loaded and staged.
    """

    snapshot: int | None
    commit: str
    mine: bool
    looks: int
    staged: int


def put(
    table: WapTable[Base],
    step: Step,
    stage: Callable[[Look[Base]], None],
    audit: Callable[[Look[Base], int], None],
    *,
    before: Callable[[], object] = lambda: None,
    looks: int = LOOKS,
    rng: Random | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Outcome:
    """Put a step on `main`, once, whoever else tries, and whatever was done of it before.

    Args:
        table: the table.
        step: the step.
        stage: loads it and stages it under its id.
        audit: looks at what is staged, by the snapshot's id, before it is published.
        before: called right before each commit; what it raises ends all.
        looks: how often to look.
        rng: spreads the waiting of those that meet.
        sleep: waits.

    Raises:
        TableMoved: others were first each time.
        CatalogStateUnknown: the last answer was lost, and a later run finds out.
        NotStaged: what was written isn't staged.
        BatchRejected: the audit says no.
        Rewound, OutOfTurn, MarkMoved: as `decide`.
        TableGone: there is no such table.
    """
    turn = _Turn(table, step, stage, audit, before)
    spread = rng or Random()  # noqa: S311 - spreads waiting, keeps no secret
    for number in range(1, looks + 1):
        outcome = turn.once(number)
        if outcome:
            return outcome
        if turn.trouble:
            sleep(spread.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(turn.losses, 8))))
    if turn.trouble:
        raise turn.trouble
    raise TableMoved(f"{step.id} was staged {turn.staged} times, and each time the table went on before it")


class _Turn(Generic[Base]):
    """The tries of one step."""

    def __init__(
        self,
        table: WapTable[Base],
        step: Step,
        stage: Callable[[Look[Base]], None],
        audit: Callable[[Look[Base], int], None],
        before: Callable[[], object],
    ) -> None:
        self._table, self._step, self._stage, self._audit, self._before = table, step, stage, audit, before
        self._audited: set[int] = set()
        self._must_show = False
        self.staged = self.losses = 0
        self.trouble: TableMoved | CatalogStateUnknown | None = None

    def once(self, number: int) -> Outcome | None:
        """Look, and do what follows; None: it has to be looked at again."""
        self.trouble = None
        look = self._table.look()
        decision = decide(look.state, self._step)
        if isinstance(decision, Published):
            return Outcome(decision.snapshot, look.state.properties.get(COMMIT, ""), False, number, self.staged)
        if isinstance(decision, Stage):
            self._load(look, decision)
            return None
        self._must_show = False
        landed = self._publish(look, decision)
        return Outcome(landed.snapshot, landed.commit, True, number, self.staged) if landed else None

    def _load(self, look: Look[Base], decision: Stage) -> None:
        if self._must_show and not decision.outrun:
            raise NotStaged(
                f"what was written as {self._step.id} isn't staged: it may be live, without its mark",
                hint="look at the table's newest snapshots before anything else is put there",
            )
        self._stage(look)
        self.staged += 1
        self._must_show = True

    def _publish(self, look: Look[Base], change: Change) -> Landed | None:
        if change.snapshot not in self._audited and not isinstance(change, MarkOnly):
            self._audit(look, change.snapshot)
            self._audited.add(change.snapshot)
        self._before()
        try:
            return self._table.commit(look, change, self._step)
        except (TableMoved, CatalogStateUnknown) as error:
            self.losses += 1
            self.trouble = error  # whether it happened after all, the next look tells
            return None


def refuse_unstageable(properties: Mapping[str, str], name: str) -> None:
    """Refuse a table into which Spark's SQL would write at once, whatever WAP id a session has.

    Raises:
        NotStaged: its property `write.wap.enabled` isn't true.
    """
    if properties.get("write.wap.enabled", "").lower() != "true":
        raise NotStaged(
            "without write.wap.enabled, rows that are to be staged go live at once",
            table=name,
            hint="ALTER TABLE … SET TBLPROPERTIES ('write.wap.enabled'='true')",
        )


def stage_ahead(look: Look[Base], step: Step, stage: Callable[[Look[Base]], None]) -> bool:
    """Stage a step that is neither staged nor published, before its turn to be published has come; say whether.

    Args:
        look: at the table, just now.
        step: a numbered step; what it goes after doesn't matter.
        stage: as in `put`.

    Raises:
        Rewound: the table isn't what the marks say.
        TableGone: there is no such table.
    """
    if is_staged(look.state, step):
        return False
    stage(look)
    return True
