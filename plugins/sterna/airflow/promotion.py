"""Promoting this Airflow's own region, with a person's approval in between.

What `sterna catalog promote` does on a terminal.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from sterna.airflow.operators import SternaOperator
from sterna.airflow.settings import text

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.ha.approval import Approval
    from sterna.ha.promote import Promotion
    from sterna.ha.tables import Moves

PROMOTION = "promotion"
"""The key of the XCom that says what a person is to approve."""
_DOC = """\
### Make region `{region}`'s catalog the primary

Trigger it by hand. `look` says what would happen and what may be lost. Then it waits for a person, under *Required
Actions*; `promote` does it. With *planned* the present primary stops taking commits first, and nothing is lost;
without, it has to be gone: that is for the person who approves to make sure of.
It is run by the Airflow of the region that is promoted, whose connections need the rights of `sterna catalog promote`.
"""


class SternaPromotionOperator(SternaOperator):
    """Say what a promotion of the region would do, or do it.

    Args:
        planned: the present primary is there and stops first; "True" or "False" as a template gives it.
        lost: regions whose storage is lost, separated by commas, and whose tables go on from this region's replica; ""
            for none.
        approved: what a person has approved, as `APPROVAL` has it; None where nothing is to be done yet.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "planned", "lost", "approved")

    def __init__(self, *, planned: str | bool, lost: str, approved: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned = planned
        self.lost = lost
        self.approved = approved

    def execute(self, context: TaskContext) -> str:
        """Return what would happen, or what was done, as text.

        Raises:
            SternaError: see `plan_promotion`, `plan_moves` and `promote`.
            UsageError: nobody has approved it, or something else than would happen now.
        """
        from sterna.ha.approval import APPROVAL, approval_of
        from sterna.ha.promote import plan_promotion, promote
        from sterna.ha.tables import plan_moves
        from sterna.render.catalog import promoted_text, promotion_text

        with self.open() as opened:
            promotion = plan_promotion(
                opened.registry, opened.secrets, opened.region.name, planned=str(self.planned) == "True"
            )
            moves = plan_moves(opened, [name.strip() for name in self.lost.split(",")]) if self.lost else None
            said = promotion_text(promotion, moves)
            if self.approved is None:
                context["ti"].xcom_push(PROMOTION, APPROVAL.dumps(approval_of(promotion, moves)))
            else:
                approved = refuse_unapproved(self.approved, promotion, moves)
                if not promotion.planned:  # a primary that didn't stop waits for an operator, also the second time
                    promotion = replace(promotion, old=promotion.old or approved.old)
                said = promoted_text(promote(opened.registry, opened.secrets, promotion, self.say, moves=moves))
        self.say(said)
        return said


def refuse_unapproved(approved: str, promotion: Promotion, moves: Moves | None) -> Approval:
    """Return what a person has approved, which has to be the very promotion that would happen now.

    A task may be cleared, or marked as success, at any time: what was approved may be long past.

    Args:
        approved: what the person has approved, as `APPROVAL` has it; "" where nobody has.
        promotion: what would happen.
        moves: the same of a promotion with tables.

    Raises:
        UsageError: nobody has approved it.
    """
    from sterna.errors import UsageError
    from sterna.ha.approval import APPROVAL, approval_of
    from sterna.json_record import MalformedRecord
    from sterna.render.catalog import begins_text, unknown_lines

    again = "trigger the DAG again"
    if not approved:
        raise UsageError("nobody has approved this promotion: nothing is done", hint=again)
    try:
        said = APPROVAL.loads(approved)
    except MalformedRecord as error:
        raise UsageError(f"what was approved can't be read: {error}", hint=again) from None
    # One that has begun has no primary to replace any more: the same steps again are what was approved.
    now = approval_of(replace(promotion, old=promotion.old or said.old), moves)
    if (said.region, said.epoch, said.old, said.planned) != (now.region, now.epoch, now.old, now.planned):
        raise UsageError(f"another promotion was approved than {begins_text(promotion)!r}", hint=again)
    if said.newest and (now.newest is None or now.newest < said.newest):
        raise UsageError(
            f"since this was approved, commits went from {now.region}'s main, or can't be seen", hint=again
        )
    if set(now.unknown) - set(said.unknown):
        lines = " ".join(unknown_lines(promotion))
        raise UsageError(f"less was seen than when this was approved: {lines}", hint=again)
    if said.tables != now.tables:
        raise UsageError("other tables would go on, or lose something else, than was approved", hint=again)
    return said


class SternaApprovalOperator(ApprovalOperator):
    """Ask a person; what is returned once the person has approved has what was approved, under `promotion`.

    Args:
        shown: what the person is shown.
        promotion: the same, as `APPROVAL` has it.
        kwargs: see `ApprovalOperator`.
    """

    template_fields = (*ApprovalOperator.template_fields, "shown", PROMOTION)

    def __init__(self, *, shown: str, promotion: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shown = shown
        self.promotion = promotion

    def execute(self, context: TaskContext) -> Any:
        """Ask; what is shown stays with the task while it waits.

        Raises:
            UsageError: there is nothing to show.
        """
        from airflow.sdk.exceptions import TaskAwaitingInput, TaskDeferred

        from sterna.errors import UsageError

        if not (self.shown and self.promotion):
            raise UsageError("nobody has looked what would happen: there is nothing to approve", hint="clear `look`")
        try:
            return super().execute(context)
        except (TaskAwaitingInput, TaskDeferred) as waiting:
            waiting.kwargs = {**(waiting.kwargs or {}), PROMOTION: self.promotion}
            raise

    def execute_complete(self, context: TaskContext, event: dict[str, Any], promotion: str = "") -> Any:
        """Take the answer; one that says no skips what comes behind, and returns nothing.

        Args:
            context: the task's.
            event: the answer.
            promotion: what the person was shown. The field of that name was rendered anew for the answer, and `look`
                may have been cleared since.
        """
        return {**super().execute_complete(context, event), PROMOTION: promotion}


def promotion_dag(
    *, region: str | None = None, registry: str | None = None, dag_id: str = "sterna_promote", **kwargs: Any
) -> DAG:
    """Return the DAG that promotes a region once a person has approved.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        dag_id: the DAG's id; one a region.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing.
    """
    region, registry = region or text("region"), registry or text("registry")
    settings: dict[str, Any] = {
        "description": f"Make region {region}'s catalog the primary, after a person's approval",
        "doc_md": _DOC.format(region=region),
        "schedule": None,
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["sterna"],
        "params": {
            "planned": Param(
                True, type="boolean", title="Planned", description_md="The present primary is there, and stops first."
            ),
            "lost": Param(
                "",
                type="string",
                title="Lost storage",
                description_md=(
                    "With tables: regions whose storage is lost, too; their tables go on from this region's replica."
                ),
            ),
        },
    }
    common: dict[str, Any] = {
        "region": region,
        "registry": registry,
        "planned": "{{ params.planned }}",
        "lost": "{{ params.lost }}",
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        look = SternaPromotionOperator(task_id="look", execution_timeout=timedelta(minutes=2), **common)
        approve = SternaApprovalOperator(
            task_id="approve",
            shown="{{ ti.xcom_pull(task_ids='look') or '' }}",
            promotion=f"{{{{ ti.xcom_pull(task_ids='look', key='{PROMOTION}') or '' }}}}",
            subject=f"Make region {region}'s catalog the primary?",
            # The page takes it for Markdown: only a block that names its language keeps lines and shows messages of
            # commits as they are.
            body="```text\n{{ ti.xcom_pull(task_ids='look') }}\n```",
            response_timeout=timedelta(hours=1),
        )
        approved = f"{{{{ (ti.xcom_pull(task_ids='approve') or {{}}).get('{PROMOTION}', '') }}}}"
        act = SternaPromotionOperator(
            task_id="promote", approved=approved, execution_timeout=timedelta(minutes=30), **common
        )
        look >> approve >> act
    return dag
