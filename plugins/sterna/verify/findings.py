"""What verify finds: faults, each with its table, kind and file, and the counts of what was looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MISSING = "missing"
SIZE = "size"
FOREIGN = "foreign"
UNREADABLE = "unreadable"
DISAGREES = "disagrees"
UNPROTECTED = "unprotected"
UNSORTED = "unsorted"
STRAY = "stray"
DIFFERS = "differs"
NOT_RESIDENT = "not resident"
OTHER_CATALOG = "another catalog"

_KEPT = 1_000  # findings of one table: whoever lost a million files needs their number, not their names


@dataclass(frozen=True)
class Finding:
    """One fault of a replica.

    Args:
        table: key name.
        kind: missing, size, foreign, unreadable; disagrees (two places contradict one another), unprotected
            (maintenance through the replica would reach `main`'s own files), unsorted (rows of position deletes), stray
            (a delete names a place where this region reads no file), differs (from the source), not resident
            (a residency rule keeps the file out of this region), another catalog (a view names one that the registry
            doesn't speak of).
        file: URI of the file that is wrong, or that names the wrong thing.
        message: what is wrong with it.
    """

    table: str
    kind: str
    file: str
    message: str


@dataclass(frozen=True)
class Verified:
    """What was looked at and what was found.

    Args:
        tables, files, bytes: looked at; files and bytes without repetition within a table.
        foreign: how many URIs outside the region were met.
        findings: the faults, at most 1,000 a table.
        faults: how many there are, those included that are not kept.
        on_main: contradictions that the source has in the same words: mistakes of its writer.
        compared, compared_bytes: files of the replica held against their source, and their size.
        not_comparable: files whose source is gone or can't be told, by now.
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


@dataclass
class Findings:
    """The faults of one table, and what was looked at, while it is being verified.

    Args:
        table: key name.
    """

    table: str
    files: int = 0
    bytes: int = 0
    foreign: int = 0
    faults: int = 0
    compared: int = 0
    compared_bytes: int = 0
    not_comparable: int = 0
    kept: list[Finding] = field(default_factory=list)
    on_main: list[Finding] = field(default_factory=list)

    def add(self, kind: str, file: str, message: str) -> None:
        """Take down a fault."""
        self.faults += 1
        if len(self.kept) < _KEPT:
            self.kept.append(Finding(self.table, kind, file, message))

    def move_to_main(self, findings: Iterable[Finding]) -> None:
        """Count some of the faults as the source's own."""
        for finding in findings:
            self.kept.remove(finding)
            self.on_main.append(finding)
            self.faults -= 1

    def add_foreign(self, file: str, uris: Iterable[str], region: str) -> None:
        """Take down the URIs outside the region that a file names: one fault a file, however many they are."""
        named = list(uris)
        if named:
            self.foreign += len(named)
            more = f" and {len(named) - 1} more" if len(named) > 1 else ""
            self.add(FOREIGN, file, f"names {named[0]}{more}, not in {region}")


def summed(parts: Iterable[Findings]) -> Verified:
    """Add up what was found in all tables."""
    listed = list(parts)
    return Verified(
        tables=len(listed),
        files=sum(part.files for part in listed),
        bytes=sum(part.bytes for part in listed),
        foreign=sum(part.foreign for part in listed),
        findings=tuple(finding for part in listed for finding in part.kept),
        faults=sum(part.faults for part in listed),
        compared=sum(part.compared for part in listed),
        compared_bytes=sum(part.compared_bytes for part in listed),
        not_comparable=sum(part.not_comparable for part in listed),
        on_main=tuple(finding for part in listed for finding in part.on_main),
    )
