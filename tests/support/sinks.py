"""Outlets over the catalog in memory: senders that do as they are told, and rooms that hurry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sterna.brokers.message import Message, SendOutcome
from sterna.config.sections.model import Services
from sterna.errors import ReceiverUnreachable
from sterna.notifications.sinks.delivery import Deliverer, DeliveryOptions
from sterna.notifications.sinks.service import SenderOpener, SinkService
from tests.support.http_server import Branch

FAST_DELIVERY = DeliveryOptions(
    poll_seconds=0.01,
    retry_seconds=0.02,
    max_retry_seconds=0.05,
    position_seconds=0.05,
    standby_seconds=0.05,
    takeover_seconds=0.4,
    page_commits=3,
    unknown_seconds=0.1,
)
WEEK = timedelta(days=7)


@dataclass
class Receiver:
    """A sender that remembers what it was given; `answer` decides what becomes of each message."""

    got: list[Message] = field(default_factory=list)
    answer: Callable[[Message], SendOutcome] = lambda message: SendOutcome(1)
    max_messages: int = 4
    closed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        for count, message in enumerate(messages):
            outcome = self.answer(message)
            if outcome.error is not None:
                return SendOutcome(count, outcome.error, outcome.retry_after)
            with self._lock:
                self.got.append(message)
        return SendOutcome(len(messages))

    def close(self) -> None:
        self.closed += 1

    @property
    def tables(self) -> list[str]:
        return [message.table for message in self.got]

    def make_unavailable(self) -> None:
        """Answer nothing from now on."""
        self.answer = lambda message: SendOutcome(0, ReceiverUnreachable("dark"))

    def make_available(self) -> None:
        """Take everything."""
        self.answer = lambda message: SendOutcome(1)


def settings(**outlets: dict[str, Any]) -> Services:
    """Services with outlets that send to a loopback."""
    target = {"webhook": {"url": "http://127.0.0.1:1/hook"}}
    named = {name: {"target": target, "credential_id": "hook", **more} for name, more in outlets.items()}
    return Services.model_validate({"sinks": named})


@contextmanager
def room(
    branch: Branch,
    services: Services,
    receivers: dict[str, Receiver] | Receiver | SenderOpener,
    options: DeliveryOptions = FAST_DELIVERY,
    keep: timedelta = WEEK,
    context: Any = None,
) -> Iterator[SinkService]:
    """Run all outlets of eu, each with a receiver, or what opens one."""

    def opener(outlet: Any, secrets: Any) -> Any:
        if isinstance(receivers, Receiver):
            return receivers
        if not isinstance(receivers, dict):
            return receivers(outlet, secrets)
        return receivers[next(name for name, candidate in services.sinks.items() if candidate == outlet)]

    running = SinkService(context or branch.context(), services, keep, options, opener)
    running.start()
    try:
        wait_until(lambda: all(deliverer.status.state != "starting" for deliverer in running.deliverers), "begin")
        yield running
    finally:
        running.stop()


def wait_until(true: Callable[[], bool], what: str = "happen", seconds: float = 15.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it doesn't {what}"
        time.sleep(0.01)


def only(outlet_room: SinkService) -> Deliverer:
    """The one deliverer of a room."""
    (deliverer,) = outlet_room.deliverers
    return deliverer
