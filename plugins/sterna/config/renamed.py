"""The names that version 0.1 had, and the new ones: no alias is read, an old name is refused with the new one.

The tables in CHANGELOG.md are held to these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "collect": "gc",
    "hold": "pin",
    "upkeep": "maintenance",
    "flow": "transforms",
    "reseed": "reset-watermark",
    "catalog reseed": "catalog resync",
}
"""Commands, and groups of them, below `sterna`. `reset-watermark` also has `--to` for `--from`."""

FLAGS: Final[Mapping[str, str]] = {
    "--everything": "--full",
    "--reassert": "--restore-branch",
    "--relocalize": "--rewrite-metadata",
    "--most-bytes": "--max-bytes",
    "--most-files": "--max-files",
}
"""Flags of any command."""

REGISTRY_SETTINGS: Final[Mapping[str, str]] = {
    "regions.*.large_copy": "bulk_copy_threshold",
}
"""Settings of the registry: the old path, with `*` for a list's number or a mapping's key, and the new one's last
part."""

SERVICES_SETTINGS: Final[Mapping[str, str]] = {
    "maintenance.patience": "max_wait",
    "maintenance.without": "exclude_regions",
    "maintenance.heads": "keep_heads",
    "maintenance.reproduce": "time_travel",
    "maintenance.tables.*.quiet": "min_age",
    "features.views.*.reproduce": "time_travel",
    "features.views.*.late": "max_staleness",
    "sinks.*.give_up": "retry_timeout",
    "ingest.tenants.*.limits.at_once": "max_concurrency",
    "queries.limits.at_once": "max_concurrency",
    "outlets": "sinks",
    "upkeep": "maintenance",
    "flows": "transforms",
}
"""Settings of the services file, written as those of the registry, below sections that have their new names."""

AIRFLOW_OPTIONS: Final[Mapping[str, str]] = {
    "allow_held": "ignore_held",
    "linger": "follow_for",
    "ingest_linger": "ingest_follow_for",
    "cdc_linger": "cdc_follow_for",
    "flows_linger": "transforms_follow_for",
    "features_linger": "features_follow_for",
    "upkeep_schedule": "maintenance_schedule",
    "upkeep_timeout": "maintenance_timeout",
    "flows_sources": "transforms_sources",
    "flows_timeout": "transforms_timeout",
}
"""Options of section [sterna] in Airflow's configuration."""

METRICS: Final[Mapping[str, str]] = {
    "sterna_catalog_looks_total": "sterna_catalog_polls_total",
    "sterna_resets_total": "sterna_client_resets_total",
    "sterna_ring_events": "sterna_buffered_events",
    "sterna_outlet_delivered_total": "sterna_sink_delivered_total",
    "sterna_outlet_dead_total": "sterna_sink_dead_letters_total",
    "sterna_outlet_failures_total": "sterna_reconciler_failures_total",
    "sterna_outlet_resets_total": "sterna_sink_resets_total",
    "sterna_outlet_stepped_back_total": "sterna_sink_standby_total",
    "sterna_outlet_age_seconds": "sterna_reconciler_lag_seconds",
    "sterna_outlet_state": "sterna_sink_state",
    "sterna_outlet_unknown_tags": "sterna_sink_unknown_tags",
    "sterna_ingest_failures_total": "sterna_reconciler_failures_total",
    "sterna_ingest_oldest_seconds": "sterna_reconciler_lag_seconds",
    "sterna_features_told_total": "sterna_features_reads_total",
    "sterna_features_dark_total": "sterna_features_unavailable_total",
    "sterna.held_allowed_tables": "sterna.held_ignored_tables",
    "sterna.upkeep_waits_for": "sterna.maintenance_waits_for",
    "sterna.features_behind_seconds": "sterna.reconciler_lag_seconds",
    "sterna.features_alarm": "sterna.reconciler_blocked",
}
"""Metrics: of the gateway's `/metrics`, and of Airflow; the label `outlet` became `sink`, and `view` became `name`."""

PYTHON_NAMES: Final[Mapping[str, str]] = {
    "sterna.client.Figures": "sterna.client.QueryAnswer",
    "sterna.client.Memory": "sterna.client.CursorStore",
    "sterna.client.FileMemory": "sterna.client.FileCursorStore",
    "sterna.changes": "sterna.pipelines.changes",
    "sterna.changes.region.Asked": "sterna.pipelines.changes.region.ChangesRequest",
    "sterna.changes.region.arrow": "sterna.pipelines.changes.region.read_arrow",
    "sterna.features": "sterna.pipelines.features",
    "sterna.flows.sink": "sterna.pipelines.transforms.sink",
    "sterna.edges.secrets": "sterna.config.secrets",
    "sterna.replica.region": "sterna.replication.replica.region",
    "sterna.airflow.announcing": "sterna.airflow.operators",
    "sterna.airflow.core": "sterna.airflow.internals",
    "sterna.airflow.dags.large_dag": "sterna.airflow.dags.bulk_dag",
    "sterna.airflow.operators.SternaLingerOperator": "sterna.airflow.operators.SternaFollowOperator",
    "sterna.airflow.operators.SternaArriveOperator": "sterna.airflow.operators.SternaFinishBulkOperator",
    "sterna.airflow.cdc_operator.SternaCdcOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.cdc_operator.cdc_dag": "sterna.airflow.dags.addon_dag",
    "sterna.airflow.features_operator.SternaFeaturesOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.features_operator.SternaFeaturesLookOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.features_operator.SternaMaterializeOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.features_operator.features_dag": "sterna.airflow.dags.addon_dag",
    "sterna.airflow.flows_operator.SternaFlowsOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.flows_operator.flows_dag": "sterna.airflow.dags.addon_dag",
    "sterna.airflow.ingest_operator.SternaIngestOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.ingest_operator.ingest_dag": "sterna.airflow.dags.addon_dag",
    "sterna.airflow.ingest_add_operator": "sterna.airflow.ingest_operator",
    "sterna.airflow.operators.SternaGcOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.dags.gc_dag": "sterna.airflow.dags.addon_dag",
    "sterna.airflow.upkeep.SternaUpkeepPlanOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.upkeep.SternaUpkeepRunOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.upkeep.SternaUpkeepExpireOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.upkeep.SternaUpkeepSweepOperator": "sterna.airflow.reconcile.SternaReconcileOperator",
    "sterna.airflow.upkeep.upkeep_dag": "sterna.airflow.dags.addon_dag",
}
"""Public modules, classes and functions: what users' own code, notebooks and DAG files import."""


def find_renamed(path: Sequence[str | int], renamed: Mapping[str, str]) -> str:
    """Return the new name of a setting, "" where the old one isn't in the table.

    Args:
        path: the names and numbers that lead to the setting in its file.
        renamed: `REGISTRY_SETTINGS` or `SERVICES_SETTINGS`.
    """
    for pattern, name in renamed.items():
        parts = pattern.split(".")
        if len(parts) == len(path) and all(part in ("*", element) for part, element in zip(parts, path, strict=True)):
            return name
    return ""
