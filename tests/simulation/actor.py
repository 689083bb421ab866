"""An actor: something of sterna's that somebody starts again and again, and that may die at each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from sterna.errors import Remedy, SternaError
from sterna.replication.replica.region import RegionContext
from tests.simulation.store import Objects, Violation
from tests.simulation.turns import Crash, Fiber


class Actor(ABC):
    """Something of sterna's that runs on its own schedule.

    Args:
        name: its name in the trace.
        context: the region, as this actor sees it.
        tell: called with a line for the trace.
    """

    def __init__(self, name: str, context: RegionContext, tell: Callable[[str], None]) -> None:
        self.name = name
        self.context = context
        self.objects: Objects = context.objects  # type: ignore[assignment] - it stands in for the real one
        self.turn = self.objects.turn
        self.running = False
        self.tell = lambda line: tell(f"{name}: {line}")

    def go_on(self) -> None:
        """Let it go on until it is somebody else's turn; start it again when nothing is under way."""
        if self.turn.fiber is None:
            self.turn.fiber = Fiber(self._try)
        self.running = True
        try:
            self.turn.fiber.resume()
        finally:
            self.running = False
        if self.turn.fiber.done:
            self.turn.fiber = None

    def end(self) -> None:
        """Kill what is under way."""
        if self.turn.fiber is not None:
            self.turn.fiber.end()
            self.turn.fiber = None

    @abstractmethod
    def work(self) -> None:
        """Do what it does each time that it is started."""

    def _try(self) -> None:
        try:
            self.work()
        except Crash:
            pass
        except SternaError as error:
            self.tell(f"fails: {type(error).__name__}: {error}")
            if error.remedy is not Remedy.RETRY:
                raise Violation(
                    f"{self.name} stops, and no later try will do better: {type(error).__name__}: {error}"
                ) from error
