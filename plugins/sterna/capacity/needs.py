"""What a region needs to keep up with a load, and to be seeded; pure arithmetic over measured costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sterna.capacity.model import DAY, Capacity, Costs, Limits, Load, Need

_ROUNDS = 200
_MEASURED, _ASSUMED = Costs(), Limits()


def capacity(load: Load, costs: Costs = _MEASURED, limits: Limits = _ASSUMED) -> Capacity:
    """Return what one region needs.

    Args:
        load: what goes on.
        costs: of one piece of work.
        limits: where a part of the system ends.
    """
    return Capacity(load, _steady(load, costs, limits), _seed(load, costs, limits))


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
    def busy(self) -> float:
        """The share of the time in which a sync is at work."""
        return min(1.0, self.sync * self.syncs) if self.syncs else 0.0

    @property
    def changes(self) -> float:
        """Tables brought a second."""
        return self.tables * self.syncs


def pace(load: Load, costs: Costs = _MEASURED) -> Pace:
    """Return how the small lane goes on.

    A sync brings all tables that changed while the one before it ran. A table that changed twice is brought once, so
    its time is bounded by that of all tables together, as long as their files can be copied.
    """
    alone = sync_seconds(1, load.commit_files, load, costs)
    if load.commits * alone <= 1:
        busy = load.commits * alone
        return Pace(alone, load.commits, 1, _lag(alone, busy, costs))
    if load.commits * load.commit_files * _file_seconds(load, costs) >= 1:
        return Pace(math.inf, 0, load.tables, math.inf)
    seconds, tables = alone, 1.0
    for _ in range(_ROUNDS):
        files = max(1.0, load.commits * seconds) * load.commit_files
        tables = max(1.0, changed_tables(load, seconds))
        seconds = sync_seconds(tables, files, load, costs)
    return Pace(seconds, 1 / seconds, tables, _lag(seconds, 1.0, costs))


def changed_tables(load: Load, seconds: float) -> float:
    """Return how many tables change within some seconds, commits falling on all of them alike."""
    return load.tables * -math.expm1(-load.commits * seconds / load.tables)


def sync_seconds(tables: float, files: float, load: Load, costs: Costs = _MEASURED) -> float:
    """Return how long a sync takes that brings so many changed tables, and so many new files in all regions."""
    table = costs.table_seconds + costs.snapshot_seconds * load.snapshots
    return costs.sync_seconds + tables * table + files * _file_seconds(load, costs)


def _file_seconds(load: Load, costs: Costs) -> float:
    copied = max(costs.copy_file_seconds, load.file_bytes / min(costs.copy_bytes, load.link_bytes))
    return load.foreign * (costs.plan_seconds + costs.localize_core_seconds + copied)


def _lag(seconds: float, busy: float, costs: Costs) -> float:
    """Return the mean lag: an idle lane looks for commits now and then, and a busy one ends its sync first."""
    return (1 - busy) * costs.poll_seconds / 2 + busy * seconds / 2 + seconds


def _steady(load: Load, costs: Costs, limits: Limits) -> tuple[Need, ...]:
    at = pace(load, costs)
    arriving = load.commits * load.commit_files * load.foreign
    received = arriving * load.file_bytes + at.changes * load.snapshots * costs.snapshot_bytes * load.foreign
    copies = arriving * costs.file_requests / 2
    here = at.syncs * costs.sync_requests + at.changes * costs.table_requests + copies
    calls = at.syncs * costs.sync_calls + at.changes * costs.table_calls
    cores = received / costs.copy_bytes + arriving * costs.localize_core_seconds
    prefixes = "more prefixes: a location a group of tables"
    return (
        Need("tables that a sync brings", at.tables, "tables"),
        Need("a sync", at.sync, "s"),
        Need("small lane at work", at.busy * 100, "% of the time"),
        Need("lag, in the mean", at.lag, "s", limits.lag_seconds, "fewer snapshots a table, larger and fewer commits"),
        Need("commits on main", load.commits, "a second", limits.main_commits, "larger and fewer commits"),
        Need("catalog calls", calls, "a second", limits.catalog_calls, "more Nessie processes on this region's copy"),
        Need("requests to this region's store", here, "a second", limits.store_requests, prefixes),
        Need(
            "requests to a store of origin, by all regions",
            at.changes * costs.source_requests * load.foreign + copies,
            "a second",
            limits.store_requests,
            prefixes,
        ),
        Need("received", received / 1e6, "MB a second", load.link_bytes / 1e6, "a wider link; rewrite less"),
        Need("egress paid", received * DAY / 1e9 * load.egress_per_gb, "a day"),
        Need("cores for copying and localizing", cores, "cores"),
        Need("evidence written", at.syncs * costs.evidence_bytes * DAY / 1e9, "GB a day, until a clean-up"),
    )


def _seed(load: Load, costs: Costs, limits: Limits) -> tuple[Need, ...]:
    files = load.files * load.foreign
    link = files * load.file_bytes / load.link_bytes
    one_machine = max(files * costs.copy_file_seconds, files * load.file_bytes / costs.copy_bytes)
    metadata = load.files * (costs.plan_seconds + costs.localize_core_seconds / 2)
    return (
        Need("copied by the seed", files * load.file_bytes / 1e12, "TB"),
        Need("seed, by the link", link / DAY, "days", limits.seed_days, "a wider link, or copy the stores beforehand"),
        Need("seed, by one copying machine", one_machine / DAY, "days", limits.seed_days, "more Airflow workers"),
        Need("plan and localize of the seed", metadata / 3600, "hours on two cores"),
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
