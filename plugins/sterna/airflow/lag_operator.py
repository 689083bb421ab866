"""The lag alert as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaOperator

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext


class SternaLagOperator(SternaOperator):
    """Fail when a region needs somebody, so that Airflow's own alerts tell them.

    It does when the region, or a table that it holds, lags behind `main` by more than a limit. And when its branch
    can't be used, it is cut off from the primary's catalog, no clean-up gets ahead, or a replication slot is near its
    limit, or where maintenance is configured and waits for a silent region. Each is a metric, too.

    Args:
        limit: the lag from which on the task fails.
        ignore_held: patterns of tables that may be held without an alarm; None for `[sterna] ignore_held`.
        gc_limit: how long evidence of a run may stay, which a clean-up deletes; 0 where no clean-up is run; None for
            `[sterna] gc_limit`.
        slot_limit: the share of `max_slot_wal_keep_size` that a slot may need; None for `[sterna] slot_limit`.
        services: path of the services file, whose section `maintenance` counts; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "services")

    def __init__(
        self,
        *,
        limit: timedelta,
        ignore_held: Sequence[str] | None = None,
        gc_limit: timedelta | None = None,
        slot_limit: float | None = None,
        services: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.limit = limit
        self.ignore_held = ignore_held
        self.gc_limit = gc_limit
        self.slot_limit = slot_limit
        self.services = services

    def execute(self, context: TaskContext) -> float | None:
        """Look, report metrics, and return the lag in seconds, without the tables that may be held."""
        from sterna.airflow.alert import check_region, read_limits
        from sterna.airflow.settings import get_option
        from sterna.config.services_file import read_services
        from sterna.errors import ServicesError

        limits = read_limits(self.limit, self.ignore_held, self.gc_limit, self.slot_limit)
        maintenance, services_error = None, None
        try:
            maintenance = read_services(self.services or get_option("services")).maintenance
        except ServicesError as error:  # told in the end: it hides nothing else
            services_error = error
        lag = check_region(self.open(), limits, self.log_progress, maintenance)
        if services_error:
            raise services_error
        return lag
