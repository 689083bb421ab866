"""What is asked about, what one piece of work costs, and what a region needs for it; frozen data."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sterna.errors import UsageError

MIB = 1 << 20
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Load:
    """What goes on, seen from one region.

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
        snapshot_seconds: one more kept snapshot of such a table: it stands in metadata.json, which is read and written
            at each change.
        plan_seconds: one more file in a plan of many.
        localize_core_seconds: one more manifest entry localized, over all cores.
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
        poll_seconds: between two looks at `main`.
    """

    sync_seconds: float = 0.30
    table_seconds: float = 0.04
    snapshot_seconds: float = 0.00095
    plan_seconds: float = 15.2e-6
    localize_core_seconds: float = 36.4e-6
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
    """One line of the answer.

    Args:
        name: what is needed.
        value: how much.
        unit: of what.
        limit: where it ends; None: nowhere that the model knows.
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
        load: what was asked about.
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
