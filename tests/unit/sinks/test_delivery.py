"""Delivery: in order, repeated and never skipped, whoever dies; positions that follow; dead letters."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sterna.brokers.message import Message, SendOutcome
from sterna.config.sections.readers import ReaderRule
from sterna.errors import CatalogUnreachable, EventRefused, NotPrimary, OutletDisabled, ReceiverUnreachable
from sterna.notifications.change_log.log import EventLog, LogSegment
from sterna.notifications.sinks import delivery
from sterna.notifications.sinks.dead_letters import read_dead_letters
from sterna.notifications.sinks.offset import PositionTag, sink_positions
from sterna.replication.replica.tags import sink_tag
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.http_server import BRANCH, Branch
from tests.support.regions import with_ports
from tests.support.sinks import FAST_DELIVERY, Receiver, only, room, settings, wait_until

PAGER = settings(pager={})
TAG = sink_tag("eu", "pager")


def stands_at(branch: Branch, hash: str) -> bool:
    return branch.catalog.reference(TAG).hash == hash


def test_the_first_start_begins_at_the_head(branch: Branch) -> None:
    branch.update("old")
    receiver = Receiver()
    with room(branch, PAGER, receiver) as service:
        newest = branch.update("a")
        wait_until(lambda: receiver.tables == ["ns.a"])
        wait_until(lambda: stands_at(branch, newest))
        assert (only(service).status.state, only(service).status.delivered, only(service).age) == ("delivering", 1, 0.0)
    assert receiver.closed == 1


def test_a_branch_without_commits_is_told_from_its_first_one_on(branch: Branch) -> None:
    receiver = Receiver()
    receiver.make_unavailable()
    with room(branch, PAGER, receiver):
        assert stands_at(branch, branch.catalog.no_ancestor())
    first = branch.update("a")
    receiver.make_available()
    with room(branch, PAGER, receiver):
        wait_until(lambda: receiver.tables == ["ns.a"])
    assert stands_at(branch, first), "an orderly end leaves the position where delivery is"


def test_events_come_in_the_order_of_the_log_portion_by_portion(branch: Branch) -> None:
    receiver = Receiver()
    with room(branch, PAGER, receiver):
        pass
    for index in range(20):
        branch.update(f"t{index}", f"u{index}")
    with room(branch, PAGER, receiver):
        wait_until(lambda: len(receiver.got) == 40)
    assert receiver.tables == [f"ns.{kind}{index}" for index in range(20) for kind in "tu"]
    assert len({message.id for message in receiver.got}) == 40


def test_a_crash_before_the_position_moved_repeats_and_skips_nothing(branch: Branch) -> None:
    slow = replace(FAST_DELIVERY, position_seconds=60.0, takeover_seconds=60.0)
    receiver = Receiver()
    with room(branch, PAGER, receiver):
        start = branch.catalog.reference(TAG).hash
    service = room(branch, PAGER, receiver, slow)
    running = service.__enter__()
    branch.update("a")
    branch.update("b")
    wait_until(lambda: receiver.tables == ["ns.a", "ns.b"])
    assert stands_at(branch, start)
    # As after SIGKILL: another process begins, and this one never moves the tag again.
    only(running).tag.taken_over = True
    with room(branch, PAGER, receiver):
        wait_until(lambda: receiver.tables == ["ns.a", "ns.b", "ns.a", "ns.b"])
    assert [message.payload for message in receiver.got[:2]] == [message.payload for message in receiver.got[2:]]
    running.stop()


def test_a_stuck_outlet_holds_up_no_other(branch: Branch) -> None:
    stuck, well = Receiver(), Receiver()
    stuck.make_unavailable()
    services = settings(stuck={"retry_timeout": "2d"}, well={})
    with room(branch, services, {"stuck": stuck, "well": well}) as service:
        branch.update("a")
        wait_until(lambda: well.tables == ["ns.a"])
        first = next(deliverer for deliverer in service.deliverers if deliverer.job.name == "stuck")
        wait_until(lambda: first.status.failures > 2)
        assert first.status.state == "retrying" and first.age > 0
        stuck.make_available()
        wait_until(lambda: stuck.tables == ["ns.a"])


def test_while_the_primary_is_dark_positions_stand_still_and_delivery_goes_on(branch: Branch) -> None:
    class Dark(InMemoryCatalog):
        dark = False

        def move_tag(self, *arguments: Any) -> Any:
            if self.dark:
                raise CatalogUnreachable("dark")
            return branch.catalog.move_tag(*arguments)

        def __getattribute__(self, name: str) -> Any:
            own = name in ("dark", "move_tag", "__class__")
            return object.__getattribute__(self, name) if own else getattr(branch.catalog, name)

    primary, receiver = Dark(), Receiver()
    context = with_ports(branch.context(), catalog=branch.catalog, primary=primary)
    with room(branch, PAGER, receiver, context=context) as service:
        start = branch.catalog.reference(TAG).hash
        Dark.dark = True
        newest = branch.update("a")
        wait_until(lambda: receiver.tables == ["ns.a"])
        wait_until(lambda: only(service).tag.problem == "CatalogUnreachable")
        assert stands_at(branch, start)
        Dark.dark = False
        wait_until(lambda: stands_at(branch, newest))


def test_an_answer_to_a_move_that_is_lost_is_looked_for(branch: Branch) -> None:
    receiver = Receiver()
    with room(branch, PAGER, receiver) as service:
        with branch.catalog.lock:
            first = branch.update("a")
            branch.catalog.lose_next_answer()  # the move's: this test's own commit has had its answer
        wait_until(lambda: stands_at(branch, first))
        second = branch.update("b")
        wait_until(lambda: stands_at(branch, second))
        assert not only(service).tag.taken_over and only(service).status.standbys == 0
    assert receiver.tables == ["ns.a", "ns.b"]


def test_of_two_deliverers_one_steps_back_and_takes_over_when_the_other_is_gone(branch: Branch) -> None:
    one, other = Receiver(), Receiver()
    patient = replace(FAST_DELIVERY, takeover_seconds=60.0)
    with room(branch, PAGER, one, patient) as first, room(branch, PAGER, other, patient) as second:
        both = [only(first), only(second)]
        for index in range(200):
            branch.update(f"t{index}")
            if any(deliverer.status.state == "standby" for deliverer in both):
                break
            wait_until(lambda index=index: f"ns.t{index}" in one.tables + other.tables)
            wait_until(lambda: branch.catalog.reference(TAG).hash == branch.catalog.reference(BRANCH).hash)
        wait_until(lambda: sum(deliverer.status.state == "standby" for deliverer in both) == 1)
        standing = next(deliverer for deliverer in both if deliverer.status.state == "standby")
        working, there = (one, other) if standing is both[1] else (other, one)
        before = len(there.got)
        branch.update("last")
        wait_until(lambda: "ns.last" in working.tables)
        wait_until(lambda: branch.catalog.reference(TAG).hash == branch.catalog.reference(BRANCH).hash)
        assert len(there.got) == before
        standing.options = FAST_DELIVERY
        working.make_unavailable()
        branch.update("more")
        wait_until(lambda: "ns.more" in there.tables)
    delivered = list(dict.fromkeys(one.tables + other.tables))
    assert {"ns.t0", "ns.last", "ns.more"} <= set(delivered)


def test_of_two_that_are_equally_far_one_sees_that_the_other_is_at_work(branch: Branch) -> None:
    begin, next = branch.update("a"), branch.update("b")
    one, other = PositionTag(branch.context(), "pager"), PositionTag(branch.context(), "pager")
    one.begin(begin)
    other.begin(begin)
    for tag in (one, other):
        tag.advance(next)
        tag.save()
    assert (one.stored, one.taken_over, other.taken_over) == (next, False, True)


def test_after_give_up_an_event_goes_to_the_dead_letters_and_delivery_goes_on(branch: Branch) -> None:
    receiver = Receiver()
    receiver.answer = lambda message: (
        SendOutcome(0, ReceiverUnreachable("the receiver answered 500"))
        if message.table == "ns.bad"
        else SendOutcome(1)
    )
    with room(branch, settings(pager={"retry_timeout": "1s"}), receiver) as service:
        branch.update("a")
        newest = branch.update("bad")
        branch.update("b")
        wait_until(lambda: receiver.tables == ["ns.a", "ns.b"])
        assert only(service).status.dead_letters == 1
    (letter,) = read_dead_letters(branch.context(), "pager")
    assert (letter.table, letter.reason) == ("ns.bad", "the receiver answered 500")
    assert letter.id.startswith(newest) and json.loads(letter.message().payload)["subject"] == "ns.bad"


def test_a_refused_event_of_a_batch_alone_goes_to_the_dead_letters(branch: Branch) -> None:
    class Broker(Receiver):
        def send(self, messages: Any) -> SendOutcome:
            if any(message.table == "ns.large" for message in messages):
                return SendOutcome(0, EventRefused("too large"))
            return super().send(messages)

    receiver = Broker()
    receiver.make_unavailable()
    with room(branch, PAGER, receiver) as service:
        branch.update("a")
        wait_until(lambda: only(service).status.failures > 0)
        for name in ("b", "large", "c", "d"):
            branch.update(name)
        receiver.make_available()
        wait_until(lambda: receiver.tables == ["ns.a", "ns.b", "ns.c", "ns.d"])
    assert [letter.table for letter in read_dead_letters(branch.context(), "pager")] == ["ns.large"]


def test_dead_letters_that_can_t_be_written_hold_the_event(branch: Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver(answer=lambda message: SendOutcome(0, EventRefused("no")))
    written = []

    def bury(*arguments: Any) -> str:
        if len(written) < 2:
            written.append(arguments)
            raise CatalogUnreachable("the store is dark")
        written.append(arguments)
        return "there"

    monkeypatch.setattr(delivery, "write_dead_letter", bury)
    with room(branch, PAGER, receiver) as service:
        branch.update("a")
        wait_until(lambda: only(service).status.dead_letters == 1)
    assert len(written) == 3


def test_410_disables_the_outlet(branch: Branch) -> None:
    receiver = Receiver(answer=lambda message: SendOutcome(0, OutletDisabled("410")))
    with room(branch, PAGER, receiver) as service:
        start = branch.catalog.reference(TAG).hash
        branch.update("a")
        wait_until(lambda: only(service).status.state == "disabled")
        branch.update("b")
        receiver.make_available()
        wait_until(lambda: receiver.closed == 1)
        assert receiver.got == [] and stands_at(branch, start)


def test_a_receiver_that_asks_for_time_is_given_it(branch: Branch) -> None:
    tries: list[float] = []

    def answer(message: Message) -> SendOutcome:
        tries.append(datetime.now(UTC).timestamp())
        return SendOutcome(0, ReceiverUnreachable("429"), 0.5) if len(tries) == 1 else SendOutcome(1)

    receiver = Receiver(answer=answer)
    with room(branch, PAGER, receiver):
        branch.update("a")
        wait_until(lambda: receiver.tables == ["ns.a"])
    assert tries[1] - tries[0] >= 0.5


def test_a_branch_that_was_rewound_is_delivered_from_where_it_forked(
    branch: Branch, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver()
    with room(branch, PAGER, receiver):
        base = branch.update("base")
        lost = branch.update("lost")
        wait_until(lambda: stands_at(branch, lost))
    branch.catalog.assign(BRANCH, base)
    branch.update("other")
    newest = branch.update("newest")
    with caplog.at_level(logging.WARNING), room(branch, PAGER, receiver) as service:
        wait_until(lambda: stands_at(branch, newest))
        assert only(service).status.resets == 0
    assert receiver.tables == ["ns.base", "ns.lost", "ns.other", "ns.newest"]
    assert "is no more on the branch" in caplog.text


def test_where_only_the_stored_position_is_known_it_is_delivered_from_there(
    branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, real = Receiver(), PositionTag.save
    with room(branch, PAGER, receiver) as service:
        stored = branch.update("stored")
        wait_until(lambda: stands_at(branch, stored))
        monkeypatch.setattr(PositionTag, real.__name__, lambda tag: None)  # the primary is dark
        sent = branch.update("sent")
        wait_until(lambda: receiver.tables == ["ns.stored", "ns.sent"])
        branch.catalog.assign(BRANCH, stored)
        branch.catalog.forget(sent)
        branch.update("again")
        newest = branch.update("newest")
        wait_until(lambda: receiver.tables[-1] == "ns.newest")
        monkeypatch.setattr(PositionTag, real.__name__, real)
        wait_until(lambda: stands_at(branch, newest))
        assert only(service).status.resets == 0
    assert receiver.tables == ["ns.stored", "ns.sent", "ns.again", "ns.newest"]


@pytest.mark.parametrize("slow", [False, True], ids=["", "and what is read is too old by then"])
def test_a_position_that_is_too_old_begins_with_the_oldest_kept_commit_and_says_so(
    branch: Branch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    receiver, real = Receiver(), EventLog.read_first_since

    def slowly(*arguments: Any) -> LogSegment:
        segment = real(*arguments)
        time.sleep(0.0 if segment.complete else 2.0)
        return segment

    with room(branch, PAGER, receiver):
        position = branch.update("sent")
        wait_until(lambda: stands_at(branch, position))
    branch.update("too old")
    time.sleep(2)
    branch.update("kept")
    newest = branch.update("newest")
    if slow:
        monkeypatch.setattr(EventLog, real.__name__, slowly)
    with caplog.at_level(logging.ERROR), room(branch, PAGER, receiver, keep=timedelta(seconds=1.5)) as service:
        wait_until(lambda: only(service).status.resets == 1)
        wait_until(lambda: stands_at(branch, newest))
        assert only(service).status.resets == 1
    assert receiver.tables == ["ns.sent", "ns.kept", "ns.newest"]
    assert "begins with the oldest commit there" in caplog.text


def test_a_promotion_asks_anew_who_the_primary_is(branch: Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, closed = Receiver(), []
    with room(branch, PAGER, receiver) as service:
        monkeypatch.setattr(service.positions_region.ports, "close", lambda: closed.append(1))
        real = branch.catalog.move_tag

        def refused(*arguments: Any) -> Any:
            monkeypatch.setattr(branch.catalog, "move_tag", real)
            raise NotPrimary("a copy")

        monkeypatch.setattr(branch.catalog, "move_tag", refused)
        newest = branch.update("a")
        wait_until(lambda: stands_at(branch, newest))
        assert closed == [1]


def test_only_what_is_asked_for_and_allowed_is_sent(branch: Branch) -> None:
    services = settings(some={"tables": ["ns.a*"]}, hr={"roles": ["hr"]}, us={"regions": ["us"]})
    rule = ReaderRule(tables=["ns.salaries", "ns.a2"], roles=["hr"])
    services = services.model_copy(update={"readers": [rule]})
    some, hr = Receiver(), Receiver()
    with room(branch, services, {"some": some, "hr": hr}) as service:
        assert sorted(deliverer.job.name for deliverer in service.deliverers) == ["hr", "some"]
        for name in ("a1", "a2", "b", "salaries"):
            newest = branch.update(name)
        wait_until(lambda: len(hr.got) == 4)
        wait_until(lambda: branch.catalog.reference(sink_tag("eu", "some")).hash == newest)
    assert some.tables == ["ns.a1"] and hr.tables == ["ns.a1", "ns.a2", "ns.b", "ns.salaries"]


def test_tables_that_the_registry_refuses_are_told_to_nobody(branch: Branch) -> None:
    receiver = Receiver()
    refusing = branch.context(policies=[{"tables": ["ns.secret"], "replicate": False}])
    with room(branch, PAGER, receiver, context=refusing):
        branch.update("secret")
        branch.update("a")
        wait_until(lambda: receiver.tables == ["ns.a"])


def test_tags_of_outlets_that_are_gone_are_told(branch: Branch) -> None:
    head = branch.update("a")
    branch.catalog.create_tag(sink_tag("eu", "gone"), BRANCH, head)
    branch.catalog.create_tag(sink_tag("eu-west", "other"), BRANCH, head)
    with room(branch, PAGER, Receiver()) as service:
        wait_until(lambda: service.unknown == ("gone",))
    assert set(sink_positions("eu", branch.catalog.references())) == {"gone", "pager"}
    assert set(sink_positions("eu-west", branch.catalog.references())) == {"other"}
