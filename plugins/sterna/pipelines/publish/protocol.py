"""Is a step published? Is it staged? Else stage, audit, publish: each time by the table's state, and never twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Protocol, TypeVar

from sterna.errors import CatalogStateUnknown, NotStaged, TableMoved
from sterna.pipelines.publish.decide import Append, FastForward, PositionOnly, Published, Stage, decide, is_staged
from sterna.pipelines.publish.model import COMMIT_PROPERTY, Step, TableState

MAX_ATTEMPTS = 30
"""How often a table is loaded for one step before that is left to a later run."""
_MIN_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.02, 2.0  # seconds

Base = TypeVar("Base")
Change = FastForward | Append | PositionOnly


@dataclass(frozen=True)
class LoadedTable(Generic[Base]):
    """A table at one moment.

    Args:
        state: by its metadata.
        base: that metadata, which a commit is made against.
    """

    state: TableState
    base: Base


@dataclass(frozen=True)
class TableCommit:
    """A commit that was made.

    Args:
        snapshot: the table's current snapshot with it.
        commit: a commit of `main` that has it; "" where the catalog doesn't return it.
    """

    snapshot: int
    commit: str = ""


class WapTable(Protocol[Base]):
    """A table of `main` to put steps on."""

    def refresh(self) -> LoadedTable[Base]:
        """Return the table's metadata as it is now.

        Raises:
            TableGone: there is no such table.
        """

    def commit(self, loaded: LoadedTable[Base], change: Change, step: Step) -> TableCommit:
        """Make a change and set the step's applied position, in one commit, against exactly the metadata that was
        loaded.

        Never retries.

        Raises:
            TableMoved: the table is another one by now; nothing was committed.
            CatalogStateUnknown: the answer was lost.
        """


@dataclass(frozen=True)
class PublishOutcome:
    """The outcome of publishing a step.

    Args:
        snapshot: the snapshot that it is in; None: that is expired, and only the position shows it.
        commit: a commit of `main` that has it; "" where the catalog doesn't return it.
        is_own: whether this very call published it.
        stagings: how often it was loaded and staged.
    """

    snapshot: int | None
    commit: str
    is_own: bool
    stagings: int


def publish_step(
    table: WapTable[Base],
    step: Step,
    stage: Callable[[LoadedTable[Base]], LoadedTable[Base] | None],
    audit: Callable[[LoadedTable[Base], int], None] = lambda loaded, snapshot: None,
    *,
    before_commit: Callable[[], object] = lambda: None,
    max_attempts: int = MAX_ATTEMPTS,
    rng: Random | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> PublishOutcome:
    """Put a step on `main`, exactly once, also with concurrent attempts and after interrupted ones.

    Args:
        stage: loads it and stages it under its id; may return the table as it loaded that afterwards.
        audit: checks what is staged, by the snapshot's id, before it is published.
        before_commit: called right before each commit; what it raises ends all.
        max_attempts: how often to load the table.
        rng: spreads the waits of concurrent writers.

    Raises:
        TableMoved: others were first each time.
        CatalogStateUnknown: the last answer was lost, and a later run finds out.
        NotStaged: what was written isn't staged.
        BatchRejected: the audit failed.
        Rewound, OutOfTurn, MarkMoved: as `decide`.
        TableGone: there is no such table.
    """
    publication = _Publication(table, step, stage, audit, before_commit)
    spread = rng or Random()  # noqa: S311 - spreads waiting, keeps no secret
    for _ in range(max_attempts):
        if outcome := publication.attempt():
            return outcome
        if publication.error:
            sleep(spread.uniform(0, min(_MAX_WAIT_SECONDS, _MIN_WAIT_SECONDS * 2 ** min(publication.conflicts, 8))))
    if publication.error:
        raise publication.error
    raise TableMoved(f"{step.id} was staged {publication.stagings} times, and each time the table went on before it")


@dataclass
class _Publication(Generic[Base]):
    """The tries of one step."""

    table: WapTable[Base]
    step: Step
    stage: Callable[[LoadedTable[Base]], LoadedTable[Base] | None]
    audit: Callable[[LoadedTable[Base], int], None]
    before_commit: Callable[[], object]
    stagings: int = 0
    conflicts: int = 0
    error: TableMoved | CatalogStateUnknown | None = None
    _audited: set[int] = field(default_factory=set)
    _expects_staged: bool = False
    _loaded_after_staging: LoadedTable[Base] | None = None

    def attempt(self) -> PublishOutcome | None:
        """Load the table, and do the next action; None: another attempt is needed."""
        self.error = None
        loaded, self._loaded_after_staging = self._loaded_after_staging or self.table.refresh(), None
        decision = decide(loaded.state, self.step)
        if isinstance(decision, Published):
            commit = loaded.state.properties.get(COMMIT_PROPERTY, "")
            return PublishOutcome(decision.snapshot, commit, False, self.stagings)
        if isinstance(decision, Stage):
            self._load_and_stage(loaded, decision)
            return None
        self._expects_staged = False
        table_commit = self._publish(loaded, decision)
        if table_commit is None:
            return None
        return PublishOutcome(table_commit.snapshot, table_commit.commit, True, self.stagings)

    def _load_and_stage(self, loaded: LoadedTable[Base], decision: Stage) -> None:
        if self._expects_staged and not decision.outdated:
            raise NotStaged(
                f"what was written as {self.step.id} isn't staged: it may be live, without its position",
                hint="look at the table's newest snapshots before anything else is put there",
            )
        self._loaded_after_staging = self.stage(loaded)
        self.stagings += 1
        self._expects_staged = True

    def _publish(self, loaded: LoadedTable[Base], change: Change) -> TableCommit | None:
        if change.snapshot not in self._audited and not isinstance(change, PositionOnly):
            self.audit(loaded, change.snapshot)
            self._audited.add(change.snapshot)
        self.before_commit()
        try:
            return self.table.commit(loaded, change, self.step)
        except (TableMoved, CatalogStateUnknown) as error:
            self.conflicts += 1
            self.error = error  # the next attempt shows whether it happened after all
            return None


def require_wap_enabled(properties: Mapping[str, str], name: str) -> None:
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


def stage_ahead(loaded: LoadedTable[Base], step: Step, stage: Callable[[LoadedTable[Base]], None]) -> bool:
    """Stage a step that is neither staged nor published, before its turn to be published; return whether it was staged.

    Args:
        loaded: the table, just loaded.
        step: a numbered step; what it requires doesn't matter.
        stage: as in `publish_step`.

    Raises:
        Rewound: the table contradicts its applied positions.
        TableGone: there is no such table.
    """
    if is_staged(loaded.state, step):
        return False
    stage(loaded)
    return True
