"""What a promotion takes for a person's approval: it was shown that very promotion, and said yes.

The kind: what may become another one between the question and the deed. `look` is cleared while `approve` waits; an
approval is of an older sterna; the epoch is the same, and another primary is replaced, or it needn't stop first; the
region has fewer commits than was shown; a region went silent; other tables go on.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk.exceptions import TaskAwaitingInput, TaskDeferred

from sterna.airflow.promotion import SternaApprovalOperator, SternaPromotionOperator
from sterna.errors import UsageError
from sterna.postgres.term import Term
from sterna.replication.failover import promote as ha_promote
from sterna.replication.failover import tables as ha_tables
from sterna.replication.failover.approval import APPROVAL, approval_of
from sterna.replication.failover.promote import Promoted, Promotion
from sterna.replication.failover.tables import Move, MovePlan
from sterna.text.catalog import promotion_text

NEXT = Promotion("eu", Term(2, "eu"), "us", True, None, "ab" * 32, None, ())
SHOWN = promotion_text(NEXT)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Promotion]:
    """The promotions that were carried out."""
    promoted: list[Promotion] = []

    def promote(registry: Any, secrets: Any, promotion: Promotion, progress: Any, *, moves: Any) -> Promoted:
        promoted.append(promotion)
        return Promoted(promotion.term, (), {})

    opened = SimpleNamespace(registry=None, secrets=None, region=SimpleNamespace(name="eu"))
    monkeypatch.setattr(SternaPromotionOperator, "open", lambda self: nullcontext(opened))
    monkeypatch.setattr(ha_promote, "promote", promote)
    monkeypatch.setattr(ha_promote, "plan_promotion", lambda *_, planned: NEXT)
    return promoted


def act(approved: str | None, lost: str = "") -> str:
    return SternaPromotionOperator(task_id="promote", planned="True", lost=lost, approved=approved).execute({})


def approval(promotion: Promotion = NEXT, moves: MovePlan | None = None) -> str:
    return APPROVAL.dumps(approval_of(promotion, moves))


def test_a_look_says_what_would_happen_and_does_nothing(done: list[Promotion]) -> None:
    pushed: dict[str, str] = {}
    task = SternaPromotionOperator(task_id="look", planned="True", lost="")
    assert task.execute({"ti": SimpleNamespace(xcom_push=pushed.__setitem__)}) == SHOWN  # type: ignore[typeddict-item]
    assert done == []
    # Bytes that another version may read: the person may answer after an upgrade.
    text = '{"region":"eu","epoch":"2-eu","old":"us","planned":true,"newest":null,"unknown":[],"tables":""}'
    assert pushed == {"promotion": text}


def test_what_was_approved_is_done_though_the_primary_went_on_meanwhile(done: list[Promotion]) -> None:
    assert "eu is the primary" in act(approval(replace(NEXT, main="cd" * 32)))
    assert done == [NEXT]


def test_one_that_ended_in_the_middle_goes_on_by_the_same_approval(
    done: list[Promotion], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch has begun: a look finds no primary to replace any more."""
    begun = replace(NEXT, old="", silent=("us",))
    monkeypatch.setattr(ha_promote, "plan_promotion", lambda *_, planned: begun)
    act(approval(replace(NEXT, silent=("us",))))
    assert done == [begun]
    with pytest.raises(UsageError, match="another promotion was approved"):
        act(approval(replace(NEXT, term=Term(1, "eu"))))
    assert done == [begun]


def test_the_second_time_too_a_primary_that_did_not_stop_is_left_to_an_operator(
    done: list[Promotion], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = replace(NEXT, old="", planned=False)
    monkeypatch.setattr(ha_promote, "plan_promotion", lambda *_, planned: begun)
    act(approval(replace(NEXT, planned=False)))
    assert done == [replace(begun, old="us")]


OF_AN_OLDER_STERNA = '{"region":"eu","epoch":"2-eu","unknown":[],"tables":""}'


@pytest.mark.parametrize(
    "approved",
    [
        "",
        approval(replace(NEXT, term=Term(1, "eu"))),
        approval(replace(NEXT, old="ap")),
        approval(replace(NEXT, planned=False)),
        approval(replace(NEXT, newest=datetime(2026, 11, 1, tzinfo=UTC))),
        OF_AN_OLDER_STERNA,
        "None",
        SHOWN,
    ],
)
def test_what_nobody_approved_is_not_done(done: list[Promotion], approved: str) -> None:
    with pytest.raises(UsageError, match=r"approved"):
        act(approved)
    assert done == []


def test_what_was_approved_while_more_was_seen_is_not_done(
    done: list[Promotion], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that went silent since may be the primary by now, and nobody was told so."""
    darker = replace(NEXT, silent=("ap",))
    monkeypatch.setattr(ha_promote, "plan_promotion", lambda *_, planned: darker)
    with pytest.raises(UsageError, match=r"less was seen than when this was approved: ap does not answer"):
        act(approval())
    assert done == []
    with pytest.raises(UsageError, match=r"less was seen"):  # who gives a region up knows more than who waits for it
        act(approval(replace(darker, gone=("ap",))))
    act(approval(darker))
    act(approval(replace(darker, silent=("ap", "me"))))
    assert done == [darker, darker]


MOVES = MovePlan("eu", ("us",), (Move("a.b", "s3://us/1", "s3://eu/1"), Move("a.c", "s3://us/2", "s3://eu/2")))


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(MOVES, lost=("ap", "us")),
        replace(MOVES, moves=MOVES.moves[:1]),
        replace(MOVES, moves=(MOVES.moves[0], replace(MOVES.moves[1], untold=True))),
        replace(MOVES, left={"a.d": "it has no replica"}),
    ],
)
def test_tables_that_were_not_approved_do_not_go_on(
    done: list[Promotion], monkeypatch: pytest.MonkeyPatch, other: MovePlan | None
) -> None:
    monkeypatch.setattr(ha_tables, "plan_moves", lambda *_: MOVES)
    with pytest.raises(UsageError, match=r"other tables would continue"):
        act(approval(moves=other), "us")
    assert done == []
    act(approval(moves=MOVES), "us")
    assert done == [NEXT]


@pytest.mark.parametrize(("shown", "promotion"), [("", ""), ("", approval()), (SHOWN, "")])
def test_a_question_without_a_look_before_it_is_not_asked(shown: str, promotion: str) -> None:
    with pytest.raises(UsageError, match=r"no preview"):
        SternaApprovalOperator(task_id="approve", subject="?", shown=shown, promotion=promotion).execute({})


@pytest.mark.parametrize("kind", [TaskAwaitingInput, TaskDeferred])
def test_what_is_handed_on_is_what_was_shown_whatever_a_later_look_says(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow renders a task's fields anew for the answer: by then `look` may have been cleared, and say another."""

    def wait(self: Any, context: Any) -> None:
        raise kind(method_name="execute_complete", **({"trigger": None} if kind is TaskDeferred else {}))

    monkeypatch.setattr(HITLOperator, "execute", wait)
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda self, context, event: dict(event))
    asking = SternaApprovalOperator(task_id="approve", subject="?", shown=SHOWN, promotion=approval())
    with pytest.raises(kind) as waiting:
        asking.execute({})
    later = approval(replace(NEXT, term=Term(4, "eu")))
    answered = SternaApprovalOperator(task_id="approve", subject="?", shown="another", promotion=later)
    answer = {"chosen_options": ["Approve"]}
    resume_arguments = {**waiting.value.kwargs, "event": answer}
    assert answered.resume_execution(waiting.value.method_name, resume_arguments, {}) == {
        **answer,
        "promotion": approval(),
    }


def test_an_answer_to_a_question_that_kept_nothing_approves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that an older sterna asked."""
    monkeypatch.setattr(ApprovalOperator, "execute_complete", lambda self, context, event: dict(event))
    task = SternaApprovalOperator(task_id="approve", subject="?", shown=SHOWN, promotion=approval())
    assert task.resume_execution("execute_complete", {"event": {}}, {}) == {"promotion": ""}
