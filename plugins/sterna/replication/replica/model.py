"""The records that a run keeps beside the replica: its plan, its stages' reports, and its own report.

The plan is read by the stages that run it and by the explanation of it. The list of files is kept beside the plan as an
Arrow table (`sterna.replication.replica.file_list`), for it may have millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sterna.errors import SternaError, printable
from sterna.replication.replica.held import Held


@dataclass(frozen=True)
class Action:
    """One key to change on the replica branch.

    Args:
        key: key name.
        kind: content type, as the catalog spells it.
        change: what happens to the key.
        content: the catalog's JSON document to put (without id), "" for a drop.
        content_id: the id to put it with: the one that the replica branch gave; "" for none.
        renamed_from: the key name whose id this put has, or "".
        source: metadata location on `main`, or "".
        target: metadata location on the replica, or "".
        replaces: a Delete of the same key precedes the put: another table has the name now.
        clears: the key has content of another kind: its delete is a commit of its own, before the others.
        snapshot: id of the current snapshot on `main`, or None.
        previous: id of the snapshot that the replica shows of the same table until now, or None.
        operations: what was done between the two, each kind once; None when unknown.
        proven_by: URI of the localized metadata.json of the version that proves what the plan's list of files leaves
            out. "" where nothing is left out; None where the region keeps no verbatim copies, in plans of older
            versions, and of what is no table.
    """

    key: str
    kind: str
    change: Literal["put", "drop"]
    content: str = ""
    content_id: str = ""
    renamed_from: str = ""
    source: str = ""
    target: str = ""
    replaces: bool = False
    clears: bool = False
    snapshot: int | None = None
    previous: int | None = None
    operations: tuple[str, ...] | None = None
    proven_by: str | None = None


@dataclass(frozen=True)
class CopyBatch:
    """A group of foreign files that one rclone process copies.

    Args:
        number: its number, as in the column `batch` of the plan's files.
        origin: id of the location that the files come from.
        files: how many, each target counted once.
        bytes: how many, all together.
        table: the only table whose files they are, where its list was made in parts; else "".
        list_name: the name of such a list in the run's folder; "" where it follows from the batch's number.
        preferred: names of the regions whose copies are sent where they are there, before the origins of files.
        fallbacks: of those whose copies are sent where files can't be copied from their origins.
    """

    number: int
    origin: str
    files: int
    bytes: int
    table: str = ""
    list_name: str = ""
    preferred: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()

    @property
    def sources(self) -> str:
        """Where its files are expected to come from, for people: a location's id, or `eu instead of us-lake`."""
        return f"{self.preferred[0]} instead of {self.origin}" if self.preferred else self.origin


def total_size(batches: Iterable[CopyBatch]) -> tuple[int, int]:
    """Return how many files batches have together, and their bytes."""
    files = size = 0
    for batch in batches:
        files, size = files + batch.files, size + batch.bytes
    return files, size


@dataclass(frozen=True)
class Plan:
    """What one sync will do, for one fixed commit H of `main`.

    Args:
        run_id: names the run, in the branch's log and below `_sterna/runs/`.
        region: the region that is synced.
        source_hash: H, the head of `main`.
        watermark: W before this sync, "" when there is none.
        replica_hash: head of the replica branch that the plan was made for, and that publish expects.
        digest: over registry and localizer, as the commit will record it.
        bindings: what each location id is bound to, those that the registry no longer has included.
        oldest: commit time (ISO 8601, UTC) of the oldest commit on `main` after W, "" when there is none.
        seeding: the branch is being seeded for the first time: tables appear in groups.
        more: another sync must follow: the seed has further groups.
        filtered: only some tables were requested: the watermark stays where it is.
        idle: nothing is to be done and nothing to be recorded.
        held: keys that can't be published now, those in transit included.
        atomic_groups: groups of key names that a commit of `main` changed together.
        relaxed: those among them that wait for no other (`atomic: relaxed`).
        unchanged: how many of the compared keys are as they should be.
        batches: what will be copied.
        egress_cost: estimated price of the copies.
        present_files: how many foreign files, not proven by the replica's head, are here already.
        held_if_failed: for each action's key, its entry in case it has to be held.
        registry: fingerprint of the whole registry, which may not change between the stages of a run; "" in plans of
            version 0.1.0.
        restored_commits: the foreign commits that this one reverts, for messages; "" when there are none.
        watermark_reset_from: the watermark that `main` has left, where an operator confirmed that; else "".
        was_held: names of the keys that the head which the plan was made for holds; None in plans of older versions.
        lane: `large` where it copies what is in transit, and publishes nothing; else "".
        bulk_run_needed: a large lane is wanted for what is in transit, and none is at work.
        term: in the large lane, of the primary that the plan was made at; "" where the regions share one.
        verbatim: whose verbatim copies are looked up in the end, beside those of what is published: of all tables that
            the branch shows, of those that are `unmarked`, or of no others.
    """

    run_id: str
    region: str
    source_hash: str
    watermark: str
    replica_hash: str
    digest: str
    bindings: dict[str, str]
    oldest: str = ""
    seeding: bool = False
    more: bool = False
    filtered: bool = False
    idle: bool = False
    actions: tuple[Action, ...] = ()
    held: tuple[Held, ...] = ()
    atomic_groups: tuple[tuple[str, ...], ...] = ()
    relaxed: tuple[str, ...] = ()
    unchanged: int = 0
    batches: tuple[CopyBatch, ...] = ()
    egress_cost: float = 0.0
    present_files: int = 0
    held_if_failed: tuple[Held, ...] = ()
    registry: str = ""
    restored_commits: str = ""
    watermark_reset_from: str = ""
    was_held: tuple[str, ...] | None = None
    lane: str = ""
    bulk_run_needed: bool = False
    term: str = ""
    verbatim: Literal["", "unmarked", "all"] = ""


class TableFailure(NamedTuple):
    """Why a table could not be copied or localized; a JSON list of four texts in reports and XComs.

    Args:
        table: key name.
        kind: the error's class name, such as `SourceGone`.
        reason: what is wrong, for people.
        file: the URI it is about, printable, or "".
    """

    table: str
    kind: str
    reason: str
    file: str

    @classmethod
    def from_error(cls, error: SternaError, file: str = "") -> TableFailure:
        """Return the failure of a table's error; `file` is used where the error names none."""
        return cls(error.table, type(error).__name__, printable(error.message), printable(error.file or file))


@dataclass(frozen=True)
class StageReport:
    """The result of copy or localize; small enough for an XCom.

    Args:
        files: how many files are proven to be in place.
        bytes: their size, all together.
        sent: bytes that really crossed.
        failed: one entry a table.
        missing: how many files are not in place because of these failures.
        run_id: the run that it is about; "" where an older version wrote it.
        here: key names whose files are all here now, while the large lane still copies others.
        sent_from: by region, how many of the bytes sent are copies that the region keeps; the rest are origins.
    """

    files: int = 0
    bytes: int = 0
    sent: int = 0
    failed: tuple[TableFailure, ...] = ()
    missing: int = 0
    run_id: str = ""
    here: tuple[str, ...] = ()
    sent_from: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: StageReport) -> StageReport:
        """Add up two reports; of each table the first failure is kept."""
        failed = {failure.table: failure for failure in (*other.failed, *self.failed)}
        return StageReport(
            self.files + other.files,
            self.bytes + other.bytes,
            self.sent + other.sent,
            tuple(failed.values()),
            self.missing + other.missing,
            self.run_id or other.run_id,
            tuple(dict.fromkeys((*self.here, *other.here))),
            {
                region: self.sent_from.get(region, 0) + other.sent_from.get(region, 0)
                for region in sorted({*self.sent_from, *other.sent_from})
            },
        )


@dataclass(frozen=True)
class Report:
    """How a sync ended.

    Args:
        run_id, region, source_hash: as in the plan.
        outcome: `published`, `idle` (nothing to do), `superseded` (another run was first), `copied` (by the large lane,
            which publishes nothing) or `planned` (dry run).
        replica_hash: head of the replica branch afterwards, "" when another run made it.
        watermark: hash of `main` that the branch is at afterwards, "" while it is being seeded.
        published: key names that changed.
        held: keys that stay behind, for a fault of theirs or of others.
        lag_seconds: lag of the region after this sync, tables held and in transit included; None when it is unknown
            since when one is.
        seconds: how long it took.
        more: another sync should follow at once.
        watermark_lag_seconds: the same without these tables.
        transit: keys that stay behind while the large lane copies them.
        large: a large lane is wanted for them, and none is at work.
    """

    run_id: str
    region: str
    source_hash: str
    outcome: Literal["published", "idle", "superseded", "copied", "planned"]
    replica_hash: str
    watermark: str = ""
    published: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()
    copied: StageReport = StageReport()
    localized: StageReport = StageReport()
    lag_seconds: float | None = 0.0
    seconds: float = 0.0
    more: bool = False
    watermark_lag_seconds: float = 0.0
    transit: tuple[Held, ...] = ()
    large: bool = False

    @property
    def lag_text(self) -> str:
        """The lag, for people."""
        return "unknown" if self.lag_seconds is None else f"{self.lag_seconds:.1f} s"
