"""What takes part in the model of table groups, and what a bulk run has in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation.groups import Group

Steps = Iterator[None]


@dataclass(frozen=True)
class Faults:
    """How likely something goes wrong at each step, or at each commit."""

    kill: float = 0.0
    unknown: float = 0.0
    copy: float = 0.0


@dataclass
class Actor:
    """Something that is started again and again."""

    name: str
    start: Callable[[], Steps]
    steps: Steps | None = None


@dataclass
class BulkProgress:
    """A bulk run: what it has copied, at which size, and up to which replica commit that is proven.

    Args:
        base: hash of the replica commit that it was planned for.
        newest: hash of the newest replica commit that a publication looked at.
        missing: files that could not be copied.
        publications: how many it has made.
    """

    run_id: str
    term: int
    base: str
    sizes: dict[str, int] = field(default_factory=dict)
    newest: str = ""
    missing: set[str] = field(default_factory=set)
    publications: int = 0


@dataclass
class Lease:
    """What a bulk run tells others: a second one does not start. To lose it costs time alone."""

    run_id: str = ""
    time: int = -1_000
    files: int = 0


def first_base(run: BulkProgress) -> str:
    """Return the commit after which a publication looks for deletions.

    The run's own, for each of them: what an earlier one proved again are the files of its own groups.
    """
    return run.base


def may_publish(group: Group, run: BulkProgress) -> bool:
    """Return whether all files of a group are here, at sizes that were looked at."""
    return all(file in run.sizes and file not in run.missing for file in group.files)
