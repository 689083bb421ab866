"""Outlets over the catalog in memory: senders that do as they are told, and rooms that hurry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sterna.edges.brokers.message import Message, Sent
from sterna.errors import ReceiverUnreachable
from sterna.outlets.deliverer import Deliverer, DeliveryOptions
from sterna.outlets.room import Opener, OutletRoom
from sterna.services.model import Services
from tests.support.gateway import Branch

HASTE = DeliveryOptions(
    look=0.01, pause=0.02, longest=0.05, move=0.05, standby=0.05, takeover=0.4, portion=3, unknown=0.1
)
WEEK = timedelta(days=7)


@dataclass
class Receiver:
    """A sender that remembers what it was given; `answer` decides what becomes of each message."""

    got: list[Message] = field(default_factory=list)
    answer: Callable[[Message], Sent] = lambda message: Sent(1)
    at_once: int = 4
    closed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, messages: Sequence[Message]) -> Sent:
        for count, message in enumerate(messages):
            told = self.answer(message)
            if told.problem is not None:
                return Sent(count, told.problem, told.retry_after)
            with self._lock:
                self.got.append(message)
        return Sent(len(messages))

    def close(self) -> None:
        self.closed += 1

    @property
    def tables(self) -> list[str]:
        return [each.table for each in self.got]

    def dark(self) -> None:
        """Answer nothing from now on."""
        self.answer = lambda message: Sent(0, ReceiverUnreachable("dark"))

    def well(self) -> None:
        """Take everything."""
        self.answer = lambda message: Sent(1)


def settings(**outlets: dict[str, Any]) -> Services:
    """Services with outlets that send to a loopback."""
    target = {"webhook": {"url": "http://127.0.0.1:1/hook"}}
    named = {name: {"target": target, "credential_id": "hook", **more} for name, more in outlets.items()}
    return Services.model_validate({"outlets": named})


@contextmanager
def room(
    branch: Branch,
    services: Services,
    receivers: dict[str, Receiver] | Receiver | Opener,
    options: DeliveryOptions = HASTE,
    keep: timedelta = WEEK,
    context: Any = None,
) -> Iterator[OutletRoom]:
    """Run all outlets of eu, each with a receiver, or what opens one."""

    def opener(outlet: Any, secrets: Any) -> Any:
        if isinstance(receivers, Receiver):
            return receivers
        if not isinstance(receivers, dict):
            return receivers(outlet, secrets)
        return receivers[next(name for name, each in services.outlets.items() if each == outlet)]

    made = OutletRoom(context or branch.context(), services, keep, options, opener)
    made.start()
    try:
        wait_until(lambda: all(each.told.state != "starting" for each in made.deliverers), "begin")
        yield made
    finally:
        made.stop()


def wait_until(true: Callable[[], bool], what: str = "happen", seconds: float = 15.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it doesn't {what}"
        time.sleep(0.01)


def only(made: OutletRoom) -> Deliverer:
    """The one deliverer of a room."""
    (found,) = made.deliverers
    return found
