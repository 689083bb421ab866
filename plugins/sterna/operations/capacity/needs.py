"""What a region needs to keep up with a load, and to be seeded; pure arithmetic over measured costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sterna.operations.capacity.model import DAY_SECONDS, Capacity, Costs, Limits, Load, Need

_ITERATIONS = 200
_MEASURED_COSTS, _ASSUMED_LIMITS = Costs(), Limits()


def capacity(load: Load, costs: Costs = _MEASURED_COSTS, limits: Limits = _ASSUMED_LIMITS) -> Capacity:
    """Return what one region needs.

    Args:
        load: what goes on.
        costs: of one piece of work.
        limits: where a part of the system ends.
    """
    return Capacity(load, _steady_needs(load, costs, limits), _seed_needs(load, costs, limits))


@dataclass(frozen=True)
class Pace:
    """How the small lane goes on under a load.

    Args:
        sync: how long one sync takes, in seconds; infinite: files come faster than they can be copied.
        syncs: syncs a second.
        tables: changed tables that one sync brings.
        lag: from a commit until it can be read here, in the mean, in seconds.
    """

    sync: float
    syncs: float
    tables: float
    lag: float

    @property
    def utilization(self) -> float:
        """The share of the time in which a sync is at work."""
        return min(1.0, self.sync * self.syncs) if self.syncs else 0.0

    @property
    def changes(self) -> float:
        """Tables brought a second."""
        return self.tables * self.syncs


def pace(load: Load, costs: Costs = _MEASURED_COSTS) -> Pace:
    """Return how the small lane goes on.

    A sync brings all tables that changed while the one before it ran. A table that changed twice is brought once, so
    its time is bounded by that of all tables together, as long as their files can be copied.
    """
    single_sync_seconds = sync_seconds(1, load.commit_files, load, costs)
    if load.commits * single_sync_seconds <= 1:
        utilization = load.commits * single_sync_seconds
        return Pace(single_sync_seconds, load.commits, 1, _mean_lag(single_sync_seconds, utilization, costs))
    if load.commits * load.commit_files * _file_seconds(load, costs) >= 1:
        return Pace(math.inf, 0, load.tables, math.inf)
    seconds, tables = single_sync_seconds, 1.0
    for _ in range(_ITERATIONS):
        files = max(1.0, load.commits * seconds) * load.commit_files
        tables = max(1.0, changed_tables(load, seconds))
        seconds = sync_seconds(tables, files, load, costs)
    return Pace(seconds, 1 / seconds, tables, _mean_lag(seconds, 1.0, costs))


def changed_tables(load: Load, seconds: float) -> float:
    """Return how many tables change within some seconds, commits falling on all of them alike."""
    return load.tables * -math.expm1(-load.commits * seconds / load.tables)


def sync_seconds(tables: float, files: float, load: Load, costs: Costs = _MEASURED_COSTS) -> float:
    """Return how long a sync takes that brings so many changed tables, and so many new files in all regions."""
    table = costs.table_seconds + costs.snapshot_seconds * load.snapshots
    return costs.sync_seconds + tables * table + files * _file_seconds(load, costs)


def _file_seconds(load: Load, costs: Costs) -> float:
    copied = max(costs.copy_file_seconds, load.file_bytes / min(costs.copy_bytes, load.link_bytes))
    return load.foreign_share * (costs.plan_seconds + costs.localize_core_seconds + copied)


def _mean_lag(seconds: float, utilization: float, costs: Costs) -> float:
    """Return the mean lag: an idle lane looks for commits now and then, and a busy one ends its sync first."""
    return (1 - utilization) * costs.poll_seconds / 2 + utilization * seconds / 2 + seconds


def _steady_needs(load: Load, costs: Costs, limits: Limits) -> tuple[Need, ...]:
    steady_pace = pace(load, costs)
    files_per_second = load.commits * load.commit_files * load.foreign_share
    bytes_per_second = (
        files_per_second * load.file_bytes
        + steady_pace.changes * load.snapshots * costs.snapshot_bytes * load.foreign_share
    )
    copy_requests = files_per_second * costs.file_requests / 2
    store_requests = (
        steady_pace.syncs * costs.sync_requests + steady_pace.changes * costs.table_requests + copy_requests
    )
    catalog_calls = steady_pace.syncs * costs.sync_calls + steady_pace.changes * costs.table_calls
    cores = bytes_per_second / costs.copy_bytes + files_per_second * costs.localize_core_seconds
    remedy = "more prefixes: a location a group of tables"
    return (
        Need("tables that a sync brings", steady_pace.tables, "tables"),
        Need("a sync", steady_pace.sync, "s"),
        Need("small lane at work", steady_pace.utilization * 100, "% of the time"),
        Need(
            "lag, in the mean",
            steady_pace.lag,
            "s",
            limits.lag_seconds,
            "fewer snapshots a table, larger and fewer commits",
        ),
        Need("commits on main", load.commits, "a second", limits.main_commits, "larger and fewer commits"),
        Need(
            "catalog calls",
            catalog_calls,
            "a second",
            limits.catalog_calls,
            "more Nessie processes on this region's copy",
        ),
        Need("requests to this region's store", store_requests, "a second", limits.store_requests, remedy),
        Need(
            "requests to a store of origin, by all regions",
            steady_pace.changes * costs.source_requests * load.foreign_share + copy_requests,
            "a second",
            limits.store_requests,
            remedy,
        ),
        Need("received", bytes_per_second / 1e6, "MB a second", load.link_bytes / 1e6, "a wider link; rewrite less"),
        Need("egress paid", bytes_per_second * DAY_SECONDS / 1e9 * load.egress_per_gb, "a day"),
        Need("cores for copying and localizing", cores, "cores"),
        Need(
            "evidence written",
            steady_pace.syncs * costs.evidence_bytes * DAY_SECONDS / 1e9,
            "GB a day, until a clean-up",
        ),
    )


def _seed_needs(load: Load, costs: Costs, limits: Limits) -> tuple[Need, ...]:
    files = load.files * load.foreign_share
    link_seconds = files * load.file_bytes / load.link_bytes
    copy_seconds = max(files * costs.copy_file_seconds, files * load.file_bytes / costs.copy_bytes)
    metadata_seconds = load.files * (costs.plan_seconds + costs.localize_core_seconds / 2)
    return (
        Need("copied by the seed", files * load.file_bytes / 1e12, "TB"),
        Need(
            "seed, by the link",
            link_seconds / DAY_SECONDS,
            "days",
            limits.seed_days,
            "a wider link, or copy the stores beforehand",
        ),
        Need(
            "seed, by one copying machine", copy_seconds / DAY_SECONDS, "days", limits.seed_days, "more Airflow workers"
        ),
        Need("plan and localize of the seed", metadata_seconds / 3600, "hours on two cores"),
        Need(
            "memory of the largest table's plan",
            (costs.plan_base_bytes + min(load.largest, costs.plan_files) * costs.plan_bytes) / 1e9,
            "GB",
            limits.process_bytes / 1e9,
            "a larger task",
        ),
        Need("verify --structure of everything", load.files * costs.verify_seconds / 3600, "hours"),
        Need("egress paid for the seed", files * load.file_bytes / 1e9 * load.egress_per_gb, "once"),
    )
