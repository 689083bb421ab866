"""The options and the report of a clean-up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount, PassReport, validate_grace


@dataclass(frozen=True)
class GcOptions:
    """The options of one clean-up.

    Args:
        keep: heads of the replica branch that are no older than this keep all that they reach.
        grace: how long a file has to be unreachable, and how old it has to be; longer than any run or query takes.
        delete: delete; otherwise only report what would be deleted.
        evict: files of tables that the registry refuses go at once, without regard to `keep` and `grace`.
        max_wait_seconds: seconds to wait for a sync that is between its plan and its publication.
        excluded_regions: names of regions that are not waited for while they are silent (`maintenance.gone`).
        keep_heads: for how long maintenance of `main` keeps what heads of replicas show (`maintenance.keep_heads`);
            None: it isn't configured.

    Raises:
        UsageError: a grace that no run or query could rely on.
    """

    keep: timedelta = timedelta(days=7)
    grace: timedelta = timedelta(hours=24)
    delete: bool = False
    evict: bool = False
    max_wait_seconds: float = 600.0
    excluded_regions: tuple[str, ...] = ()
    keep_heads: timedelta | None = None

    def __post_init__(self) -> None:
        validate_grace(self.grace)

    @property
    def short_retention(self) -> str:
        """Why kept heads won't stay readable, for people; "" where they do."""
        if self.keep_heads is None or self.keep_heads >= self.keep:
            return ""
        return (
            f"heads are kept for {self.keep}, and maintenance.keep_heads of the services file is {self.keep_heads}: "
            "expiry and sweeps of any region delete writers' files that older heads still name; "
            "set keep_heads to the longest --keep of any region's gc"
        )


@dataclass(frozen=True, kw_only=True)
class GcReport(PassReport):
    """What a clean-up found below a replica root, and what it deleted.

    Args:
        replica_hash: the replica head that the report is for.
        refused: files of refused tables that no other table and no current head reaches; part of the garbage with
            `evict`.
        in_flight: ids of syncs between plan and publication, for which a deletion would wait.
        still_shown: refused keys that the replica branch still shows: the next sync takes them off.
        evidence: plans and reports of runs, and records of clean-ups, that are left.
        superseded: metadata.json that only older heads of the replica name, and that stay for their sake.
        verbatim: verbatim copies of other regions' path-bearing files.
        dropped: files of tables that were dropped, kept for `sterna restore` by their policy's `keep_dropped` alone.
    """

    replica_hash: str
    refused: Amount
    in_flight: tuple[str, ...] = ()
    still_shown: tuple[str, ...] = ()
    evidence: Amount = ZERO_AMOUNT
    superseded: Amount = ZERO_AMOUNT
    verbatim: Amount = ZERO_AMOUNT
    dropped: Amount = ZERO_AMOUNT
