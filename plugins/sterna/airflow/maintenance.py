"""Maintenance of `main` as operators and as a DAG, one a region: each rewrites the files of its region."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, SkipMixin

from sterna.airflow.base import SternaOperator
from sterna.airflow.dags import build_schedule, common_settings
from sterna.airflow.settings import get_option, get_timedelta
from sterna.airflow.watcher import add_watcher

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.config.sections.maintenance import Maintenance

_DOC = """\
### Maintain tables on `main`: files in region `{region}`

| task | what it does |
|---|---|
| plan | shows what would be rewritten, what is shipped again, and what that costs |
| run | rewrites small files, and files many of whose rows are deleted, into fewer |
| expire | removes snapshots from tables' metadata that are no longer needed |
| sweep | deletes files that nothing needs, in two passes, where the registry has `sweep: true` |
| watcher | fails where one of these did, so that the run is red; else it is skipped |

Section `maintenance` of the services file defines which tables, and how. Without one all tasks are skipped. Writers
continue meanwhile.

**By hand**: *Trigger* offers a choice of tables, and a dry run.

**When it fails**: nothing is lost, and the next run continues. The log names each table and its error.
"""


class SternaMaintenanceOperator(SternaOperator, SkipMixin):
    """What the steps of maintenance share: the settings, and which tables.

    Args:
        options: a mapping or its JSON text: `tables` (key names or patterns) and `dry_run`.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "options", "services")
    inherits_from_skipmixin = True

    def __init__(
        self, *, options: Mapping[str, Any] | str | None = None, services: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.options = options or {}
        self.services = services

    @property
    def parsed_options(self) -> tuple[tuple[str, ...], bool]:
        """The requested tables, and whether it is a dry run.

        Raises:
            UsageError: there is no such option.
        """
        return parse_maintenance_options(self.options)

    def settings(self) -> Maintenance | None:
        """Return section `maintenance` of the services file; None where there is none.

        Raises:
            ServicesError: the file is wrong, or was named and is missing.
        """
        from sterna.config.services_file import read_services

        return read_services(self.services or get_option("services")).maintenance

    def settings_or_skip(self) -> Maintenance:
        """Return section `maintenance` of the services file; skip the task where it says nothing.

        Raises:
            AirflowSkipException: it says nothing.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        settings = self.settings()
        if settings is None:
            raise AirflowSkipException("the services file has no section maintenance")
        return settings


class SternaMaintenancePlanOperator(SternaMaintenanceOperator):
    """Log what maintenance would rewrite; skip the following tasks where nothing is configured."""

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Plan, log the plan, and return its numbers."""
        from sterna.maintenance.tables.plan import plan_maintenance
        from sterna.text.maintenance import plan_text

        settings, (tables, dry_run) = self.settings(), self.parsed_options
        if settings is None:
            self.log_progress("the services file has no section maintenance: nothing is kept in shape")
            self.skip_all_except(context["ti"], [])
            return {"tables": 0, "groups": 0}
        region = self.open()
        plan = plan_maintenance(region, settings, tables, self.log_progress)
        self.log_text(plan_text(plan))
        if dry_run:
            self.skip_all_except(context["ti"], [])
        groups = [group for table in plan.tables for group in table.due_groups(region.region.name)]
        return {"tables": len(plan.tables), "groups": len(groups), "price": sum(group.price for group in groups)}


class SternaMaintenanceRunOperator(SternaMaintenanceOperator):
    """Rewrite the region's files, and return what was done."""

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Rewrite, and tell what was planned and what happened."""
        from airflow.sdk.exceptions import AirflowFailException

        from sterna.maintenance.tables.run import run_maintenance
        from sterna.text.maintenance import done_text

        settings, (tables, dry_run) = self.settings_or_skip(), self.parsed_options
        summary = run_maintenance(self.open(), settings, tables, self.log_progress, dry_run=dry_run)
        self.log_text(done_text(summary))
        if summary.failed:
            raise AirflowFailException(
                f"maintenance failed for {', '.join(summary.failed)}: the log has the reasons. Groups recorded as not "
                "writable are retried when their files or the rule change, or after a day; other failures by the next "
                "run"
            )
        if summary.starved:
            raise AirflowFailException(
                f"files of {', '.join(summary.starved)} are starved by other writers; the log has what waits"
            )
        return {
            "run_id": summary.run_id,
            "groups": sum(table.groups for table in summary.tables),
            "conflicts": sum(table.conflicts for table in summary.tables),
            "files": sum(table.replaced.files - table.written.files for table in summary.tables),
            "bytes": sum(table.written.bytes for table in summary.tables),
            "price": sum(table.written.price for table in summary.tables),
        }


class SternaMaintenanceExpireOperator(SternaMaintenanceOperator):
    """Expire snapshots that are no longer needed, and return how many."""

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Expire, and tell what was found and done; fail where a table had to be left as it is."""
        from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots, require_unblocked
        from sterna.text.expiry import expiry_text

        settings, (tables, dry_run) = self.settings_or_skip(), self.parsed_options
        region = self.open()
        remove = None if dry_run else SparkSnapshotRemover(region, settings)
        expiry = expire_snapshots(region, settings, tables=tables, remove=remove, progress=self.log_progress)
        self.log_text(expiry_text(expiry))
        require_unblocked(expiry)
        return {"tables": len(expiry.tables), "snapshots": sum(len(table.expired) for table in expiry.tables)}


class SternaMaintenanceSweepOperator(SternaMaintenanceOperator):
    """Delete what nothing needs of the region's own files, where the registry opts in; return the counts."""

    def execute(self, context: TaskContext) -> dict[str, Any]:
        """Delete orphan files, and return how many there were.

        Raises:
            AirflowSkipException: there is no section maintenance, or no location with `sweep: true`.
            AirflowFailException: files could not be deleted.
        """
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

        from sterna.config.orphan_removal import swept_locations
        from sterna.config.services_file import read_services
        from sterna.maintenance.tables.orphan_files import sweep
        from sterna.text.expiry import swept_text

        services, (_, dry_run) = read_services(self.services or get_option("services")), self.parsed_options
        if services.maintenance is None:
            raise AirflowSkipException("the services file has no section maintenance")
        region = self.open()
        if not swept_locations(region.mapping):
            raise AirflowSkipException(f"no location of region {region.region.name} has sweep: true in the registry")
        excluded = services.inbox_prefixes
        swept = sweep(
            region, services.maintenance, delete=not dry_run, excluded_prefixes=excluded, progress=self.log_progress
        )
        self.log_text(swept_text(swept))
        if swept.failed:
            raise AirflowFailException(f"{swept.failed} files could not be deleted: the next sweep tries again")
        return {"garbage_files": swept.garbage.files, "deleted_files": swept.deleted.files}


def parse_maintenance_options(raw_options: Mapping[str, Any] | str) -> tuple[tuple[str, ...], bool]:
    """Return the tables in a mapping, or its JSON text, and whether it is a dry run.

    Raises:
        UsageError: there is no such option.
    """
    from sterna.errors import UsageError

    options = dict(json.loads(raw_options) if isinstance(raw_options, str) else raw_options)
    tables: Sequence[str] = options.pop("tables", None) or ()
    dry_run = bool(options.pop("dry_run", False))
    if options:
        raise UsageError(f"no such option: {', '.join(sorted(options))}; there are dry_run, tables")
    return tuple(tables), dry_run


def maintenance_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    dag_id: str = "sterna_upkeep",
    schedule: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return a DAG that maintains tables on `main`, as far as their files are in one region.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC), "" for none; None for `[sterna] maintenance_schedule`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    cron = get_option("maintenance_schedule") if schedule is None else schedule
    settings: dict[str, Any] = {
        "description": f"Maintain tables on main: files in region {region}",
        "doc_md": _DOC.format(region=region),
        "schedule": build_schedule(cron),
        "params": _params(),
        **common_settings(),
    }
    common: dict[str, Any] = {"region": region, "registry": registry, "options": "{{ params | tojson }}"}
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        plan = SternaMaintenancePlanOperator(task_id="plan", execution_timeout=get_timedelta("plan_timeout"), **common)
        deadline = get_timedelta("maintenance_timeout")
        run = SternaMaintenanceRunOperator(task_id="run", execution_timeout=deadline, **common)
        # They remove what a compaction replaced. A table's failure in `run` delays no other's expiry, and the sweep
        # also reports a region that expiry has to wait for.
        cleanup_settings: dict[str, Any] = {
            "trigger_rule": "none_skipped",
            "execution_timeout": deadline,
        }
        expire = SternaMaintenanceExpireOperator(task_id="expire", **cleanup_settings, **common)
        sweep = SternaMaintenanceSweepOperator(task_id="sweep", **cleanup_settings, **common)
        plan >> run >> expire >> sweep
        add_watcher(dag)
    return dag


def _params() -> dict[str, Param]:
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Tables",
            description_md="Names or patterns such as `sales.*`; none: all that have a rule.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description_md="Only show, in the log of `plan`, what it would do.",
        ),
    }
