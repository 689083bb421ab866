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

from sterna.edges.brokers.message import Sender
from sterna.edges.brokers.open_sender import open_sender
from sterna.outlets.letters import dead_letters
from sterna.outlets.replay import replay
from sterna.outlets.room import OutletRoom
from sterna.replica.tags import outlet_tag
from sterna.services.model import Services
from sterna.services.outlets import Outlet
from tests.integration.outlets.conftest import KINDS
from tests.support.gateway import BRANCH, Branch
from tests.support.outlets import only, room, wait_until
from tests.support.receivers import Got, Receiving

PATIENCE = 40.0


@pytest.fixture
def topic(receiving: Receiving) -> str:
    made = f"updates.{uuid.uuid4().hex}"
    receiving.make(made)
    return made


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    made = Branch(tmp_path)
    made.update("old")
    return made


@contextmanager
def delivering(branch: Branch, receiving: Receiving, topic: str) -> Iterator[OutletRoom]:
    """Run the outlet `out`, from where it was or from the branch's head."""
    services = services_for(receiving, topic)
    with room(branch, services, lambda outlet, _: sender(receiving, outlet)) as made:
        yield made


def services_for(receiving: Receiving, topic: str) -> Services:
    return Services.model_validate({"outlets": {"out": receiving.outlet(topic)}})


def sender(receiving: Receiving, outlet: Outlet) -> Sender:
    return open_sender(outlet, lambda id: receiving.credential)


def begin(branch: Branch, receiving: Receiving, topic: str) -> None:
    """Let the outlet begin at the branch's head."""
    with delivering(branch, receiving, topic):
        pass


def first_times(got: list[Got]) -> list[str]:
    return list(dict.fromkeys(each.table.removeprefix("ns.") for each in got))


def wait_for(receiving: Receiving, topic: str, *tables: str) -> list[Got]:
    """Wait until the last of some tables has arrived; they all have, in that order."""
    end = time.monotonic() + PATIENCE
    while first_times(got := receiving.got(topic))[-1:] != [tables[-1]]:
        assert time.monotonic() < end, first_times(got)
        time.sleep(0.2)
    assert first_times(got) == list(tables)
    return got


def is_at_the_head(branch: Branch) -> bool:
    return branch.catalog.reference(outlet_tag("eu", "out")).hash == branch.catalog.reference(BRANCH).hash


def test_events_arrive_in_order_each_once(branch: Branch, receiving: Receiving, topic: str) -> None:
    begin(branch, receiving, topic)
    names = [[f"c{commit:02}t{table:02}" for table in range(20)] for commit in range(15)]
    for each in names:
        head = branch.update(*each)
    with delivering(branch, receiving, topic) as made:
        got = wait_for(receiving, topic, *(name for each in names for name in each))
        wait_until(lambda: is_at_the_head(branch))
        assert (only(made).told.state, only(made).told.failures) == ("delivering", 0)
    assert len(got) == 300 == only(made).told.delivered
    assert got[-1].id == f"{head}-20"
    assert got[-1].data["table_identifier"] == "ns.c14t19" and got[-1].data["replica_hash"] == head


def test_one_that_is_killed_before_it_acknowledges_and_comes_back_misses_nothing(
    branch: Branch, receiving: Receiving, topic: str
) -> None:
    with delivering(branch, receiving, topic) as made:
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
        wait_until(lambda: is_at_the_head(branch), seconds=PATIENCE)
        assert only(made).told.dead == 0


def test_a_killed_outlet_repeats_and_skips_nothing(branch: Branch, receiving: Receiving, topic: str) -> None:
    begin(branch, receiving, topic)
    branch.update("a")
    branch.update("b")
    begun = branch.catalog.reference(outlet_tag("eu", "out"))
    with delivering(branch, receiving, topic) as made:
        wait_for(receiving, topic, "a", "b")
        wait_until(lambda: is_at_the_head(branch))
        made.stop()
    # As if it had been killed before its position moved.
    branch.catalog.move_tag(begun.name, branch.catalog.reference(begun.name).hash, BRANCH, begun.hash)
    branch.update("c")
    with delivering(branch, receiving, topic):
        got = wait_for(receiving, topic, "a", "b", "c")
    assert len(got) == 5 and {each.id for each in got[:2]} == {each.id for each in got[2:4]}


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
    with delivering(branch, receiving, topic) as made:
        wait_for(receiving, topic, "a", "ba", "z", "c")
        wait_until(lambda: is_at_the_head(branch))
        assert only(made).told.dead == 1
    context = branch.context()
    (letter,) = dead_letters(context, "out")
    assert letter.table == f"ns.{large}" and large not in letter.reason
    receiving.most(topic, None)
    sending = sender(receiving, services_for(receiving, topic).outlets["out"])
    assert replay(context, "out", sending).sent == 1
    sending.close()
    wait_for(receiving, topic, "a", "ba", "z", "c", large)
    assert list(dead_letters(context, "out")) == []


def test_who_lacks_a_right_is_tried_again_until_it_is_given(branch: Branch, receiving: Receiving, topic: str) -> None:
    with delivering(branch, receiving, topic) as made:
        receiving.deny(topic)
        branch.update("a")
        wait_until(lambda: only(made).told.failures > 0, seconds=PATIENCE)
        assert only(made).told.state == "retrying"
        branch.update("b")
        assert receiving.got(topic) == []
        receiving.allow(topic)
        wait_for(receiving, topic, "a", "b")
        wait_until(lambda: is_at_the_head(branch))
        assert only(made).told.dead == 0
