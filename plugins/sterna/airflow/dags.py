"""The DAGs: wiring and schedule; no network and no disk while they are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable, Param, XComArg

from sterna.airflow.assets import asset_alias, main_asset, transit_asset
from sterna.airflow.operators import (
    RUN_XCOM_KEY,
    SternaAnnounceOperator,
    SternaCopyOperator,
    SternaFinishBulkOperator,
    SternaFollowOperator,
    SternaGcOperator,
    SternaLagOperator,
    SternaLocalizeOperator,
    SternaPlanOperator,
    SternaPublishOperator,
)
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.airflow.settings import get_float, get_option, get_timedelta, parse_follow_duration
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
| arrive | ends the round, and starts a run of the sync, which publishes what is here |

It publishes nothing itself. A sync that puts tables in transit starts a run, and so does the schedule, as a fallback.
With nothing in transit a run ends after `plan`.

**When it fails**: the tables stay in transit, and the lag alert shows for how long. The next run uses what was copied.
"""

_LAG_DOC = """\
### Alert when region `{region}` needs an operator

Fails, with a line for each alarm, when

* the oldest commit on `main` that this region does not serve yet is older than `[sterna] lag_limit`
* a table is held for as long, unless `[sterna] ignore_held` names it
* the replica branch can't be used, or the region is cut off from the primary's catalog
* no clean-up has made progress for `[sterna] gc_limit`
* a replication slot is near its limit (`[sterna] slot_limit`)

It reads the region's state, not the runs of the sync, so it also detects that no run happens at all. Set your notifier
as `on_failure_callback`, or alert on the metric `sterna.alarms`. For what to do see docs/operations.md, *The lag
alert*.
"""

_GC_DOC = """\
### Clean up below the replica root of region `{region}`

Deletes what no kept head of the region's replica branch reaches: a file is deleted when passes at least `grace` apart
found it unreachable. Safe beside syncs, which wait for half a minute at most. Unpause it where a replica should not
keep everything for ever.

**By hand**: *Trigger* offers a dry run (the log shows what would be deleted), other limits, and `evict`: files of
tables that policies or residency refuse are deleted at once.

**When it fails**: nothing that readers need was deleted, and the next run continues.
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
    settings: dict[str, Any] = {
        "description": f"Replicate the tables of main into region {region}",
        "doc_md": _SYNC_DOC.format(region=region),
        "schedule": build_schedule(cron, [head]),
        "params": _sync_params(lanes),
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
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
    asset = transit_asset(region)
    cron = get_option("schedule") if schedule is None else schedule
    settings: dict[str, Any] = {
        "description": f"Copy the tables in transit to region {region}",
        "doc_md": _BULK_DOC.format(region=region),
        "schedule": build_schedule(cron, [asset]),
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        _add_sync_stages(
            {"lane": "large"}, SternaFinishBulkOperator, "arrive", {"region": region, "registry": registry}
        )
    return dag


def lag_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    limit: timedelta | None = None,
    dag_id: str = "sterna_lag_alert",
    **kwargs: Any,
) -> DAG:
    """Return a DAG that fails while a region, or a table that it holds, lags behind `main` by more than a limit.

    It also fails on other alarms; see `SternaLagOperator`.

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
    settings: dict[str, Any] = {
        "description": f"Alert when region {region} lags behind main",
        "doc_md": _LAG_DOC.format(region=region),
        "schedule": build_schedule("*/5 * * * *"),
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        SternaLagOperator(
            task_id="lag",
            region=region,
            registry=registry,
            limit=limit or get_timedelta("lag_limit"),
            execution_timeout=timedelta(minutes=2),
        )
    return dag


def gc_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    dag_id: str = "sterna_gc",
    schedule: str | None = None,
    keep: str | None = None,
    grace: str | None = None,
    **kwargs: Any,
) -> DAG:
    """Return a DAG that deletes what no kept head of a region's replica reaches.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC), "" for none; None for `[sterna] gc_schedule`.
        keep: what younger heads reach stays, such as `7d`; None for `[sterna] gc_keep`.
        grace: how long a file has to be unreachable, such as `24h`; None for `[sterna] gc_grace`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    cron = get_option("gc_schedule") if schedule is None else schedule
    settings: dict[str, Any] = {
        "description": f"Delete what nothing reaches below the replica root of region {region}",
        "doc_md": _GC_DOC.format(region=region),
        "schedule": build_schedule(cron),
        "params": _gc_params(keep or get_option("gc_keep"), grace or get_option("gc_grace")),
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        SternaGcOperator(
            task_id="gc",
            region=region,
            registry=registry,
            options="{{ params | tojson }}",
            execution_timeout=get_timedelta("gc_timeout"),
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


def common_settings() -> dict[str, Any]:
    """Return what all DAGs have in common."""
    owner, link = get_option("owner"), get_option("owner_link")
    return {
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
    params = {name: _option_param(default, form) for name, (default, form) in ordered}
    return {"tables": params.pop("tables"), "dry_run": _option_param(False, dry_run), **params}


def _option_param(default: Any, form: OptionForm) -> Param:
    schema: dict[str, Any] = {"title": form.title}
    if isinstance(default, tuple):
        default, schema["type"], schema["items"] = list(default), "array", {"type": "string"}
    elif isinstance(default, bool):
        schema["type"] = "boolean"
    elif isinstance(default, int):
        schema |= {"type": "integer", "minimum": 1}
    else:
        schema["type"] = "string"
    schema |= {"description_md": form.description} if form.description else {}
    schema |= {"section": form.section} if form.section else {}
    schema |= {"enum": list(form.choices)} if form.choices else {}
    return Param(default, **schema)


def _gc_params(keep: str, grace: str) -> dict[str, Param]:
    pattern = "^[1-9][0-9]{0,8}[smhdw]$"
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description_md="Only log what would be deleted.",
        ),
        "keep": Param(
            keep,
            type="string",
            pattern=pattern,
            title="Keep",
            description_md="What heads of the replica branch that are no older than this reach stays.",
        ),
        "grace": Param(
            grace,
            type="string",
            pattern=pattern,
            title="Grace",
            description_md="How long a file has to be unreachable: longer than any run or query takes, 1h at least.",
        ),
        "evict": Param(
            False,
            type="boolean",
            title="Evict",
            description_md="Files of tables that policies or residency refuse go at once.",
        ),
    }
