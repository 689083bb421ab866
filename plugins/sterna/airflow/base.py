"""What the operators of sterna share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from sterna.airflow.lineage import MAX_DATASETS, Lineage, is_enabled, to_operator_lineage
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.airflow.settings import get_option
from sterna.errors import SternaError, UsageError, printable_lines

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context as TaskContext

    from sterna.config.sections.model import Services
    from sterna.replication.replica.region import RegionContext
    from sterna.replication.replica.reloading_region import ReloadingRegion

# What one task hands to the next, besides what it returns.
RUN_XCOM_KEY = "run"


class SternaOperator(BaseOperator):
    """What the operators of all stages share: their region and how its view of the registry is opened.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        kwargs: see `BaseOperator`. Without a `retry_policy` failures are retried by the remedies of their errors.
    """

    template_fields: Sequence[str] = ("region", "registry")
    ui_color = "#e8f1f8"

    def __init__(self, *, region: str | None = None, registry: str | None = None, **kwargs: Any) -> None:
        # A mapped task passes each unset setting as None.
        kwargs["retry_policy"] = kwargs.get("retry_policy") or RemedyRetryPolicy()
        super().__init__(**kwargs)
        self.region = region
        self.registry = registry
        self.lineage = Lineage()

    def pre_execute(self, context: TaskContext) -> None:
        """Refuse a run whose conf asks for a dry run that its parameters don't have: it would change things.

        Raises:
            UsageError: the parameter isn't there, or this Airflow lets no conf change it.
        """
        super().pre_execute(context)
        if (context["dag_run"].conf or {}).get("dry_run") and not context["params"].get("dry_run"):
            raise UsageError(
                "the run's conf asks for a dry run, and its parameters don't have it",
                hint="set [core] dag_run_conf_overrides_params, and start a DAG that has this parameter",
            )

    def open(self) -> RegionContext:
        """Return the region's view of the registry, with credentials from Airflow's connections."""
        from sterna.airflow.secrets import airflow_secrets
        from sterna.replication.replica.region import open_region

        # Spark's bridge logs each connection that it closes, between the lines that matter.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        return open_region(
            self.registry or get_option("registry"), self.region or get_option("region"), airflow_secrets
        )

    def open_reloading(self) -> ReloadingRegion:
        """Return the region for a task that takes longer: reopened where the registry has changed."""
        from sterna.airflow.secrets import airflow_secrets
        from sterna.replication.replica.reloading_region import ReloadingRegion

        return ReloadingRegion(
            self.registry or get_option("registry"), self.region or get_option("region"), airflow_secrets
        )

    def log_progress(self, line: str) -> None:
        """Write one line of progress to the task's log."""
        self.log.info("%s", printable_lines(line))

    def log_text(self, text: str) -> None:
        """Write each line of a text to the task's log."""
        for line in text.splitlines():
            self.log_progress(line)

    def record_lineage(self, find: Callable[[], Lineage]) -> None:
        """Keep what the task read and wrote, where OpenLineage is in use; the task never fails for it.

        Args:
            find: returns it.
        """
        try:
            if is_enabled():
                self.lineage = find()
        except SternaError as error:
            self.log_progress(f"OpenLineage gets no datasets: {error.message}")
        except Exception:
            self.log.exception("OpenLineage gets no datasets")
        if self.lineage.count > MAX_DATASETS:
            self.log_progress(f"OpenLineage gets the first {MAX_DATASETS} of {self.lineage.count} datasets")

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage[Any, Any]:
        """Return what the task read and wrote; the OpenLineage provider calls it, also after a failure."""
        return to_operator_lineage(self.lineage)


class SternaServicesOperator(SternaOperator):
    """What the operators that read the services file share.

    Args:
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields: Sequence[str] = (*SternaOperator.template_fields, "services")

    def __init__(self, *, services: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.services = services

    @property
    def services_path(self) -> str:
        """Path of the services file; "" for the one in the current folder, where there is one."""
        return self.services or get_option("services")

    def read_services(self) -> Services:
        """Return the services file's content (see `services_file.read_services`)."""
        from sterna.config.services_file import read_services

        return read_services(self.services_path)


def fail_with(alarms: Sequence[str]) -> None:
    """Fail a task where something needs an operator; return where nothing does.

    Args:
        alarms: lines.

    Raises:
        AirflowFailException: there are some; its message has all of them.
    """
    from airflow.sdk.exceptions import AirflowFailException

    if alarms:
        raise AirflowFailException("\n".join(alarms))


def parse_options(raw_options: Mapping[str, Any] | str, known: Collection[str]) -> dict[str, Any]:
    """Return an operator's options from a mapping, or its JSON text.

    Args:
        raw_options: as the operator got them, maybe rendered from the run's parameters.
        known: the names that there are.

    Raises:
        UsageError: there is no such option.
    """
    options = dict(json.loads(raw_options) if isinstance(raw_options, str) else raw_options)
    if unknown := sorted(set(options) - set(known)):
        raise UsageError(f"no such option: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return options
