"""Promoting this Airflow's own region, with a person's approval in between.

What `sterna catalog promote` does on a terminal.
"""

from __future__ import annotations

from sterna.airflow import requirements  # noqa: F401 - before what an older Airflow lacks

# isort: split

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from sterna.airflow.addons import PROMOTE_DAG_ID
from sterna.airflow.operators import SternaOperator
from sterna.airflow.settings import get_option

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.replication.failover.approval import Approval
    from sterna.replication.failover.promote import Promotion
    from sterna.replication.failover.tables import MovePlan

PROMOTION_XCOM_KEY = "promotion"
"""The key of the XCom with what a person is to approve."""
_DOC = """\
### Make region `{region}`'s catalog the primary

Trigger it by hand. `look` shows what would happen and what may be lost. Then it waits for an approval, under *Required
Actions*; `promote` executes it. With *planned* the current primary stops taking commits first, and nothing is lost;
without, it has to be gone: the approver has to make sure of that. It is run by the Airflow of the region that is
promoted, whose connections need the rights of `sterna catalog promote`.
"""


class SternaPromotionOperator(SternaOperator):
    """Show what a promotion of the region would do, or do it.

    Args:
        planned: the present primary is there and stops first; "True" or "False" as a template gives it.
        lost: regions whose storage is lost, separated by commas, and whose tables continue from this region's replica;
            "" for none.
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
            UsageError: it isn't approved, or the approval is of something else than would happen now.
        """
        from sterna.replication.failover.approval import APPROVAL, approval_of
        from sterna.replication.failover.promote import plan_promotion, promote
        from sterna.replication.failover.tables import plan_moves
        from sterna.text.catalog import promoted_text, promotion_text

        with self.open() as region:
            promotion = plan_promotion(
                region.registry, region.secrets, region.region.name, planned=str(self.planned) == "True"
            )
            moves = plan_moves(region, [name.strip() for name in self.lost.split(",")]) if self.lost else None
            summary = promotion_text(promotion, moves)
            if self.approved is None:
                context["ti"].xcom_push(PROMOTION_XCOM_KEY, APPROVAL.dumps(approval_of(promotion, moves)))
            else:
                approved = require_approval(self.approved, promotion, moves)
                if not promotion.planned:  # a primary that didn't stop waits for an operator, also the second time
                    promotion = replace(promotion, old=promotion.old or approved.old)
                summary = promoted_text(
                    promote(region.registry, region.secrets, promotion, self.log_progress, moves=moves)
                )
        self.log_progress(summary)
        return summary


def require_approval(approved: str, promotion: Promotion, moves: MovePlan | None) -> Approval:
    """Return what a person has approved, which has to be the very promotion that would happen now.

    A task may be cleared, or marked as success, at any time: what was approved may be long past.

    Args:
        approved: what the person has approved, as `APPROVAL` has it; "" without an approval.
        moves: the same of a promotion with tables.

    Raises:
        UsageError: it isn't approved.
    """
    from sterna.codec import MalformedRecord
    from sterna.errors import UsageError
    from sterna.replication.failover.approval import APPROVAL, approval_of
    from sterna.text.catalog import promotion_headline, unverified_lines

    hint = "trigger the DAG again"
    if not approved:
        raise UsageError("this promotion is not approved: nothing is done", hint=hint)
    try:
        approval = APPROVAL.loads(approved)
    except MalformedRecord as error:
        raise UsageError(f"what was approved can't be read: {error}", hint=hint) from None
    # One that has begun has no primary to replace any more: the same steps again are what was approved.
    current = approval_of(replace(promotion, old=promotion.old or approval.old), moves)
    if (approval.region, approval.term, approval.old, approval.planned) != (
        current.region,
        current.term,
        current.old,
        current.planned,
    ):
        raise UsageError(f"another promotion was approved than {promotion_headline(promotion)!r}", hint=hint)
    if approval.newest and (current.newest is None or current.newest < approval.newest):
        raise UsageError(
            f"since this was approved, commits went from {current.region}'s main, or can't be seen", hint=hint
        )
    if set(current.unknown) - set(approval.unknown):
        lines = " ".join(unverified_lines(promotion))
        raise UsageError(f"less was seen than when this was approved: {lines}", hint=hint)
    if approval.tables != current.tables:
        raise UsageError("other tables would continue, or lose something else, than was approved", hint=hint)
    return approval


class SternaApprovalOperator(ApprovalOperator):
    """Request a person's approval; the result, once approved, has what was approved, under `promotion`.

    Args:
        shown: what the person is shown.
        promotion: the same, as `APPROVAL` has it.
        kwargs: see `ApprovalOperator`.
    """

    template_fields = (*ApprovalOperator.template_fields, "shown", PROMOTION_XCOM_KEY)

    def __init__(self, *, shown: str, promotion: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shown = shown
        self.promotion = promotion

    def execute(self, context: TaskContext) -> Any:
        """Request the approval; what is shown stays with the task while it waits.

        Raises:
            UsageError: there is nothing to show.
        """
        from airflow.sdk.exceptions import TaskAwaitingInput, TaskDeferred

        from sterna.errors import UsageError

        if not (self.shown and self.promotion):
            raise UsageError("there is no preview of the promotion, and nothing to approve", hint="clear `look`")
        try:
            return super().execute(context)
        except (TaskAwaitingInput, TaskDeferred) as waiting:
            waiting.kwargs = {**(waiting.kwargs or {}), PROMOTION_XCOM_KEY: self.promotion}
            raise

    def execute_complete(self, context: TaskContext, event: dict[str, Any], promotion: str = "") -> Any:
        """Take the answer; a rejection skips the downstream tasks, and returns nothing.

        Args:
            event: the answer.
            promotion: what the approver was shown. The field of that name was rendered again for the answer, and `look`
                may have been cleared since.
        """
        return {**super().execute_complete(context, event), PROMOTION_XCOM_KEY: promotion}


def promotion_dag(
    *, region: str | None = None, registry: str | None = None, dag_id: str = PROMOTE_DAG_ID, **kwargs: Any
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
    region, registry = region or get_option("region"), registry or get_option("registry")
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
                    "With tables: regions whose storage is lost, too; their tables continue from this region's replica."
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
        preview = SternaPromotionOperator(task_id="look", execution_timeout=timedelta(minutes=2), **common)
        approve = SternaApprovalOperator(
            task_id="approve",
            shown="{{ ti.xcom_pull(task_ids='look') or '' }}",
            promotion=f"{{{{ ti.xcom_pull(task_ids='look', key='{PROMOTION_XCOM_KEY}') or '' }}}}",
            subject=f"Make region {region}'s catalog the primary?",
            # The page takes it for Markdown: only a block that names its language keeps lines and shows messages of
            # commits as they are.
            body="```text\n{{ ti.xcom_pull(task_ids='look') }}\n```",
            response_timeout=timedelta(hours=1),
        )
        approved = f"{{{{ (ti.xcom_pull(task_ids='approve') or {{}}).get('{PROMOTION_XCOM_KEY}', '') }}}}"
        promote = SternaPromotionOperator(
            task_id="promote", approved=approved, execution_timeout=timedelta(minutes=30), **common
        )
        preview >> approve >> promote
    return dag
