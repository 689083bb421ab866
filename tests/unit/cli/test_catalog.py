"""`sterna catalog …`: who is asked what, before anything is done; the regions are played by stand-ins."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from sterna.cli import catalog, prompts
from sterna.config.registry.model import Registry
from sterna.postgres.term import Term
from sterna.replication.failover.catalog_seed import Seeded
from sterna.replication.failover.model import CatalogSite, CatalogSubscription
from sterna.replication.failover.promote import Promoted, Promotion
from sterna.replication.failover.rejoin import Rejoined
from sterna.text.lines import NOTHING_CHANGED
from tests.unit.cli.conftest import Sterna

MOMENT = datetime(2026, 7, 1, 12, tzinfo=UTC)
EPOCH = Term(2, "eu")
PROMOTION = Promotion("eu", EPOCH, "us", False, MOMENT, "ab" * 32, MOMENT, ())
COMMANDS = ["promote", "rejoin", "resync"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was really done."""
    done: list[str] = []
    regions = [
        {
            "name": name,
            "replica_root": f"s3://{name}/replica",
            "catalog": {
                "read": f"http://{name}/api/v2",
                "database": {"hosts": [f"{name}:5432"], "credential_id": f"{name}-database"},
            },
        }
        for name in ("us", "eu")
    ]
    monkeypatch.setattr(catalog, "read_registry", lambda path: registry(regions))

    def promote(*arguments: Any, **options: Any) -> Promoted:
        done.append("promote")
        return Promoted(EPOCH, (), {})

    def rejoin(*arguments: Any, keep: bool = True) -> Rejoined:
        done.append("rejoin" if keep else "resync")
        return Rejoined(seeded(), ())

    monkeypatch.setattr(catalog, "plan_promotion", lambda *arguments, **options: PROMOTION)
    monkeypatch.setattr(catalog, "promote", promote)
    monkeypatch.setattr(catalog, "rejoin", rejoin)
    return done


def registry(regions: list[dict[str, Any]]) -> Registry:
    locations = [
        {"id": f"{name}-lake", "prefix": f"s3://{name}", "region": name, "remote": {"type": "s3"}}
        for name in ("us", "eu")
    ]
    return Registry.model_validate({"regions": regions, "locations": locations})


def seeded() -> Seeded:
    return Seeded("eu", "us", 3, "ab" * 32)


def terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(prompts, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))

    def confirm(text: str, **options: bool) -> bool:
        assert options["abort"]
        if answer != "y":
            raise typer.Abort
        return True

    monkeypatch.setattr("typer.confirm", confirm)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_shows_and_does_nothing(command: str, done: list[str], sterna: Sterna) -> None:
    shown = sterna("catalog", command, "--region", "eu", "--dry-run")
    assert (shown.code, shown.last_line, done) == (0, NOTHING_CHANGED, [])
    assert json.loads(sterna("catalog", command, "--region", "eu", "--dry-run", "--json").out)["dry_run"] is True
    assert sterna("catalog", command, "--region", "eu", "--dry-run", "--yes").code == 2
    assert done == []


@pytest.mark.parametrize("command", COMMANDS)
def test_with_yes_it_is_done_unasked(command: str, done: list[str], sterna: Sterna) -> None:
    assert sterna("catalog", command, "--region", "eu", "--yes").code == 0
    assert done == [command]


@pytest.mark.parametrize("command", COMMANDS)
def test_where_nobody_can_answer_it_is_shown_and_refused(command: str, done: list[str], sterna: Sterna) -> None:
    """A script that forgot --yes wanted it done: to end well would be a lie."""
    answer = sterna("catalog", command, "--region", "eu")
    assert (answer.code, answer.out, done) == (2, "", [])
    assert "eu" in answer.err and "there is no terminal" in answer.err and NOTHING_CHANGED in answer.err


@pytest.mark.parametrize(("said", "code"), [("y", 0), ("n", 1)])
def test_on_a_terminal_it_asks(
    said: str, code: int, done: list[str], sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(monkeypatch, said)
    assert sterna("catalog", "rejoin", "--region", "eu").code == code
    assert done == (["rejoin"] if said == "y" else [])


def test_moments_are_texts_in_json(done: list[str], sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    site = CatalogSite("eu", term=EPOCH, main="ab" * 32, following=CatalogSubscription("us", True, 7, MOMENT))
    monkeypatch.setattr(catalog, "inspect_sites", lambda regions, secrets: {"eu": site})
    (shown,) = json.loads(sterna("catalog", "status", "--json").out)["sites"]
    assert (shown["region"], shown["following"]["heard"]) == ("eu", MOMENT.isoformat())
    promotion = json.loads(sterna("catalog", "promote", "--region", "eu", "--dry-run", "--json").out)["promotion"]
    assert promotion["epoch"] == {"number": 2, "region": "eu"}
    assert promotion["newest"] == MOMENT.isoformat()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"term": Term(3, "eu")}, "term 3-eu"),
        ({"old": "ap"}, "another promotion"),
        ({"resumed": True}, "another promotion"),
        ({"silent": ("ap",)}, "ap stopped answering"),
        ({"newest": None}, "main has lost commits"),
        ({"newest": MOMENT - timedelta(seconds=1)}, "main has lost commits"),
    ],
)
def test_what_was_agreed_to_is_looked_at_again(
    change: dict[str, Any], said: str, done: list[str], sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator's answer may come hours later: what was shown may be long past."""
    plans = iter([PROMOTION, replace(PROMOTION, **change)])
    monkeypatch.setattr(catalog, "plan_promotion", lambda *arguments, **options: next(plans))
    answer = sterna("catalog", "promote", "--region", "eu", "--yes")
    assert (answer.code, done) == (2, [])
    assert said in answer.err
