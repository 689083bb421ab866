"""What outlets send to: each kind is started once, when the first test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sterna.edges.environment import environment
from tests.support.receivers import AmqpPeer, AmqpReceiver, HookReceiver, KafkaReceiver, Receiving, proton_at_hand

KINDS: dict[str, Any] = {"webhook": HookReceiver, "kafka": KafkaReceiver, "amqp": AmqpReceiver, "amqp peer": AmqpPeer}


@pytest.fixture(scope="session")
def receivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Return a receiver of one kind, which runs."""
    made: dict[str, Any] = {}

    def one(kind: str) -> Any:
        if kind not in made:
            if "amqp" in kind:
                proton_at_hand()
            made[kind] = KINDS[kind](tmp_path_factory.mktemp(kind.replace(" ", "-")))
            made[kind].start()
        return made[kind]

    yield one
    for each in made.values():
        each.stop()


@pytest.fixture(params=KINDS)
def receiving(request: pytest.FixtureRequest, receivers: Callable[[str], Any]) -> Iterator[Receiving]:
    """One of each kind, in turn."""
    yield from _believed(receivers(request.param))


@pytest.fixture
def kafka(receivers: Callable[[str], Any]) -> Iterator[KafkaReceiver]:
    yield from _believed(receivers("kafka"))


@pytest.fixture
def artemis(receivers: Callable[[str], Any]) -> Iterator[AmqpReceiver]:
    yield from _believed(receivers("amqp"))


@pytest.fixture
def peer(receivers: Callable[[str], Any]) -> AmqpPeer:
    found: AmqpPeer = receivers("amqp peer")
    return found


def _believed(made: Any) -> Iterator[Any]:
    with environment(made.environ):
        yield made
