"""One suite for every kind of target, each a real one: in order, at least once, whatever happens to the receiver."""

from __future__ import annotations

import random
import string
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.brokers.message import Sender
from sterna.brokers.senders import open_sender
from sterna.config.sections.model import Services
from sterna.config.sections.sinks import Sink
from sterna.notifications.sinks.dead_letters import read_dead_letters
from sterna.notifications.sinks.replay import replay_dead_letters
from sterna.notifications.sinks.service import SinkService
from sterna.replication.replica.tags import sink_tag
from tests.integration.sinks.conftest import KINDS
from tests.support.http_server import BRANCH, Branch
from tests.support.receivers import ReceivedEvent, Receiving
from tests.support.sinks import only, room, wait_until

TIMEOUT_SECONDS = 40.0


@pytest.fixture
def topic(receiving: Receiving) -> str:
    address = f"updates.{uuid.uuid4().hex}"
    receiving.make(address)
    return address


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    updated = Branch(tmp_path)
    updated.update("old")
    return updated


@contextmanager
def delivering(branch: Branch, receiving: Receiving, topic: str) -> Iterator[SinkService]:
    """Run the outlet `out`, from where it was or from the branch's head."""
    services = services_for(receiving, topic)
    with room(branch, services, lambda outlet, _: sender(receiving, outlet)) as outlets:
        yield outlets


def services_for(receiving: Receiving, topic: str) -> Services:
    return Services.model_validate({"sinks": {"out": receiving.outlet(topic)}})


def sender(receiving: Receiving, outlet: Sink) -> Sender:
    return open_sender(outlet, lambda id: receiving.credential)


def begin(branch: Branch, receiving: Receiving, topic: str) -> None:
    """Let the outlet begin at the branch's head."""
    with delivering(branch, receiving, topic):
        pass


def first_deliveries(got: list[ReceivedEvent]) -> list[str]:
    return list(dict.fromkeys(received.table.removeprefix("ns.") for received in got))


def wait_for(receiving: Receiving, topic: str, *tables: str) -> list[ReceivedEvent]:
    """Wait until the last of some tables has arrived; they all have, in that order."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while first_deliveries(got := receiving.got(topic))[-1:] != [tables[-1]]:
        assert time.monotonic() < end, first_deliveries(got)
        time.sleep(0.2)
    assert first_deliveries(got) == list(tables)
    return got


def is_at_the_head(branch: Branch) -> bool:
    return branch.catalog.reference(sink_tag("eu", "out")).hash == branch.catalog.reference(BRANCH).hash


def test_events_arrive_in_order_each_once(branch: Branch, receiving: Receiving, topic: str) -> None:
    begin(branch, receiving, topic)
    names = [[f"c{commit:02}t{table:02}" for table in range(20)] for commit in range(15)]
    for update in names:
        head = branch.update(*update)
    with delivering(branch, receiving, topic) as outlets:
        got = wait_for(receiving, topic, *(name for update in names for name in update))
        wait_until(lambda: is_at_the_head(branch))
        assert (only(outlets).status.state, only(outlets).status.failures) == ("delivering", 0)
    assert len(got) == 300 == only(outlets).status.delivered
    assert got[-1].id == f"{head}-20"
    assert got[-1].data["table_identifier"] == "ns.c14t19" and got[-1].data["replica_hash"] == head


def test_one_that_is_killed_before_it_acknowledges_and_comes_back_misses_nothing(
    branch: Branch, receiving: Receiving, topic: str
) -> None:
    with delivering(branch, receiving, topic) as outlets:
        branch.update("a0")
        wait_for(receiving, topic, "a0")
        receiving.freeze()
        for number in range(1, 5):
            branch.update(f"a{number}")
        time.sleep(0.7)  # what is under way now has no answer
        receiving.kill()
        for number in range(5, 8):
            branch.update(f"a{number}")
        receiving.start()
        wait_for(receiving, topic, *(f"a{number}" for number in range(8)))
        wait_until(lambda: is_at_the_head(branch), seconds=TIMEOUT_SECONDS)
        assert only(outlets).status.dead_letters == 0


def test_a_killed_outlet_repeats_and_skips_nothing(branch: Branch, receiving: Receiving, topic: str) -> None:
    begin(branch, receiving, topic)
    branch.update("a")
    branch.update("b")
    begun = branch.catalog.reference(sink_tag("eu", "out"))
    with delivering(branch, receiving, topic) as outlets:
        wait_for(receiving, topic, "a", "b")
        wait_until(lambda: is_at_the_head(branch))
        outlets.stop()
    # As if it had been killed before its position moved.
    branch.catalog.move_tag(begun.name, branch.catalog.reference(begun.name).hash, BRANCH, begun.hash)
    branch.update("c")
    with delivering(branch, receiving, topic):
        got = wait_for(receiving, topic, "a", "b", "c")
    assert len(got) == 5 and {received.id for received in got[:2]} == {received.id for received in got[2:4]}


@pytest.mark.parametrize("receiving", [name for name in KINDS if name != "amqp"], indirect=True)
def test_what_is_too_large_goes_to_the_dead_letters_and_can_be_sent_again(
    branch: Branch, receiving: Receiving, topic: str
) -> None:
    begin(branch, receiving, topic)
    receiving.most(topic, 50_000)
    large = "b" + "".join(random.choices(string.ascii_lowercase, k=70_000))  # which no compression makes small
    branch.update("a")
    branch.update("ba", large, "z")
    branch.update("c")
    with delivering(branch, receiving, topic) as outlets:
        wait_for(receiving, topic, "a", "ba", "z", "c")
        wait_until(lambda: is_at_the_head(branch))
        assert only(outlets).status.dead_letters == 1
    context = branch.context()
    (letter,) = read_dead_letters(context, "out")
    assert letter.table == f"ns.{large}" and large not in letter.reason
    receiving.most(topic, None)
    sending = sender(receiving, services_for(receiving, topic).sinks["out"])
    assert replay_dead_letters(context, "out", sending).sent == 1
    sending.close()
    wait_for(receiving, topic, "a", "ba", "z", "c", large)
    assert list(read_dead_letters(context, "out")) == []


def test_who_lacks_a_right_is_tried_again_until_it_is_given(branch: Branch, receiving: Receiving, topic: str) -> None:
    with delivering(branch, receiving, topic) as outlets:
        receiving.deny(topic)
        branch.update("a")
        wait_until(lambda: only(outlets).status.failures > 0, seconds=TIMEOUT_SECONDS)
        assert only(outlets).status.state == "retrying"
        branch.update("b")
        assert receiving.got(topic) == []
        receiving.allow(topic)
        wait_for(receiving, topic, "a", "b")
        wait_until(lambda: is_at_the_head(branch))
        assert only(outlets).status.dead_letters == 0
