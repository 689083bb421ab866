"""Whose turn it is.

An actor's real code runs in a thread of its own, but only one of them at a time, and a seed says which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sterna.errors import CatalogUnreachable, StoreUnreachable


class Crash(BaseException):
    """The actor's process died here."""


class _Ended(BaseException):
    """The simulation is over before the actor is."""


class Fiber:
    """A function in a thread that runs only while it is resumed, until it pauses or ends."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._error: BaseException | None = None
        self._ended = False
        self.done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let it run until it pauses or ends; raises what it raised."""
        self._go.release()
        self._back.acquire()
        if self.done:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Hand the turn back; called by the function itself."""
        self._back.release()
        self._go.acquire()
        if self._ended:
            raise _Ended

    def end(self) -> None:
        """Unwind it where it is."""
        self._ended = True
        while not self.done:
            self.resume()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._ended:
                self._function()
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by who resumed it
            self._error = error
        self.done = True
        self._back.release()


@dataclass(frozen=True)
class Faults:
    """How likely something happens at each call that a sync makes.

    Args:
        switch: somebody else goes on.
        crash: the process dies, before the call or after it.
        unreachable: the catalog or a store does not answer, and nothing was done.
        unknown: a commit's answer is lost; it was made, or never will be, or will be later.
        copy: rclone leaves a file out.
    """

    switch: float = 0.0
    crash: float = 0.0
    unreachable: float = 0.0
    unknown: float = 0.0
    copy: float = 0.0


class Turn:
    """What stands between an actor and each of its calls.

    Args:
        rng: decides everything.
        faults: how likely each fault is.
        tell: called with a line for the trace.
    """

    def __init__(self, rng: Random, faults: Faults, tell: Callable[[str], None]) -> None:
        self.rng = rng
        self.faults = faults
        self.tell = tell
        self.fiber: Fiber | None = None

    def call(self, what: str, uri: str = "") -> None:
        """Stand before a call: others may go on first, or the call may never happen."""
        if self.chance(self.faults.switch):
            self.rest()
        self.tell(f"{what} {uri}" if uri else what)
        self.die("before")
        if self.chance(self.faults.unreachable):
            self.tell("  no answer")
            raise (StoreUnreachable if uri else CatalogUnreachable)("the simulation says no", file=uri)

    def rest(self) -> None:
        """Let the others go on, as a process does that sleeps."""
        if self.fiber is not None:
            self.fiber.pause()

    def die(self, when: str) -> None:
        """Perhaps die right here."""
        if self.chance(self.faults.crash):
            self.tell(f"  dies {when} it")
            raise Crash

    def chance(self, likely: float) -> bool:
        return likely > 0 and self.rng.random() < likely
