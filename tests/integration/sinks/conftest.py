"""What outlets send to: each kind is started once, when the first test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sterna.config.environment import temporary_environment
from tests.support.receivers import AmqpPeer, AmqpReceiver, HookReceiver, KafkaReceiver, Receiving, proton_at_hand

KINDS: dict[str, Any] = {"webhook": HookReceiver, "kafka": KafkaReceiver, "amqp": AmqpReceiver, "amqp peer": AmqpPeer}


@pytest.fixture(scope="session")
def receivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Return a receiver of one kind, which runs."""
    started: dict[str, Any] = {}

    def one(kind: str) -> Any:
        if kind not in started:
            if "amqp" in kind:
                proton_at_hand()
            started[kind] = KINDS[kind](tmp_path_factory.mktemp(kind.replace(" ", "-")))
            started[kind].start()
        return started[kind]

    yield one
    for receiver in started.values():
        receiver.stop()


@pytest.fixture(params=KINDS)
def receiving(request: pytest.FixtureRequest, receivers: Callable[[str], Any]) -> Iterator[Receiving]:
    """One of each kind, in turn."""
    yield from _with_trust(receivers(request.param))


@pytest.fixture
def kafka(receivers: Callable[[str], Any]) -> Iterator[KafkaReceiver]:
    yield from _with_trust(receivers("kafka"))


@pytest.fixture
def artemis(receivers: Callable[[str], Any]) -> Iterator[AmqpReceiver]:
    yield from _with_trust(receivers("amqp"))


@pytest.fixture
def peer(receivers: Callable[[str], Any]) -> AmqpPeer:
    amqp_peer: AmqpPeer = receivers("amqp peer")
    return amqp_peer


def _with_trust(receiver: Any) -> Iterator[Any]:
    with temporary_environment(receiver.environ):
        yield receiver
