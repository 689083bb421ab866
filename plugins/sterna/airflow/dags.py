"""The DAGs: wiring and schedule; no network and no disk while they are parsed."""

from __future__ import annotations

from sterna.airflow import requirements  # noqa: F401 - before what an older Airflow lacks

# isort: split

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable, Param, XComArg, chain

from sterna.airflow.addons import ADDONS, Addon, AddonName
from sterna.airflow.assets import asset_alias, freshness_schedule, main_asset, transit_asset
from sterna.airflow.operators import (
    RUN_XCOM_KEY,
    SternaAnnounceOperator,
    SternaCopyOperator,
    SternaFinishBulkOperator,
    SternaFollowOperator,
    SternaLagOperator,
    SternaLocalizeOperator,
    SternaPlanOperator,
    SternaPublishOperator,
    SternaReconcileOperator,
)
from sterna.airflow.params import option_param
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.airflow.settings import OPTIONS, get_float, get_option, get_timedelta, parse_follow_duration
from sterna.airflow.watcher import add_watcher
from sterna.concurrency.priority import lower_process_priority
from sterna.errors import UsageError
from sterna.operations.alarms import ALARM_CHECKS
from sterna.replication.plan.options import OptionForm, SyncOptions, option_form, option_name

# All but backfills: what these DAGs do, they do to what is there now, whatever day a run is for.
_RUN_TYPES = ("scheduled", "manual", "operator_triggered", "asset_triggered", "asset_materialization")
_SYNC_DOC = """\
### Sync region `{region}` with `main`

| task | what it does |
|---|---|
| plan | compares `main` with the region's replica branch; its log explains what will be done, and what is held |
| copy | copies the files of other regions, a task for each batch, and proves each of them present |
| localize | writes this region's own copy of every file that holds paths |
| publish | makes all changes visible in one commit on the replica branch |
| announce | updates the assets `sterna://{region}/<key>` of the tables that became fresh |
| linger | where that is set: after a publication follows `main` for a while |

A commit on `main` starts a run, and so does the schedule, as a fallback. With nothing to do a run ends after `plan`. A
failed run leaves the replica as it was; the next one uses what was copied.

**By hand**: *Trigger* offers a choice of tables, a dry run (the plan's log shows what would be done), and the size of
batches.

**When it fails**: the last lines of the failed task have the error. Transient errors were retried; the others
(registry, credentials, a foreign commit on the branch) need an operator.
"""

_BULK_DOC = """\
### Copy the large tables of region `{region}`

The sync leaves them out, as *in transit*, so that all others are published meanwhile (`bulk_copy_threshold` in the \
registry).

| task | what it does |
|---|---|
| plan | lists what the tables in transit lack here |
| copy | copies the files of other regions, and proves each present; when all of a table are here, it is \
localized, and a run of the sync publishes it |
| localize | writes this region's own copy of every file that holds paths |
| arrive | ends the bulk run, and starts a run of the sync, which publishes what is here |

It publishes nothing itself. A sync that puts tables in transit starts a run, and so does the schedule, as a fallback.
With nothing in transit a run ends after `plan`.

**When it fails**: the tables stay in transit, and the lag alert shows for how long. The next run uses what was copied.
"""

_LAG_DOC = """\
### Alert when region `{region}` needs an operator

Fails, with a line for each alarm, when

{conditions}

It reads the region's state, not the runs of the sync, so it also detects that no run happens at all. Set your notifier
as `on_failure_callback`, or alert on the metric `sterna.alarms`. For what to do see docs/operations.md, *The lag
alert*.
"""


def sync_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    dag_id: str = "sterna_sync",
    schedule: str | None = None,
    poll_interval: float | None = None,
    lanes: bool = False,
    follow_for: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return the DAG that keeps a region's replica up to date; the module that calls it holds it in a variable.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC) of the runs that catch what events missed, "" for none; None for `[sterna]
            schedule`.
        poll_interval: seconds between two polls of the head of `main`; None for `[sterna] poll_interval`.
        lanes: leave what is large to the DAG of `bulk_dag`, which then has to be there. Otherwise one run takes all.
        follow_for: for how long a run that published follows `main`, such as `60s`; "" for not at all; None
            for `[sterna] follow_for`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    head = main_asset(region, registry, poll_interval or get_float("poll_interval"))
    cron = get_option("schedule") if schedule is None else schedule
    settings: dict[str, Any] = {"schedule": build_schedule(cron, [head]), "params": _sync_params(lanes)}
    with new_dag(dag_id, region, _SYNC_DOC, {**settings, **kwargs}) as dag:
        duration = parse_follow_duration(get_option("follow_for") if follow_for is None else follow_for)
        _sync_tasks(region, registry, duration)
    return dag


def bulk_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    dag_id: str = "sterna_large",
    schedule: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return the DAG that copies what the region's sync, a `sync_dag` with `lanes`, leaves in transit.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC) of the runs that catch what events missed, "" for none; None for `[sterna]
            schedule`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    cron = get_option("schedule") if schedule is None else schedule
    settings = {"schedule": build_schedule(cron, [transit_asset(region)]), **kwargs}
    with new_dag(dag_id, region, _BULK_DOC, settings) as dag:
        common = {"region": region, "registry": registry, "pre_execute": lambda context: lower_process_priority()}
        _add_sync_stages({"lane": "large"}, SternaFinishBulkOperator, "arrive", common)
    return dag


def addon_dag(
    addon: AddonName,
    *,
    region: str | None = None,
    registry: str | None = None,
    services: str | None = None,
    dag_id: str | None = None,
    schedule: str | None = None,
    follow_for: str | None = None,
    names: Sequence[str] = (),
    tables: Sequence[str] | None = None,
    workers: int | None = None,
    params: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> DAG:
    """Return the DAG of an add-on, which is paused when it is new, unless it runs by hand alone.

    Args:
        addon: which one.
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        services: path of the services file; None for `[sterna] services`.
        dag_id: the DAG's id, one a region; None for the add-on's own, such as `sterna_cdc`.
        schedule: cron expression (UTC), "" for none; None for the add-on's option, such as `[sterna] cdc_schedule`.
        follow_for: for how long a run polls for more, such as `10m`; None for the option, as `[sterna] cdc_follow_for`.
        names: names of sources (`cdc`), transforms or views (`features`); none: all.
        tables: tables whose changes start a run of `transforms` or `features`; none: whatever becomes fresh in the
            region; None for `[sterna] transforms_sources`.
        workers: how many tasks of `ingest` work at once; None for `[sterna] ingest_workers`.
        params: what parameters of `gc`, `maintenance`, `repair` and `verify` are by default.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong, or isn't one of this add-on.
    """
    settings = {"follow_for": follow_for, "workers": workers, "names": names, "tables": tables, "params": params}
    spec = _find_addon(addon, [name for name, value in settings.items() if value])
    region, registry = region or get_option("region"), registry or get_option("registry")
    fresh = freshness_schedule(region, spec.tables() if tables is None else tables) if spec.tables else None
    runs = build_schedule(_addon_option(addon, "schedule") if schedule is None else schedule, fresh)
    defaults = {"schedule": runs, "params": spec.params(), "is_paused_upon_creation": not spec.by_hand}
    with new_dag(dag_id or spec.dag_id, region, spec.doc, {**defaults, **kwargs}) as dag:
        dag.params.update(params or {})
        duration = parse_follow_duration(_addon_option(addon, "follow_for") if follow_for is None else follow_for)
        common = {"region": region, "registry": registry, "services": services, "names": names}
        _add_steps(addon, duration, workers or int(_addon_option(addon, "workers") or 0), common)
    return dag


def _find_addon(addon: AddonName, settings: Sequence[str]) -> Addon:
    """Return an add-on that has some settings.

    Raises:
        UsageError: there is no such add-on, or it has no such setting.
    """
    if addon not in ADDONS:
        raise UsageError(f"no such add-on: {addon}; there are {', '.join(ADDONS)}")
    spec = ADDONS[addon]
    own = {"names": spec.has_names, "tables": spec.tables is not None, "params": bool(spec.params())}
    if unknown := [name for name in settings if not own.get(name, f"{addon}_{name}" in OPTIONS)]:
        raise UsageError(f"the DAG of {addon} has no {', '.join(unknown)}")
    return spec


def _addon_option(addon: AddonName, name: str) -> str:
    """Return an add-on's option, "" where it has none of the name."""
    option = f"{addon}_{name}"
    return get_option(option) if option in OPTIONS else ""


def _add_steps(addon: AddonName, follow_for: timedelta, workers: int, common: Mapping[str, Any]) -> None:
    """Add an add-on's tasks, one behind the other, or a task a worker, side by side."""
    spec, tasks = ADDONS[addon], []
    options = "{{ params | tojson }}" if spec.params() else None
    for name, step in spec.steps.items():
        duration = follow_for if step.follows else timedelta(0)
        arguments = {"addon": addon, "step": name, "follow_for": duration, "options": options, **common}
        arguments["outlets"] = [asset_alias()] if step.starts_sync else []
        arguments["execution_timeout"] = duration + get_timedelta(step.timeout or f"{addon}_timeout")
        ids = [f"{name}_{worker}" for worker in range(1, workers + 1)] or [name]
        tasks.append([SternaReconcileOperator(task_id=id, trigger_rule=step.trigger_rule, **arguments) for id in ids])
    chain(*tasks)
    if len(tasks) > 1:
        add_watcher(tasks[0][0].dag)


def lag_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    limit: timedelta | None = None,
    dag_id: str = "sterna_lag_alert",
    **kwargs: Any,
) -> DAG:
    """Return a DAG that fails while a region, or a table that it holds, lags behind `main` by more than a limit.

    It also fails on the other alarms of `ALARM_CHECKS`; see `SternaLagOperator`.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        limit: the lag from which on it fails; None for `[sterna] lag_limit`.
        dag_id: the DAG's id; one a region.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    settings = {"schedule": build_schedule("*/5 * * * *"), **kwargs}
    doc = _LAG_DOC.replace("{conditions}", "\n".join(f"* {check.condition}" for check in ALARM_CHECKS))
    with new_dag(dag_id, region, doc, settings) as dag:
        SternaLagOperator(
            task_id="lag",
            region=region,
            registry=registry,
            limit=limit or get_timedelta("lag_limit"),
            execution_timeout=timedelta(minutes=2),
        )
    return dag


def _sync_tasks(region: str, registry: str, follow_for: timedelta) -> None:
    common: dict[str, Any] = {"region": region, "registry": registry}
    publish = _add_sync_stages("{{ params | tojson }}", SternaPublishOperator, "publish", common)
    # After a run with nothing to do as well: an earlier announcement may have been killed.
    announce = SternaAnnounceOperator(task_id="announce", execution_timeout=get_timedelta("publish_timeout"), **common)
    publish >> announce
    if follow_for:
        deadline = follow_for + get_timedelta("publish_timeout")
        announce >> SternaFollowOperator(task_id="linger", follow_for=follow_for, execution_timeout=deadline, **common)


def _add_sync_stages(
    options: dict[str, Any] | str, final_operator: Any, final_task_id: str, common: dict[str, Any]
) -> Any:
    """Add the tasks from a plan to the one that ends a run; return that one."""
    plan = SternaPlanOperator(
        task_id="plan", options=options, execution_timeout=get_timedelta("plan_timeout"), **common
    )
    run: Any = XComArg(plan, key=RUN_XCOM_KEY)
    copy = SternaCopyOperator.partial(
        task_id="copy",
        run=run,
        map_index_template=SternaCopyOperator.label_template,
        max_active_tis_per_dagrun=int(get_float("copy_slots")),
        outlets=[asset_alias()],
        execution_timeout=get_timedelta("copy_timeout"),
        **common,
    ).expand(batch=plan.output)
    copied: Any = copy.output
    localize = SternaLocalizeOperator(
        task_id="localize", run=run, copied=copied, execution_timeout=get_timedelta("localize_timeout"), **common
    )
    localized: Any = localize.output
    deadline = get_timedelta("publish_timeout")
    return final_operator(
        task_id=final_task_id, run=run, copied=copied, localized=localized, execution_timeout=deadline, **common
    )


def new_dag(dag_id: str, region: str, doc: str, settings: Mapping[str, Any]) -> DAG:
    """Return a DAG without tasks, set up as all of them are.

    Args:
        dag_id: its id.
        region: name of the region.
        doc: what Airflow shows beside it, from a title on; `{region}` is the region's name.
        settings: see `DAG`; they go before what is set here.
    """
    doc = doc.format(region=region)
    owner, link = get_option("owner"), get_option("owner_link")
    defaults: dict[str, Any] = {
        "description": doc.partition("\n")[0].removeprefix("### ").replace("`", ""),
        "doc_md": doc,
        "catchup": False,
        "allowed_run_types": _RUN_TYPES,
        "max_active_runs": 1,
        "tags": ["sterna"],
        "default_args": {
            "owner": owner,
            "retries": int(get_float("retries")),
            "retry_delay": timedelta(seconds=10),
            "retry_policy": RemedyRetryPolicy(),
        },
        "owner_links": {owner: link} if link else {},
    }
    return DAG(dag_id, **{**defaults, **settings})


def build_schedule(cron: str, assets: Sequence[Asset] | Asset | AssetAny | None = None) -> Any:
    """Return a DAG's schedule.

    Args:
        cron: a cron expression (UTC), "" for none.
        assets: what starts a run beside it.
    """
    timetable = CronTriggerTimetable(cron, timezone="UTC") if cron else None
    if assets is None:
        return timetable
    return assets if timetable is None else AssetOrTimeSchedule(timetable=timetable, assets=assets)


def _sync_params(lanes: bool) -> dict[str, Param]:
    """Return the parameters of a sync: its options that have a form, groups last, and `dry_run`."""
    forms = {
        option_name(option): (option.default, form) for option in fields(SyncOptions) if (form := option_form(option))
    }
    forms["lane"] = ("small" if lanes else "all", forms["lane"][1])
    dry_run = OptionForm(
        "Dry run",
        "Only explain, in the log of `plan`, what would be done; the plan stays beside the replica as evidence.",
    )
    ordered = sorted(forms.items(), key=lambda item: item[1][1].section)
    params = {name: option_param(default, form) for name, (default, form) in ordered}
    return {"tables": params.pop("tables"), "dry_run": option_param(False, dry_run), **params}
