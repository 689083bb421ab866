"""Plans and reports of compaction, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

APP_ID: Final = "sterna-upkeep"
"""The `app-id` of maintenance's commits to `main`."""
RUN_PROPERTY: Final = "sterna.upkeep"
"""In the summary of maintenance's snapshots: the run."""
REGION_PROPERTY: Final = "sterna.upkeep-region"
"""In the summary of maintenance's snapshots: the region whose files were rewritten."""
PRICE_PROPERTY: Final = "sterna.upkeep-price"
"""In the summary of maintenance's snapshots: what shipping what was written will cost."""

DUE: Final = "now"
TOO_RECENT: Final = "quiet"
OVER_BUDGET: Final = "price"


@dataclass(frozen=True)
class LiveFile:
    """A data file of a table's current snapshot.

    Args:
        path: its URI.
        size: in bytes.
        rows: how many it has.
        column_bytes: bytes of its columns; -1 where the manifest has no sizes.
        spec_id: its partition spec.
        partition: as text.
        region: of its location.
        location: the id of its location.
        deleted_ratio: the share of its rows that delete files remove.
        last_changed_ms: when it, or deletes for it, were written, in milliseconds since 1970; sterna's
            maintenance doesn't count.
        written_ms: when it was written itself, or later where the snapshot that added it has expired; 0 by a rewrite.
    """

    path: str
    size: int
    rows: int
    column_bytes: int
    spec_id: int
    partition: str
    region: str
    location: str
    deleted_ratio: float
    last_changed_ms: int
    written_ms: int = 0


@dataclass(frozen=True)
class Group:
    """Files of one partition and region that a run makes fewer.

    Args:
        region: where they are stored, and the new ones will be.
        partition: as text, "" where there is none.
        spec_id: their partition spec.
        files: how many they are.
        new_files: how many files they become.
        new_bytes: about how large these are: what every other region gets again.
        shipped: by region, the bytes that it gets again.
        price: of that, by the registry.
        when: `now`, `quiet` (written too recently) or `price` (beyond what a day may cost).
        paths: URIs of the files.
        into: the URI prefix below which the new ones are written; "": the table's own data path.
    """

    region: str
    partition: str
    spec_id: int
    files: int
    bytes: int
    new_files: int
    new_bytes: int
    shipped: dict[str, int]
    price: float
    when: str = DUE
    paths: frozenset[str] = frozenset()
    into: str = ""


@dataclass(frozen=True)
class TablePlan:
    """What maintenance would do to one table.

    Args:
        table: key name.
        snapshot: the current one, None where there is none.
        files: data files of the current snapshot.
        small: how many of them are smaller than they should be.
        delete_files: files of deletes of the current snapshot.
        manifests: of the current snapshot.
        snapshots: that the table keeps.
        groups: what is rewritten, now or later.
        merge_manifests: the manifests are so many that they should be rewritten.
        merge_deletes: the same for files of deletes.
        manifests_price: what shipping rewritten manifests costs, where they should be.
        deletes_price: the same for files of deletes.
        home: the region that stores the table's metadata.
        left: what is not rewritten, and why.
        unwritten: the regions with groups that a run couldn't write, and that none tries yet.
        starved: the regions with files that are enough for a rewrite, and never old enough for one.
    """

    table: str
    snapshot: int | None = None
    files: int = 0
    small: int = 0
    delete_files: int = 0
    manifests: int = 0
    snapshots: int = 0
    groups: tuple[Group, ...] = ()
    merge_manifests: bool = False
    merge_deletes: bool = False
    manifests_price: float = 0.0
    deletes_price: float = 0.0
    home: str = ""
    left: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    starved: tuple[str, ...] = ()

    def due_groups(self, region: str = "") -> tuple[Group, ...]:
        """Return the groups that a run rewrites; of one region, where that is named."""
        return tuple(group for group in self.groups if group.when == DUE and region in ("", group.region))


@dataclass(frozen=True)
class Budget:
    """What one rule has spent of its daily budget.

    Args:
        match: the rule's patterns.
        per_day: what it may cost; None: no limit.
        spent: by maintenance's commits of the last 24 hours.
    """

    match: tuple[str, ...]
    per_day: float | None
    spent: float

    @property
    def remaining(self) -> float | None:
        """What may still be spent; None: no limit."""
        return None if self.per_day is None else self.per_day - self.spent


@dataclass(frozen=True)
class MaintenancePlan:
    """What maintenance would do to `main`.

    Args:
        source_hash: the commit of `main` that was read.
        tables: those that a rule matches.
        money: of each rule with a limit.
    """

    source_hash: str
    tables: tuple[TablePlan, ...]
    money: tuple[Budget, ...] = ()


@dataclass(frozen=True)
class Amounts:
    """Files, bytes and their price: planned, or as they happened."""

    files: int = 0
    bytes: int = 0
    price: float = 0.0

    def __add__(self, other: Amounts) -> Amounts:
        """Return the sum."""
        return Amounts(self.files + other.files, self.bytes + other.bytes, self.price + other.price)


@dataclass(frozen=True)
class TableReport:
    """What a run did to one table.

    Args:
        table: key name.
        groups: how many groups were committed.
        conflicts: how many were discarded, since rows of them were deleted meanwhile.
        replaced: files and bytes that were replaced.
        planned: the plan's estimate for the groups that were committed.
        manifests: how many there were and are, where they were rewritten.
        deletes: the same for delete files.
        left: what was not rewritten, and why.
        failed: what went wrong, or "".
    """

    table: str
    groups: int = 0
    conflicts: int = 0
    replaced: Amounts = Amounts()
    planned: Amounts = Amounts()
    written: Amounts = Amounts()
    manifests: tuple[int, int] | None = None
    deletes: tuple[int, int] | None = None
    left: tuple[str, ...] = ()
    failed: str = ""

    @property
    def starved(self) -> bool:
        """Whether all that was rewritten of it was discarded."""
        return bool(self.conflicts) and not self.groups


@dataclass(frozen=True)
class MaintenanceReport:
    """What a run did.

    Args:
        region: the region whose files it rewrote.
        run_id: of the run; in the summary of the snapshots that it created.
        dry_run: nothing was changed.
        plan: what it began with.
    """

    region: str
    run_id: str
    dry_run: bool
    plan: MaintenancePlan
    tables: tuple[TableReport, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The tables that failed in this run, or in an earlier one whose groups still can't be written."""
        if self.dry_run:
            return ()
        failed = {table.table for table in self.tables if table.failed}
        return tuple(sorted(failed | {table.table for table in self.plan.tables if self.region in table.unwritten}))

    @property
    def starved(self) -> tuple[str, ...]:
        """The tables whose files in the region are not rewritten, since other writers change them all the time."""
        if self.dry_run:
            return ()
        starved = {table.table for table in self.tables if table.starved}
        return tuple(sorted(starved | {table.table for table in self.plan.tables if self.region in table.starved}))
