"""What a promotion takes for a person's approval: it was shown that very promotion, and said yes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator

from sterna.airflow.promotion import SternaApprovalOperator, SternaPromotionOperator
from sterna.edges.postgres.epoch import Epoch
from sterna.errors import UsageError
from sterna.ha.promote import Promoted, Promotion
from sterna.render.catalog import promotion_text

NEXT = Promotion("eu", Epoch(2, "eu"), "us", True, None, "ab" * 32, None, ())
SHOWN = promotion_text(NEXT)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Promotion]:
    """The promotions that were carried out."""
    promoted: list[Promotion] = []

    def promote(registry: Any, secrets: Any, promotion: Promotion, say: Any, *, moves: Any) -> Promoted:
        promoted.append(promotion)
        return Promoted(promotion.epoch, (), {})

    opened = SimpleNamespace(registry=None, secrets=None, region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(SternaPromotionOperator, "open", lambda self: nullcontext(opened))
    monkeypatch.setattr("sterna.ha.promote.promote", promote)
    monkeypatch.setattr("sterna.ha.promote.plan_promotion", lambda *_, planned: NEXT)
    return promoted


def act(approved: str | None) -> str:
    return SternaPromotionOperator(task_id="promote", planned="True", lost="", approved=approved).execute({})


def test_a_look_says_what_would_happen_and_does_nothing(done: list[Promotion]) -> None:
    assert act(None) == SHOWN
    assert done == []


def test_what_was_approved_is_done_though_the_primary_went_on_meanwhile(done: list[Promotion]) -> None:
    assert "eu is the primary" in act(SHOWN.replace("ab" * 6, "cd" * 6))
    assert done == [NEXT]


@pytest.mark.parametrize("approved", ["", SHOWN.replace("epoch 2-eu", "epoch 1-eu"), "None"])
def test_what_nobody_approved_is_not_done(done: list[Promotion], approved: str) -> None:
    with pytest.raises(UsageError, match=r"approved"):
        act(approved)
    assert done == []


def test_what_was_approved_while_more_was_seen_is_not_done(
    done: list[Promotion], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that went silent since may be the primary by now, and nobody was told so."""
    darker = replace(NEXT, silent=("ap",))
    monkeypatch.setattr("sterna.ha.promote.plan_promotion", lambda *_, planned: darker)
    with pytest.raises(UsageError, match=r"less was seen than when this was approved: ap does not answer"):
        act(SHOWN)
    assert done == []
    act(promotion_text(darker))
    assert done == [darker]


def test_a_question_without_a_look_before_it_is_not_asked() -> None:
    with pytest.raises(UsageError, match=r"nobody has looked"):
        SternaApprovalOperator(task_id="approve", subject="?", shown="").execute({})


def test_what_is_handed_on_is_what_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda self, context, event: dict(event))
    task = SternaApprovalOperator(task_id="approve", subject="?", shown=SHOWN)
    answer = {"chosen_options": ["Approve"]}
    assert task.execute_complete({}, answer) == {**answer, "shown": SHOWN}
