"""Change capture as an operator that follows for a while, and its DAG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from sterna.airflow.base import SternaOperator
from sterna.airflow.dags import common_settings
from sterna.airflow.settings import get_option, get_timedelta, parse_follow_duration

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

_DOC = """\
### Follow databases, for region `{region}`

Changes of their rows are applied to tables on `main`: complete transactions, each change once. The run continues for
`[sterna] cdc_follow_for`, with the reading engine and Spark warm.

Section `cdc` of the services file lists the databases. Without one for this region the task is skipped.

**When it fails**: a source needs an operator. The reason is in the log, and in `sterna cdc status`. The others have
continued. For what to do see docs/operations.md, *By what you see*.
"""


class SternaCdcOperator(SternaOperator):
    """Follow the region's sources for a while; return how many steps were published.

    Args:
        sources: names of sources; none: all of the region's.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "services")

    def __init__(
        self,
        *,
        sources: Sequence[str] = (),
        follow_for: timedelta = timedelta(minutes=1),
        services: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sources = tuple(sources)
        self.follow_for = follow_for
        self.services = services
        self._runner: Any = None

    def execute(self, context: TaskContext) -> int:
        """Follow, and log each step."""
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

        from sterna.config.services_file import read_services
        from sterna.pipelines.cdc.run import CaptureRunner
        from sterna.pipelines.cdc.sources import open_sources

        region, services = self.open(), read_services(self.services or get_option("services"))
        if not any(source.region == region.region.name for source in services.cdc.sources):
            raise AirflowSkipException("the services file has no source in cdc.sources for this region")
        self._runner = CaptureRunner(open_sources(region, services, self.sources), self.log_progress)
        summary = self._runner.run(self.follow_for.total_seconds())
        if summary.failed:
            name, reason = next(iter(summary.failed.items()))
            raise AirflowFailException(f"{len(summary.failed)} failed; {name}: {reason}")
        return len(summary.steps)

    def on_kill(self) -> None:
        """Let what is under way come to its end."""
        if self._runner is not None:
            self._runner.stop()


def cdc_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    services: str | None = None,
    dag_id: str = "sterna_cdc",
    sources: Sequence[str] = (),
    follow_for: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return a DAG whose task follows databases repeatedly.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        services: path of the services file; None for `[sterna] services`.
        sources: names of sources; none: all of the region's.
        follow_for: for how long a run follows, such as `10m`; None for `[sterna] cdc_follow_for`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    duration = parse_follow_duration(get_option("cdc_follow_for") if follow_for is None else follow_for)
    settings: dict[str, Any] = {
        "description": f"Follow databases, for region {region}",
        "doc_md": _DOC.format(region=region),
        "schedule": get_option("cdc_schedule") or None,
        "is_paused_upon_creation": True,
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        SternaCdcOperator(
            task_id="follow",
            region=region,
            registry=registry,
            services=services,
            sources=sources,
            follow_for=duration,
            execution_timeout=duration + get_timedelta("cdc_timeout"),
        )
    return dag
