"""What a region needs to keep up with a load and to be seeded, and which limit it reaches first.

Pure arithmetic over measured unit costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from sterna.config.limits import MIB
from sterna.errors import UsageError

DAY_SECONDS = 86_400
_ITERATIONS = 200


@dataclass(frozen=True)
class Load:
    """The load, seen from one region.

    Args:
        tables: tables on `main`.
        files: live data files of all tables.
        largest: live data files of the largest table.
        file_bytes: bytes of a data file.
        commits: commits on `main` a second, one table each.
        commit_files: new data files of a commit.
        snapshots: snapshots that a table keeps on `main`.
        regions: other regions; each takes an equal share of the commits and files, as this one does.
        link_bytes: bytes a second that this region may receive.
        egress_per_gb: what a gigabyte from another region costs.

    Raises:
        UsageError: a number that nothing can have.
    """

    tables: float = 1_000
    files: float = 1_000_000
    largest: float = 100_000
    file_bytes: float = 64 * MIB
    commits: float = 1.0
    commit_files: float = 1.0
    snapshots: float = 100
    regions: float = 1
    link_bytes: float = 125e6
    egress_per_gb: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            minimum = 0 if field.name in ("commits", "commit_files", "egress_per_gb", "files", "largest") else 1
            if not minimum <= value < 1e18:
                raise UsageError(f"{field.name.replace('_', '-')} {value:g}: expected {minimum} or more")
        if self.largest > self.files:
            raise UsageError("the largest table can't have more files than all tables together")

    @property
    def foreign_share(self) -> float:
        """The share of files and commits that other regions have."""
        return self.regions / (self.regions + 1)


@dataclass(frozen=True)
class Costs:
    """What one piece of work costs, as measured on two cores of a machine that ran all servers as well.

    Args:
        sync_seconds: a sync, before its first table.
        table_seconds: one more table that changed in it, of one small file and few snapshots.
        snapshot_seconds: one more kept snapshot of such a table: it is part of metadata.json, which is read and
            written at each change.
        metadata_core_seconds: one more manifest entry, from its manifest on `main` to the replica's, over all cores.
        copy_file_seconds: one more copied file of a batch, at the default of 32 at once.
        copy_bytes: bytes a second through one copying machine.
        verify_seconds: a file in `verify --structure`.
        plan_bytes: memory of a planned file, where the plan's own process lists it.
        plan_files: new files of a table from about which on they are listed in parts, which no process holds: some
            128 MiB of manifests.
        plan_base_bytes: memory of a plan without files.
        snapshot_bytes: bytes of a snapshot in metadata.json.
        evidence_bytes: bytes of plan and report that a sync leaves.
        sync_calls, table_calls: requests to the catalog, a sync and a changed table.
        sync_requests, table_requests: requests to this region's store, a sync and a changed table.
        source_requests: requests to the store of origin, a changed table.
        file_requests: requests to both stores, a copied file.
        poll_seconds: between two polls of `main`.
    """

    sync_seconds: float = 0.30
    table_seconds: float = 0.04
    snapshot_seconds: float = 0.00095
    metadata_core_seconds: float = 41e-6
    copy_file_seconds: float = 1.69e-3
    copy_bytes: float = 67e6
    verify_seconds: float = 58.9e-6
    plan_bytes: float = 960
    plan_files: float = 1e6
    plan_base_bytes: float = 60 * MIB
    snapshot_bytes: float = 850
    evidence_bytes: float = 17_000
    sync_calls: float = 10
    table_calls: float = 0.2
    sync_requests: float = 20
    table_requests: float = 15
    source_requests: float = 6
    file_requests: float = 4
    poll_seconds: float = 1.0


@dataclass(frozen=True)
class Limits:
    """Where a part of the system ends; a need beyond it is where it breaks.

    Args:
        main_commits: commits a second that one catalog takes on one branch: measured with four writers, 200.
        catalog_calls: requests a second that a region's Nessie answers in some 4 ms a call on two cores.
        store_requests: requests a second that a store promises a prefix (S3: 5,500 reads).
        process_bytes: memory of one task.
        lag_seconds: the lag that is meant to hold.
        seed_days: how long a first seed may take.
    """

    main_commits: float = 200
    catalog_calls: float = 500
    store_requests: float = 5_500
    process_bytes: float = 4 * 1024 * MIB
    lag_seconds: float = 60
    seed_days: float = 30


@dataclass(frozen=True)
class Need:
    """One need of a region.

    Args:
        limit: where it ends; None: the model has no limit.
        remedy: what to do at the limit.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    remedy: str = ""

    @property
    def used(self) -> float | None:
        """The share of the limit that is used; above 1: it breaks."""
        return None if self.limit is None else self.value / self.limit


@dataclass(frozen=True)
class Capacity:
    """What a region needs.

    Args:
        load: the load that the needs are for.
        steady: what the commits need, all the time.
        seed: what the first copy of everything needs, once.
    """

    load: Load
    steady: tuple[Need, ...]
    seed: tuple[Need, ...]

    @property
    def first_to_break(self) -> tuple[Need, ...]:
        """What has a limit, the fullest first."""
        limited = [need for need in (*self.steady, *self.seed) if need.used is not None]
        return tuple(sorted(limited, key=lambda need: -(need.used or 0)))


_MEASURED_COSTS, _ASSUMED_LIMITS = Costs(), Limits()


def capacity(load: Load, costs: Costs = _MEASURED_COSTS, limits: Limits = _ASSUMED_LIMITS) -> Capacity:
    """Return what one region needs for a load, by the given unit costs and limits."""
    return Capacity(load, _steady_needs(load, costs, limits), _seed_needs(load, costs, limits))


@dataclass(frozen=True)
class Pace:
    """How a follower's syncs keep up with a load.

    Args:
        sync: how long one sync takes, in seconds; infinite: files come faster than they can be copied.
        syncs: syncs a second.
        tables: changed tables that one sync copies.
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
        """Tables copied a second."""
        return self.tables * self.syncs


def pace(load: Load, costs: Costs = _MEASURED_COSTS) -> Pace:
    """Return how a follower's syncs keep up.

    A sync copies all tables that changed while the one before it ran. A table that changed twice is copied once, so
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
    """Return how long a sync takes that copies some changed tables, and some new files in all regions."""
    table = costs.table_seconds + costs.snapshot_seconds * load.snapshots
    return costs.sync_seconds + tables * table + files * _file_seconds(load, costs)


def _file_seconds(load: Load, costs: Costs) -> float:
    copied = max(costs.copy_file_seconds, load.file_bytes / min(costs.copy_bytes, load.link_bytes))
    return load.foreign_share * (costs.metadata_core_seconds + copied)


def _mean_lag(seconds: float, utilization: float, costs: Costs) -> float:
    """Return the mean lag: an idle follower polls for commits, and a busy one ends its sync first."""
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
    cores = bytes_per_second / costs.copy_bytes + files_per_second * costs.metadata_core_seconds
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
    metadata_seconds = load.files * costs.metadata_core_seconds / 2
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
