"""Transforms as an operator that follows for a while, and their DAG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from sterna.airflow.assets import freshness_schedule
from sterna.airflow.base import SternaOperator
from sterna.airflow.dags import common_settings
from sterna.airflow.settings import get_option, get_patterns, get_timedelta, parse_follow_duration

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context as TaskContext

    from sterna.config.sections.transforms import Transform

_DOC = """\
### Transform tables, from the replica of region `{region}`

Each step reads what changed in a transform's source since the last one, from the region's replica, and publishes the
result on `main`, once. The run continues for `[sterna] transforms_follow_for` with Spark warm. Without changes it
starts no Spark.

Section `transforms` of the services file defines them. Without one the task is skipped. It may run in
several regions at once.

**When it fails**: a transform needs an operator. The reason is in the log, and in `sterna transforms status`. The
others have continued. For what to do see docs/operations.md, *By what you see*.
"""


class SternaTransformsOperator(SternaOperator):
    """Take the steps that transforms need, for a while; return how many each took.

    Args:
        transforms: names of transforms; none: all.
        follow_for: for how long it polls for more.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "services")

    def __init__(
        self,
        *,
        transforms: Sequence[str] = (),
        follow_for: timedelta = timedelta(0),
        services: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.transforms = tuple(transforms)
        self.follow_for = follow_for
        self.services = services

    def execute(self, context: TaskContext) -> dict[str, int]:
        """Run the transforms' steps, and return their number by transform.

        Raises:
            AirflowSkipException: the services file has no section transforms.
            AirflowFailException: transforms failed; the message has the first reason.
        """
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

        from sterna.pipelines.transforms.run import run_transforms

        transforms, folder = self._selected_transforms()
        if not transforms:
            raise AirflowSkipException("the services file has no section transforms")
        region = self.open_reloading()
        try:
            summary = run_transforms(
                region.current, transforms, folder, self.log_progress, self.follow_for.total_seconds()
            )
        finally:
            region.disconnect()
        for name, reason in summary.idle.items():
            self.log_progress(f"{name}: {reason}")
        if summary.failed:
            name, reason = next(iter(summary.failed.items()))
            raise AirflowFailException(f"{len(summary.failed)} transforms failed; {name}: {reason}")
        counts: dict[str, int] = {}
        for step in summary.steps:
            counts[step.flow] = counts.get(step.flow, 0) + 1
        return counts

    def _selected_transforms(self) -> tuple[list[Transform], Path]:
        """Return the transforms, and the folder of their SQL files."""
        from sterna.config.services_file import read_services, services_folder
        from sterna.pipelines.transforms.run import select_flows

        services_path = self.services or get_option("services")
        configured = read_services(services_path).transforms
        return select_flows(configured, self.transforms) if configured else [], services_folder(services_path)


def transforms_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    services: str | None = None,
    dag_id: str = "sterna_flows",
    transforms: Sequence[str] = (),
    sources: Sequence[str] | None = None,
    follow_for: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return a DAG whose task runs transforms' steps, whenever a source table is fresh in the region.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        services: path of the services file; None for `[sterna] services`.
        transforms: names of transforms; none: all of the services file.
        sources: tables whose changes start a run; none: whatever becomes fresh in the region; None for
            `[sterna] transforms_sources`.
        follow_for: for how long a run polls for more, such as `10m`; None for `[sterna] transforms_follow_for`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    duration = parse_follow_duration(get_option("transforms_follow_for") if follow_for is None else follow_for)
    tables = get_patterns("transforms_sources") if sources is None else tuple(sources)
    settings: dict[str, Any] = {
        "description": f"Let tables follow others, as region {region} has them",
        "doc_md": _DOC.format(region=region),
        "schedule": freshness_schedule(region, tables),
        "is_paused_upon_creation": True,
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        SternaTransformsOperator(
            task_id="follow",
            region=region,
            registry=registry,
            services=services,
            transforms=transforms,
            follow_for=duration,
            execution_timeout=duration + get_timedelta("transforms_timeout"),
        )
    return dag
