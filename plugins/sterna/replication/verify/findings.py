"""Findings of verify: faults, each with its table, kind and file, and the counts of what was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MISSING = "missing"
SIZE = "size"
FOREIGN = "foreign"
UNREADABLE = "unreadable"
DISAGREES = "disagrees"
CHECKSUM = "checksum"
UNPROTECTED = "unprotected"
UNSORTED = "unsorted"
STRAY = "stray"
DIFFERS = "differs"
NOT_RESIDENT = "not resident"
OTHER_CATALOG = "another catalog"
STALE = "stale"

CONTRADICTIONS = frozenset({DISAGREES, CHECKSUM})
"""The kinds by which a table contradicts itself: its writer may have left it so."""

Digest = bytes
"""A digest of a finding, short enough to keep a million of them."""

# Of one table, contradictions and other findings: of a million lost files the number matters, not their names.
MAX_KEPT_FINDINGS = 1_000


@dataclass(frozen=True)
class Finding:
    """One fault of a replica.

    Args:
        table: key name.
        kind: missing, size, foreign, unreadable; disagrees (two places contradict one another), checksum
            (a deletion vector contradicts its own), unprotected (maintenance through the replica would reach `main`'s
            own files), unsorted (rows of position deletes), stray (a delete names a place where this region reads no
            file), differs (from the source), not resident (a residency rule keeps the file out of this region), another
            catalog (a view names one that the registry doesn't speak of), stale (the branch shows another version of
            the table than the watermark says, or lacks it).
        file: URI of the file that is wrong, or that names the wrong thing.
        message: what is wrong with it.
    """

    table: str
    kind: str
    file: str
    message: str


@dataclass(frozen=True)
class VerificationReport:
    """The report of a verification: what was checked, and the faults.

    Args:
        tables, files, bytes: checked; files and bytes without repetition within a table.
        foreign: how many URIs outside the region were met.
        findings: the faults, at most 1,000 contradictions and 1,000 others a table.
        faults: how many there are, those included that are not kept.
        on_main: contradictions that the source has in the same words: mistakes of its writer.
        on_main_more: how many of these are not kept.
        compared, compared_bytes: files of the replica held against their source, and their size.
        not_comparable: files whose source is gone or unknown by now.
    """

    tables: int
    files: int
    bytes: int
    foreign: int
    findings: tuple[Finding, ...]
    faults: int = 0
    compared: int = 0
    compared_bytes: int = 0
    not_comparable: int = 0
    on_main: tuple[Finding, ...] = ()
    on_main_more: int = 0


@dataclass
class Findings:
    """The faults of one table, and the counts of what was checked, while it is being verified.

    Args:
        table: key name.
        digest: of a contradiction's file and message; identifies those that are not kept.
        source_digests: digests of contradictions of the source, as far as they are known beforehand.
        dropped_counts: of the contradictions that are not kept, how many there are.
    """

    table: str
    digest: Callable[[str, str], Digest] = lambda file, message: b""
    source_digests: frozenset[Digest] = frozenset()
    files: int = 0
    bytes: int = 0
    foreign: int = 0
    faults: int = 0
    compared: int = 0
    compared_bytes: int = 0
    not_comparable: int = 0
    kept: list[Finding] = field(default_factory=list)
    on_main: list[Finding] = field(default_factory=list)
    on_main_more: int = 0
    dropped_counts: Counter[Digest] = field(default_factory=Counter)
    _remaining_slots: Counter[bool] = field(
        default_factory=lambda: Counter({True: MAX_KEPT_FINDINGS, False: MAX_KEPT_FINDINGS})
    )

    def add(self, kind: str, file: str, message: str) -> None:
        """Take down a fault."""
        contradiction = kind in CONTRADICTIONS
        if contradiction and self.source_digests and self.digest(file, message) in self.source_digests:
            self._add_on_main(Finding(self.table, kind, file, message))
            return
        self.faults += 1
        if self._remaining_slots[contradiction]:
            self._remaining_slots[contradiction] -= 1
            self.kept.append(Finding(self.table, kind, file, message))
        elif contradiction:
            self.dropped_counts[self.digest(file, message)] += 1

    def contradictions(self) -> set[Digest]:
        """Return the digests of all contradictions."""
        return {self._digest(finding) for finding in self.kept if finding.kind in CONTRADICTIONS} | set(
            self.dropped_counts
        )

    def move_to_main(self, source_digests: frozenset[Digest]) -> None:
        """Count the contradictions that are the source's own as such, by their digests."""
        kept, self.kept = self.kept, []
        for finding in kept:
            is_on_main = finding.kind in CONTRADICTIONS and self._digest(finding) in source_digests
            (self.on_main if is_on_main else self.kept).append(finding)
        self.on_main_more = sum(count for digest, count in self.dropped_counts.items() if digest in source_digests)
        self.faults -= len(self.on_main) + self.on_main_more

    def hides_own_faults(self, source_digests: frozenset[Digest]) -> bool:
        """Return whether contradictions of the replica alone were dropped, since the source's filled the list."""
        shown = sum(finding.kind in CONTRADICTIONS for finding in self.kept)
        return shown < MAX_KEPT_FINDINGS and not self.dropped_counts.keys() <= source_digests

    def _add_on_main(self, finding: Finding) -> None:
        if len(self.on_main) < MAX_KEPT_FINDINGS:
            self.on_main.append(finding)
        else:
            self.on_main_more += 1

    def _digest(self, finding: Finding) -> Digest:
        return self.digest(finding.file, finding.message)

    def add_foreign(self, file: str, uris: Iterable[str], region: str) -> None:
        """Take down the URIs outside the region that a file names: one fault a file, however many they are."""
        named = list(uris)
        if named:
            self.foreign += len(named)
            more = f" and {len(named) - 1} more" if len(named) > 1 else ""
            self.add(FOREIGN, file, f"names {named[0]}{more}, not in {region}")


def combine_findings(parts: Iterable[Findings]) -> VerificationReport:
    """Add up what was found in all tables."""
    tables = list(parts)
    return VerificationReport(
        tables=len(tables),
        files=sum(part.files for part in tables),
        bytes=sum(part.bytes for part in tables),
        foreign=sum(part.foreign for part in tables),
        findings=tuple(finding for part in tables for finding in part.kept),
        faults=sum(part.faults for part in tables),
        compared=sum(part.compared for part in tables),
        compared_bytes=sum(part.compared_bytes for part in tables),
        not_comparable=sum(part.not_comparable for part in tables),
        on_main=tuple(finding for part in tables for finding in part.on_main),
        on_main_more=sum(part.on_main_more for part in tables),
    )
