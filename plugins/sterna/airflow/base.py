"""What the operators of sterna share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from sterna.airflow.retry import RemedyRetryPolicy
from sterna.airflow.settings import get_option
from sterna.errors import printable_lines

if TYPE_CHECKING:
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
