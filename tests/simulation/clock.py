"""Time as the simulation has it: it goes on only when somebody says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def now_ms(self) -> int:
        return int(self._now.timestamp() * 1000)

    def go_on(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def seconds(self) -> float:
        return self._now.timestamp()

    def as_datetime(self) -> type[datetime]:
        """A class to stand in for `datetime` in a module: its `now` is this clock's."""
        clock = self

        class Stopped(datetime):
            @classmethod
            def now(cls, tz=None):
                return clock.now()

        return Stopped
