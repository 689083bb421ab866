"""Online features as operators and as a DAG: rows are written into the region's store, and their lag is checked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from sterna.airflow.assets import freshness_schedule
from sterna.airflow.base import SternaOperator
from sterna.airflow.dags import build_schedule, common_settings
from sterna.airflow.settings import get_option, get_timedelta, parse_follow_duration
from sterna.airflow.watcher import add_watcher

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.config.sections.features import Features

_DOC = """\
### Keep features of region `{region}` ready for online reads

| task | what it does |
|---|---|
| materialize | writes rows that changed in the replica into the region's store |
| look | fails when a view is staler than its `max_staleness`, or the store may lack rows of it |
| watcher | fails where one of these did, so that the run is red; else it is skipped |

A new head of the replica starts a run, and so does the schedule, as a fallback. With something to do, `materialize`
runs for `[sterna] features_follow_for`, with Spark warm. Without `features.online.{region}` in the services file it
does nothing.

**When it fails**: the gateway continues to serve what the store has. For what to do see docs/operations.md, *By what
you see*.
"""


class SternaFeaturesOperator(SternaOperator):
    """The base of both operators.

    Args:
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "services")

    def __init__(self, *, services: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.services = services

    def settings(self, region: str) -> Features:
        """Return section `features` of the services file.

        Raises:
            AirflowSkipException: the services file has no online store for the region.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        from sterna.config.services_file import read_services

        features = read_services(self.services or get_option("services") or None).features
        if features is None or region not in features.online:
            raise AirflowSkipException(f"the services file has no features.online.{region}")
        return features


class SternaMaterializeOperator(SternaFeaturesOperator):
    """Update all views from the replica, for a while; return rows that were written, by view.

    Args:
        follow_for: for how long it polls for more.
        kwargs: see `SternaFeaturesOperator`.
    """

    def __init__(self, *, follow_for: timedelta = timedelta(0), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.follow_for = follow_for

    def execute(self, context: TaskContext) -> dict[str, int]:
        """Update the views, log each, and return the number of rows by view."""
        from sterna.pipelines.features.region import materialize_all

        region = self.open()
        features = self.settings(region.region.name)
        summary = materialize_all(
            region, features, follow_for=self.follow_for.total_seconds(), report=self.log_progress
        )
        for error in summary.errors.values():
            raise error
        counts: dict[str, int] = {}
        for step in summary.steps:
            counts[step.view] = counts.get(step.view, 0) + step.rows + step.gone
        return counts


class SternaFeaturesStatusOperator(SternaFeaturesOperator):
    """Report how late each view is, and fail while one has an alarm; return the seconds, by view."""

    def execute(self, context: TaskContext) -> dict[str, float]:
        """Set gauges for each view, and return by how many seconds each is behind.

        Raises:
            AirflowFailException: there are alarms; the message has one for each view.
        """
        from airflow.sdk.exceptions import AirflowFailException
        from airflow.sdk.observability import stats

        from sterna.pipelines.features.region import open_feature_store
        from sterna.pipelines.features.status import read_status
        from sterna.text.reconcilers import status_text

        region = self.open()
        features = self.settings(region.region.name)
        with open_feature_store(region, features) as store:
            views = read_status(region, features, store)
        self.log_text(status_text(views))
        for view in views:
            tags = {"region": region.region.name, "view": view.name}
            if view.lag is not None:
                stats.gauge("sterna.features_behind_seconds", view.lag, tags=tags)
            stats.gauge("sterna.features_alarm", int(view.blocked is not None), tags=tags)
        if alarms := [f"{view.name}: {view.message}" for view in views if view.blocked]:
            raise AirflowFailException("; ".join(alarms))
        return {view.name: view.lag for view in views if view.lag is not None}


def features_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    services: str | None = None,
    tables: Sequence[str] = (),
    dag_id: str = "sterna_features",
    schedule: str | None = None,
    follow_for: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return the DAG that keeps a region's features ready.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        services: path of the services file; None for `[sterna] services`.
        tables: the views' tables: a run starts when one of them is fresh; none: with each new head of the replica.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC) of the runs that catch what events missed, "" for none; None for `[sterna]
            features_schedule`.
        follow_for: for how long a run polls for more, such as `5m`; None for `[sterna] features_follow_for`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    cron = get_option("features_schedule") if schedule is None else schedule
    duration = parse_follow_duration(get_option("features_follow_for") if follow_for is None else follow_for)
    settings: dict[str, Any] = {
        "description": f"Keep features of region {region} ready for online reads",
        "doc_md": _DOC.format(region=region),
        "schedule": build_schedule(cron, freshness_schedule(region, tables)),
        "is_paused_upon_creation": True,
        **common_settings(),
    }
    common: dict[str, Any] = {"region": region, "registry": registry, "services": services}
    timeout = get_timedelta("features_timeout")
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        materialize = SternaMaterializeOperator(
            task_id="materialize", follow_for=duration, execution_timeout=duration + timeout, **common
        )
        check = SternaFeaturesStatusOperator(
            task_id="look", trigger_rule="all_done", execution_timeout=timeout, **common
        )
        materialize >> check
        add_watcher(dag)
    return dag
