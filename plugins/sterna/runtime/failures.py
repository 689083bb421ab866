"""The errors of consumers that run side by side: the last one of each, as long as it stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sterna.errors import EngineError, Remedy, SternaError

log = logging.getLogger(__name__)
_SEVEREST_FIRST = (Remedy.STOP, Remedy.HOLD, Remedy.RETRY)


class Failures:
    """The last error of each consumer; one whose last step succeeded has none. For several threads.

    Args:
        report_progress: called with a line for each error that differs from the consumer's last one.
    """

    def __init__(self, report_progress: Callable[[str], object]) -> None:
        self._report = report_progress
        self._errors: dict[str, SternaError] = {}

    @contextmanager
    def recorded(self, name: str) -> Iterator[None]:
        """Record what the block raises, except an interrupt; where it raises nothing, clear the consumer's error."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, SternaError):
                log.exception("%s failed", name)  # it must not stop the other consumers
            self.record(name, as_sterna_error(error))
        else:
            self.clear(name)

    def record(self, name: str, error: SternaError) -> None:
        """Record a consumer's error, and report it if it isn't the same as before."""
        if str(self._errors.get(name)) != str(error):
            self._report(f"{name}: {describe_error(error)}")
        self._errors[name] = error

    def clear(self, name: str) -> None:
        """Forget a consumer's error."""
        self._errors.pop(name, None)

    def get(self, name: str) -> SternaError | None:
        """Return a consumer's error; None: it has none."""
        return self._errors.get(name)

    def snapshot(self) -> Mapping[str, SternaError]:
        """Return all errors by consumer; those that no retry cures come first."""
        return dict(sorted(self._errors.items(), key=lambda item: _SEVEREST_FIRST.index(item[1].remedy)))


def as_sterna_error(error: BaseException) -> SternaError:
    """Return an error to show: itself, or one for an unexpected error, whose message may hold a secret."""
    return error if isinstance(error, SternaError) else unexpected_error(error)


def unexpected_error(error: BaseException) -> EngineError:
    """Return the error to show for one that isn't sterna's: its message may hold a secret, so only the log has it."""
    return EngineError(f"an unexpected error: {type(error).__name__}; see the log")


def describe_error(error: SternaError) -> str:
    """Return an error's class and message."""
    return f"{type(error).__name__}: {error}"
