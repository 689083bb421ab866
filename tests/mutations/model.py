"""A planted fault, and what the tests said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["found", "missed", "undecided", "error"]


@dataclass(frozen=True)
class Mutation:
    """A small fault that somebody could have written.

    Args:
        name: of the fault.
        component: what it is planted in.
        file: its path below `plugins/sterna`.
        old: text that stands in the file exactly once.
        new: what stands there instead.
        harm: what it would do to users.
        near: paths below `tests` with the tests of the component that need no server.
        servers: paths below `tests` with tests that do.
        earlier: the same fault, as `old` and `new`, in the version before issue I.
        first: paths below `tests`, of files or of single tests, that find it: they are run before all others.
    """

    name: str
    component: str
    file: str
    old: str
    new: str
    harm: str
    near: tuple[str, ...]
    servers: tuple[str, ...]
    earlier: tuple[str, str] | None = None
    first: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What the tests said of a mutation.

    Args:
        name: the mutation's.
        verdict: `found`: a test failed twice that passes without it. `missed`: all tests passed. `undecided`: tests did
            not end in time, a test failed only once, or no more than the tests named for it were run. `error`: the
            mutation can't be planted, or tests can't be run.
        by: the test that failed first.
        how: what that test said, or why there is no verdict.
        stage: which tests found it: 0 those named for it, 1 the component's, 2 all without servers, 3 with servers.
        seconds: how long that took.
    """

    name: str
    verdict: Verdict
    by: str = ""
    how: str = ""
    stage: int = 0
    seconds: float = 0.0
