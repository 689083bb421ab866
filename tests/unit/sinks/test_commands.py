"""`sterna events …` and the room in a gateway, over the catalog in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.brokers import senders
from sterna.brokers.message import SendOutcome
from sterna.cli.main import main
from sterna.errors import EventRefused, ReceiverUnreachable
from sterna.replication.replica import region as replica_region
from sterna.replication.replica.tags import sink_tag
from sterna.text.lines import NOTHING_CHANGED
from tests.support.http_server import BRANCH, Branch, gateway
from tests.support.sinks import Receiver, room, settings, wait_until

Sterna = Callable[..., tuple[int, str, str]]
FILE = """\
sinks:
  pager: {target: {webhook: {url: "http://127.0.0.1:1/"}}, credential_id: hook}
  away: {target: {webhook: {url: "http://127.0.0.1:1/"}}, credential_id: hook, regions: [us]}
"""


@pytest.fixture
def sterna(
    branch: Branch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sterna:
    (tmp_path / "services.yaml").write_text(FILE)
    monkeypatch.setenv("STERNA_SERVICES", str(tmp_path / "services.yaml"))
    monkeypatch.setenv("STERNA_REGION", "eu")
    monkeypatch.setattr(replica_region, "open_region", lambda path, region, secrets: branch.context())

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["events", *arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def buried(branch: Branch) -> list[str]:
    """Two dead letters of the outlet `pager`; the ids of their events."""
    ids: list[str] = []

    def refuse(message: object) -> SendOutcome:
        ids.append(message.id)  # type: ignore[attr-defined]
        return SendOutcome(0, EventRefused("too large"))

    with room(branch, settings(pager={}), Receiver(answer=refuse, max_messages=1)) as service:
        branch.update("a")
        branch.update("b")
        wait_until(lambda: service.deliverers[0].status.dead_letters == 2)
    return ids


def test_status_says_how_far_each_outlet_is(branch: Branch, sterna: Sterna) -> None:
    first = branch.update("a")
    code, out, _ = sterna("status")
    assert code == 0 and "pager: eu → webhook: not begun" in out and "away" not in out
    branch.catalog.create_tag(sink_tag("eu", "pager"), BRANCH, first)
    assert "all is delivered" in sterna("status")[1]
    branch.update("b", "c")
    branch.update("d")
    assert "3 events in 2 commits wait" in sterna("status")[1]
    code, out, _ = sterna("status", "--json")
    status = json.loads(out)
    assert status["sinks"][0]["position"] == first and status["sinks"][0]["events"] == 3
    branch.catalog.assign(BRANCH, branch.catalog.no_ancestor())
    branch.update("e")
    assert "will begin where that forked, or with the oldest" in sterna("status")[1]


def test_an_outlet_that_is_gone_is_an_alarm_until_it_is_forgotten(branch: Branch, sterna: Sterna) -> None:
    head = branch.update("a")
    branch.catalog.create_tag(sink_tag("eu", "gone"), BRANCH, head)
    code, out, _ = sterna("status")
    assert code == 7 and "gone: eu → no sink: ALARM: a position at" in out and "sterna events forget gone --yes" in out
    gone = json.loads(sterna("status", "--json")[1])["sinks"][-1]
    assert (gone["target"], gone["position"], gone["exit_code"]) == ("", head, 7)
    assert [(each["type"], each["reason"], each["remedy"]) for each in gone["conditions"]] == [
        ("Blocked", "NoSink", "hold")
    ]
    code, out, _ = sterna("forget", "gone")
    assert code == 0 and out.splitlines()[-1] == NOTHING_CHANGED
    assert sterna("status")[0] == 7
    assert sterna("forget", "gone", "--yes")[0] == 0
    assert sterna("status")[0] == 0
    assert "has no position" in sterna("forget", "gone", "--yes")[1]


def test_an_outlet_that_is_there_is_not_forgotten(branch: Branch, sterna: Sterna) -> None:
    branch.catalog.create_tag(sink_tag("eu", "pager"), BRANCH, branch.update("a"))
    code, _, err = sterna("forget", "pager", "--yes")
    assert code == 2 and "is in the services file" in err
    assert branch.catalog.reference(sink_tag("eu", "pager"))


def test_dead_letters_are_listed_and_sent_again(
    buried: list[str], branch: Branch, sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = sterna("dead", "pager")
    assert code == 0 and "2 dead letters" in out and "too large" in out and "ns.a" in out
    assert [letter["id"] for letter in json.loads(sterna("dead", "pager", "--json")[1])["letters"]] == buried
    assert ", 2 dead letters" in sterna("status")[1]
    code, out, _ = sterna("replay", "pager")
    assert code == 0 and "2 dead letters would be sent again" in out and out.splitlines()[-1] == NOTHING_CHANGED
    taking = Receiver()
    monkeypatch.setattr(senders, "open_sender", lambda outlet, secrets: taking)
    taking.answer = lambda message: (
        SendOutcome(0, ReceiverUnreachable("dark")) if message.table == "ns.b" else SendOutcome(1)
    )
    code, out, _ = sterna("replay", "pager", "--yes")
    assert code == 4 and "1 dead letters were sent again, 1 are left" in out and "dark" in out
    taking.make_available()
    assert sterna("replay", "pager", "--yes")[0] == 0
    assert [sent_message.id for sent_message in taking.got] == buried and taking.closed == 2
    assert "0 dead letters" in sterna("dead", "pager")[1]


def test_what_is_asked_of_no_outlet(sterna: Sterna) -> None:
    assert sterna("replay", "nobody")[0] == 2
    assert sterna("dead", "../x")[0] == 2
    assert sterna("dead", "nobody")[0] == 0
    assert sterna("tail", "--after", "soon")[0] == 2
    assert sterna("tail", "--after", "ab" * 32)[0] == 2


def test_tail_prints_events_from_a_cursor(branch: Branch, sterna: Sterna) -> None:
    assert sterna("tail")[:2] == (0, "")
    first = branch.update("a", "b")
    branch.update("c")

    def subjects(*arguments: str) -> list[str]:
        code, out, _ = sterna("tail", *arguments)
        assert code == 0
        return [json.loads(line)["subject"] for line in out.splitlines()]

    assert subjects("--after", branch.catalog.no_ancestor()) == ["ns.a", "ns.b", "ns.c"]
    assert subjects("--after", f"{first}-1") == ["ns.b", "ns.c"]
    assert subjects("--after", f"{first}-2") == subjects("--after", first) == ["ns.c"]
    assert subjects("--after", branch.catalog.no_ancestor(), "--table", "*.b") == ["ns.b"]
    assert subjects() == []


def test_a_gateway_serves_outlets_and_counts_them(branch: Branch) -> None:
    with gateway(branch, settings(pager={}), only=("events", "sinks")) as running:
        wait_until(lambda: 'sterna_sink_state{sink="pager",state="delivering"} 1' in running.metrics)
        branch.update("a")
        # Its credential is missing: that is its own trouble, and nobody else's.
        wait_until(lambda: 'sterna_sink_state{sink="pager",state="retrying"} 1' in running.metrics)
        metrics = running.metrics
        assert 'sterna_sink_delivered_total{sink="pager"} 0' in metrics
        assert (
            "sterna_sink_unknown_tags 0" in metrics
            and 'sterna_reconciler_lag_seconds{kind="sink",name="pager"}' in metrics
        )
