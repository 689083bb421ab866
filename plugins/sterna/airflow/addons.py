"""The add-ons that Airflow runs, as a table: their sections of the services file, their DAGs, and what the tasks do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from airflow.sdk import Param

from sterna.airflow import steps
from sterna.airflow.params import option_param
from sterna.airflow.settings import get_option, get_patterns
from sterna.replication.plan.options import OptionForm

if TYPE_CHECKING:
    from sterna.config.sections.model import Services

PROMOTE_DAG_ID: Final = "sterna_promote"
"""The DAG that makes a region the primary; without catalogs of regions' own it has nothing to do."""
AddonName = Literal["cdc", "features", "gc", "ingest", "maintenance", "pause", "repair", "transforms", "verify"]

_CDC_DOC = """\
### Follow databases, for region `{region}`

Changes of their rows are applied to tables on `main`: complete transactions, each change once. The run continues for
`[sterna] cdc_follow_for`, with the reading engine and Spark warm.

Section `cdc` of the services file lists the databases. Without one for this region the task is skipped.

**When it fails**: a source needs an operator. The reason is in the log, and in `sterna cdc status`. The others have
continued. For what to do see docs/operations.md, *By what you see*.
"""

_FEATURES_DOC = """\
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

_GC_DOC = """\
### Clean up below the replica root of region `{region}`

Deletes what no kept head of the region's replica branch reaches: a file is deleted when passes at least `grace` apart
found it unreachable. Safe beside syncs, which wait for half a minute at most. Unpause it where a replica should not
keep everything for ever.

**By hand**: *Trigger* offers a dry run (the log shows what would be deleted), other limits, and `evict`: files of
tables that policies or residency refuse are deleted at once.

**When it fails**: nothing that readers need was deleted, and the next run continues.
"""

_INGEST_DOC = """\
### Publish the ingested files of region `{region}` on `main`

Each task is a worker: it takes closed batches, one after another, and publishes each on `main` once, as few files near
the writer. It runs for `[sterna] ingest_follow_for`. Workers share the work by the tracker's queue, and any of them may
be killed: another one continues.

Without `ingest` for this region in the services file it does nothing.

**When it fails**: a batch needs an operator. The reason is in the log, and in the tracker. For what to do see
docs/operations.md, *By what you see*.
"""

_MAINTENANCE_DOC = """\
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

_PAUSE_DOC = """\
### Pause single tables of region `{region}`

Keeps tables and views as they are in this region, whatever `main` does, or lets them be replicated again. What was
committed together with a paused table waits with it. A resumed table starts a run of the sync.

**By hand**: *Trigger* asks for the tables, whether to pause or to resume them, and why.

**When it fails**: a name is wrong, or the region's store doesn't answer; the log says which. A table that is paused for
longer than the alert's limit is an alarm.
"""

_REPAIR_DOC = """\
### Repair the replica of region `{region}`

Verifies it, restores faulty and missing files below the replica root from `main`, and verifies again, until nothing
more can be done. Readers go on meanwhile. A sync that was planned before ends as superseded.

**By hand**: *Trigger* offers a choice of tables, a dry run (the log shows which files would be restored, from where),
and *Deep*, which also finds a flipped byte. With *Deep* `main` counts as the truth: see the dry run first.

**When it fails**: faults are left, and the log says why each stays. For what to do see docs/procedures.md, *Repairing a
replica*.
"""

_TRANSFORMS_DOC = """\
### Transform tables, from the replica of region `{region}`

Each step reads what changed in a transform's source since the last one, from the region's replica, and publishes the
result on `main`, once. The run continues for `[sterna] transforms_follow_for` with Spark warm. Without changes it
starts no Spark.

Section `transforms` of the services file defines them. Without one the task is skipped. It may run in
several regions at once.

**When it fails**: a transform needs an operator. The reason is in the log, and in `sterna transforms status`. The
others have continued. For what to do see docs/operations.md, *By what you see*.
"""

_VERIFY_DOC = """\
### Verify the replica of region `{region}`

Checks what the replica branch reaches now, and changes nothing: every path is in this region, exists, has its size, and
what names it agrees.

**By hand**: *Trigger* offers a choice of tables, and to compare files with those on `main` that they were made from:
all (*Deep*), or a share that is another one each day (*Sample*). That reads the stores of other regions.

**When it fails**: the replica has faults, and the log names each. A dry run of the DAG that repairs shows which files
it would restore. For what to do see docs/procedures.md, *Verifying a replica*.
"""


@dataclass(frozen=True)
class Step:
    """A task of an add-on's DAG, behind the one before it.

    Args:
        run: runs it, for the operator's `follow_for`.
        follows: whether the DAG's `follow_for` is for it.
        trigger_rule: as Airflow names it.
        timeout: the option with the seconds that it may take beyond that; "" for `[sterna] <add-on>_timeout`.
        starts_sync: whether it may start a run of the sync.
    """

    run: Callable[[steps.StepOperator, Services], steps.Outcome]
    follows: bool = False
    trigger_rule: str = "all_success"
    timeout: str = ""
    starts_sync: bool = False


@dataclass(frozen=True)
class Addon:
    """An add-on.

    Args:
        dag_id: the id of its DAG.
        doc: what Airflow shows beside that; `{region}` is the region's name.
        steps: by the tasks' ids, in their order.
        section: what the services file has to have, for messages; `{region}` as above.
        is_on: whether the services file has it for a region.
        has_names: whether it takes names of sources, transforms or views.
        tables: tables that start a run by default when they become fresh in the region, none: any does; None: the
            clock alone starts runs.
        params: parameters of the DAG, by which the steps get their options.
        by_hand: it runs when somebody starts it, and never else; so it isn't paused when it is new.
    """

    dag_id: str
    doc: str
    steps: Mapping[str, Step]
    section: str = ""
    is_on: Callable[[Services, str], bool] = lambda services, region: True
    has_names: bool = False
    tables: Callable[[], Sequence[str]] | None = None
    params: Callable[[], dict[str, Param]] = dict
    by_hand: bool = False


_ANY_TABLES = OptionForm("Tables", "Names or patterns such as `sales.*`; none: all of the replica.")


def _gc_params() -> dict[str, Param]:
    pattern = "^[1-9][0-9]{0,8}[smhdw]$"
    keep = OptionForm("Keep", "What heads of the replica branch that are no older than this reach stays.")
    grace = "How long a file has to be unreachable: longer than any run or query takes, 1h at least."
    evict = OptionForm("Evict", "Files of tables that policies or residency refuse go at once.")
    return {
        "dry_run": option_param(False, OptionForm("Dry run", "Only log what would be deleted.")),
        "keep": option_param(get_option("gc_keep"), keep, pattern=pattern),
        "grace": option_param(get_option("gc_grace"), OptionForm("Grace", grace), pattern=pattern),
        "evict": option_param(False, evict),
    }


def _maintenance_params() -> dict[str, Param]:
    tables = OptionForm("Tables", "Names or patterns such as `sales.*`; none: all that have a rule.")
    dry_run = OptionForm("Dry run", "Only show, in the log of `plan`, what it would do.")
    return {"tables": option_param((), tables), "dry_run": option_param(False, dry_run)}


def _pause_params() -> dict[str, Param]:
    tables = OptionForm("Tables", "Tables and views, as the catalog names them.")
    action = OptionForm("Action", "`pause` keeps them as they are, until `resume`.", choices=steps.PAUSE_ACTIONS)
    return {
        "tables": option_param((), tables, minItems=1),
        "action": option_param(steps.PAUSE_ACTIONS[0], action),
        "reason": option_param("", OptionForm("Reason", "Status and alarms show it.")),
    }


def _verify_params() -> dict[str, Param]:
    deep = OptionForm("Deep", "Compare every file with its source on `main`, too, whatever the sample is.")
    sample = OptionForm("Sample", "Compare a share of the files, another one each day: `1/30`. Empty: none.")
    return {
        "tables": option_param((), _ANY_TABLES),
        "deep": option_param(False, deep),
        "sample": option_param(get_option("verify_sample"), sample, pattern="^([0-9]{1,9}/[0-9]{1,9})?$"),
    }


def _repair_params() -> dict[str, Param]:
    deep = OptionForm("Deep", "Compare every file with its source on `main`, too: finds a flipped byte.")
    dry_run = OptionForm("Dry run", "Only show, in the log, which files would be restored.")
    return {
        "tables": option_param((), _ANY_TABLES),
        "deep": option_param(False, deep),
        "dry_run": option_param(False, dry_run),
    }


ADDONS: Final[Mapping[AddonName, Addon]] = {
    "cdc": Addon(
        "sterna_cdc",
        _CDC_DOC,
        {"follow": Step(steps.capture_changes, follows=True)},
        "source in cdc.sources for this region",
        lambda services, region: any(source.region == region for source in services.cdc.sources),
        has_names=True,
    ),
    "features": Addon(
        "sterna_features",
        _FEATURES_DOC,
        {
            "materialize": Step(steps.materialize_views, follows=True),
            "look": Step(steps.check_views, trigger_rule="all_done"),
        },
        "features.online.{region}",
        lambda services, region: services.features is not None and region in services.features.online,
        has_names=True,
        tables=tuple,
    ),
    "gc": Addon("sterna_gc", _GC_DOC, {"gc": Step(steps.collect_garbage)}, params=_gc_params),
    "ingest": Addon(
        "sterna_ingest",
        _INGEST_DOC,
        {"work": Step(steps.publish_batches, follows=True)},
        "ingest.regions.{region}",
        lambda services, region: services.ingest is not None and region in services.ingest.regions,
    ),
    "maintenance": Addon(
        "sterna_upkeep",
        _MAINTENANCE_DOC,
        {
            "plan": Step(steps.plan_tables, timeout="plan_timeout"),
            "run": Step(steps.rewrite_files),
            # They remove what a compaction replaced. A table's failure in `run` delays no other's expiry, and the sweep
            # also reports a region that expiry has to wait for.
            "expire": Step(steps.expire_tables, trigger_rule="none_skipped"),
            "sweep": Step(steps.sweep_orphans, trigger_rule="none_skipped"),
        },
        "section maintenance",
        lambda services, region: services.maintenance is not None,
        params=_maintenance_params,
    ),
    "pause": Addon(
        "sterna_pause",
        _PAUSE_DOC,
        {"change": Step(steps.change_pauses, timeout="plan_timeout", starts_sync=True)},
        params=_pause_params,
        by_hand=True,
    ),
    "repair": Addon(
        "sterna_repair", _REPAIR_DOC, {"repair": Step(steps.repair_replica)}, params=_repair_params, by_hand=True
    ),
    "transforms": Addon(
        "sterna_flows",
        _TRANSFORMS_DOC,
        {"follow": Step(steps.transform_tables, follows=True)},
        "section transforms",
        lambda services, region: bool(services.transforms),
        has_names=True,
        tables=partial(get_patterns, "transforms_sources"),
    ),
    "verify": Addon("sterna_verify", _VERIFY_DOC, {"verify": Step(steps.verify_replica)}, params=_verify_params),
}
"""By the names that `addon_dag` takes; each has `[sterna] <name>_timeout`, and maybe `_schedule` and `_follow_for`."""
