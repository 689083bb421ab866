"""A clean-up as an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaOperator
from sterna.airflow.settings import text

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.gc.model import GcOptions


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
        self._cleaning = False

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Clean up, and tell what was found and done."""
        from airflow.sdk.exceptions import AirflowFailException

        from sterna.edges.services_file import read_services
        from sterna.gc.run import collect
        from sterna.render.gc import collected_text

        gone = read_services(self.services or text("services")).gone
        options = replace(read_gc_options(self.options), gone=gone)
        self._cleaning = True
        try:
            found = collect(self.open(), options, self.say)
        finally:
            self._cleaning = False
        for line in collected_text(found, evict=options.evict).splitlines():
            self.say(line)
        if found.failed:
            raise AirflowFailException(f"{found.failed} files could not be deleted: the next clean-up tries again")
        return {
            "pass_id": found.pass_id,
            "dry_run": found.dry_run,
            "unreachable_files": found.unreachable.files,
            "unreachable_bytes": found.unreachable.bytes,
            "garbage_files": found.garbage.files,
            "garbage_bytes": found.garbage.bytes,
            "deleted_files": found.deleted.files,
            "deleted_bytes": found.deleted.bytes,
        }

    def on_kill(self) -> None:
        """Take the fence down on the way out, when a person clears or marks the task while it runs.

        Airflow calls this where the task was interrupted, and kills it some seconds later. Syncs would wait for minutes
        until they take the clean-up for dead.
        """
        from airflow.sdk.exceptions import AirflowTaskTerminated

        if self._cleaning:
            raise AirflowTaskTerminated("the clean-up was ended: the next one goes on")


def read_gc_options(given: Mapping[str, Any] | str) -> GcOptions:
    """Return what a mapping, or its JSON text, asks of a clean-up; without `dry_run` it deletes.

    Raises:
        UsageError: there is no such option, a duration is none, or a grace is too short.
    """
    from sterna.errors import UsageError
    from sterna.gc.model import GcOptions
    from sterna.strict_yaml import duration

    options = dict(json.loads(given) if isinstance(given, str) else given)
    read: dict[str, Any] = {"delete": not options.pop("dry_run", False), "evict": bool(options.pop("evict", False))}
    for name in ("keep", "grace"):
        spelled = options.pop(name, None)
        if spelled is None:
            continue
        length = duration(str(spelled))
        if length is None:
            raise UsageError(f"{name}: {spelled!r} is no duration: expected one such as 24h or 7d (s, m, h, d, w)")
        read[name] = timedelta(seconds=length)
    if options:
        raise UsageError(f"no such option: {', '.join(sorted(options))}; there are dry_run, evict, grace, keep")
    return GcOptions(**read)
