"""The operator of all add-ons: it runs one step of one that the services file configures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import SkipMixin

from sterna.airflow.addons import ADDONS, AddonName
from sterna.airflow.assets import asset_alias, main_asset
from sterna.airflow.base import fail_with
from sterna.airflow.metrics import record_reconcilers
from sterna.airflow.settings import get_option
from sterna.airflow.steps import StepOperator
from sterna.errors import Remedy, SternaError, UsageError
from sterna.operations.run_book import describe_with_card
from sterna.runtime.status import alarm_lines

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class SternaReconcileOperator(StepOperator, SkipMixin):
    """Run a step of an add-on for a while, and return its counts; skipped where the services file doesn't configure it.

    Args:
        addon: a name of `ADDONS`.
        step: one of its steps; "" for the first.
        kwargs: see `StepOperator`.

    Raises:
        UsageError: there is no such step.
    """

    # Clearing a skipped task alone must not run it: Airflow then looks at what this one skipped.
    inherits_from_skipmixin = True

    def __init__(self, *, addon: AddonName, step: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        steps = ADDONS[addon].steps
        if step and step not in steps:
            raise UsageError(f"no such step of {addon}: {step}; there are {', '.join(steps)}")
        self.addon: AddonName = addon
        self.step = step or next(iter(steps))

    def execute(self, context: TaskContext) -> Any:
        """Run the step; fail where any part of it failed, although the others have continued.

        Raises:
            AirflowSkipException: the services file doesn't configure the add-on for this region.
            AirflowFailException: something needs an operator.
            SternaError: a retry may cure all that failed.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        addon, services, region = ADDONS[self.addon], self.read_services(), self.region or get_option("region")
        if not addon.is_on(services, region):
            raise AirflowSkipException(f"the services file has no {addon.section.format(region=region)}")
        outcome = addon.steps[self.step].run(self, services)
        # Batches of ingestion come and go: no metric has their names, as none of a gateway does.
        failed = outcome.failed if addon.has_names else ["uploads"][: len(outcome.failed)]
        record_reconcilers(region, self.addon, failed, outcome.statuses)
        raise_severest(outcome.failed, has_retried=bool(self.follow_for))
        if alarms := [*alarm_lines(outcome.statuses), *outcome.alarms]:
            context["ti"].xcom_push("return_value", outcome.counts)
            fail_with(alarms)
        if outcome.ends_run:
            self.skip_all_except(context["ti"], [])
        if outcome.sync_reason:
            context["outlet_events"][asset_alias()].add(main_asset(region), extra={"reason": outcome.sync_reason})
        return outcome.counts


def raise_severest(failed: Mapping[str, SternaError], *, has_retried: bool) -> None:
    """Raise one error for all of a step's: the task is repeated only where that may cure each of them.

    A step that has polled for a while has retried them itself: what is left is an alarm, and the next run goes on.

    Args:
        failed: the errors, by what each happened to, as `RunSummary.errors` has them; empty: nothing is raised.
        has_retried: the step has retried them itself.

    Raises:
        AirflowFailException: some need an operator, or the step has retried; it names the first.
        SternaError: all of them may be cured by a retry: this is the first.
    """
    from airflow.sdk.exceptions import AirflowFailException

    if not failed:
        return
    name, error = next(iter(failed.items()))  # those that no retry cures come first
    if error.remedy is Remedy.RETRY and not has_retried:
        raise error
    raise AirflowFailException(f"{len(failed)} failed; {name}: {describe_with_card(error)}") from error
