"""A clean-up as an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaOperator
from sterna.airflow.settings import get_option

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.maintenance.gc.model import GcOptions


class SternaGcOperator(SternaOperator):
    """Delete what no kept head of a region's replica branch reaches; return the counts.

    Args:
        options: a mapping or its JSON text: `keep` and `grace` (durations such as `7d`), `evict`, `dry_run`.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "options", "services")

    def __init__(
        self, *, options: Mapping[str, Any] | str | None = None, services: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.services = services
        self.options = options or {}
        self._collecting = False

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Delete unreferenced files, and return how many were unreachable, garbage and deleted.

        Raises:
            AirflowFailException: files could not be deleted.
        """
        from airflow.sdk.exceptions import AirflowFailException

        from sterna.config.services_file import read_services
        from sterna.maintenance.gc.run import run_gc
        from sterna.text.gc import collected_text

        gone = read_services(self.services or get_option("services")).retired_regions
        options = replace(parse_gc_options(self.options), excluded_regions=gone)
        self._collecting = True
        try:
            collected = run_gc(self.open(), options, self.log_progress)
        finally:
            self._collecting = False
        self.log_text(collected_text(collected, evict=options.evict))
        if collected.failed:
            raise AirflowFailException(f"{collected.failed} files could not be deleted: the next clean-up retries them")
        return {
            "pass_id": collected.pass_id,
            "dry_run": collected.dry_run,
            "unreachable_files": collected.unreachable.files,
            "unreachable_bytes": collected.unreachable.bytes,
            "garbage_files": collected.garbage.files,
            "garbage_bytes": collected.garbage.bytes,
            "deleted_files": collected.deleted.files,
            "deleted_bytes": collected.deleted.bytes,
        }

    def on_kill(self) -> None:
        """Release the fence when the task is cleared or marked while it runs.

        Airflow calls this once it has interrupted the task, and kills the process some seconds later. A fence left
        behind would delay syncs by minutes, until they take the clean-up for dead.

        Raises:
            AirflowTaskTerminated: the clean-up is running; as an exception, so that it unwinds.
        """
        from airflow.sdk.exceptions import AirflowTaskTerminated

        if self._collecting:
            raise AirflowTaskTerminated("the clean-up was ended: the next one continues")


def parse_gc_options(raw_options: Mapping[str, Any] | str) -> GcOptions:
    """Parse options of a garbage collection from a mapping, or its JSON text; without `dry_run` it deletes.

    Raises:
        UsageError: there is no such option, a duration is none, or a grace is too short.
    """
    from sterna.config.durations import DURATION_UNITS, duration_seconds
    from sterna.errors import UsageError
    from sterna.maintenance.gc.model import GcOptions

    options = dict(json.loads(raw_options) if isinstance(raw_options, str) else raw_options)
    arguments: dict[str, Any] = {
        "delete": not options.pop("dry_run", False),
        "evict": bool(options.pop("evict", False)),
    }
    for name in ("keep", "grace"):
        duration_text = options.pop(name, None)
        if duration_text is None:
            continue
        seconds = duration_seconds(duration_text)
        if seconds is None:
            raise UsageError(
                f"{name}: {duration_text!r} is no duration: expected one such as 24h or 7d ({DURATION_UNITS})"
            )
        arguments[name] = timedelta(seconds=seconds)
    if options:
        raise UsageError(f"no such option: {', '.join(sorted(options))}; there are dry_run, evict, grace, keep")
    return GcOptions(**arguments)
