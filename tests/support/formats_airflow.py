"""What `docs/formats.md` lists of Airflow's database: ids and names that runs, schedules and URLs of pages have.

Spelled out, as the page needs no Airflow; `tests/unit/airflow/test_written_airflow.py` compares it with the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TASKS: Mapping[str, Sequence[str]] = {
    "sterna_cdc": ("follow",),
    "sterna_features": ("materialize", "look", "watcher"),
    "sterna_flows": ("follow",),
    "sterna_gc": ("gc",),
    "sterna_ingest": ("work_1",),
    "sterna_lag_alert": ("lag",),
    "sterna_large": ("plan", "copy", "localize", "arrive"),
    "sterna_pause": ("change",),
    "sterna_promote": ("look", "approve", "promote"),
    "sterna_repair": ("repair",),
    "sterna_sync": ("plan", "copy", "localize", "publish", "announce", "linger"),
    "sterna_upkeep": ("plan", "run", "expire", "sweep", "watcher"),
    "sterna_verify": ("verify",),
}
"""By the DAG's id, its tasks in their order; `linger` is there where that is set, `work_2` with two workers."""

PARAMETERS: Mapping[str, Sequence[str]] = {
    "sterna_gc": ("dry_run", "keep", "grace", "evict"),
    "sterna_pause": ("tables", "action", "reason"),
    "sterna_promote": ("planned", "lost"),
    "sterna_repair": ("tables", "deep", "dry_run"),
    "sterna_sync": (
        *("tables", "dry_run", "everything", "reassert", "lane", "bytes_per_batch", "files_per_batch"),
        "seed_group",
    ),
    "sterna_upkeep": ("tables", "dry_run"),
    "sterna_verify": ("tables", "deep", "sample"),
}
"""By the DAG's id; a run's configuration has them."""

SYNC_OPTIONS: Sequence[str] = (
    *("tables", "everything", "reassert", "reseed_from", "generation", "bytes_per_batch", "files_per_batch"),
    *("seed_group", "lane", "dry_run"),
)
"""What `options` of operators may have."""

ASSETS: Sequence[str] = ("sterna://eu/main", "sterna://eu/transit", "sterna://eu/", "sterna://eu/shop.orders")
ALIASES: Sequence[str] = ("sterna",)
WATCHERS: Sequence[str] = ("sterna_eu",)
XCOMS: Sequence[str] = ("run", "promotion", "sent_bytes")
TRIGGERS: Mapping[str, Sequence[str]] = {
    "sterna.airflow.triggers.NessieCommitTrigger": ("region", "registry", "poll_interval"),
}

GROUPS: Mapping[str, Sequence[str]] = {
    **{f"Tasks of the DAG `{dag}`": tasks for dag, tasks in TASKS.items()},
    **{f"Parameters of the DAG `{dag}`": names for dag, names in PARAMETERS.items()},
    "Options of a sync in Airflow": SYNC_OPTIONS,
    "Assets": ASSETS,
    "Aliases of assets": ALIASES,
    "Watchers of assets": WATCHERS,
    "Keys of XComs beside `return_value`": XCOMS,
    **{f"Arguments of the trigger `{path}`": names for path, names in TRIGGERS.items()},
}
