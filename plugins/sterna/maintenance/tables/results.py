"""The reports of expiry and sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

from sterna.maintenance.deletion.model import Amount, PassReport
from sterna.maintenance.tables.retention import Block


@dataclass(frozen=True)
class ExpiredTable:
    """What expiry did, or would do, to one table.

    Args:
        key: key name.
        metadata: its metadata.json, as it was read.
        snapshots: how many snapshots it has there.
        expired: ids of those that are removed.
        needed: by reason, how many others are still needed.
        done: they were removed.
        problem: why nothing was done; "" where nothing prevented it.
    """

    key: str
    metadata: str
    snapshots: int
    expired: tuple[int, ...]
    needed: dict[str, int]
    done: bool = False
    problem: str = ""


@dataclass(frozen=True)
class ExpiryReport:
    """What expiry found and did.

    Args:
        region: the region that ran it.
        dry_run: nothing was to be changed.
        at: when it began (ISO 8601, UTC).
        main: the commit of `main` that was read last.
        term: of the primary; "" where the regions share one catalog.
        tables: those that a rule of the services file and the requested patterns match.
        blocks: regions that maintenance has to wait for.
    """

    region: str
    dry_run: bool
    at: str
    main: str
    term: str = field(metadata={"json": "epoch"})
    tables: tuple[ExpiredTable, ...]
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class FolderSize:
    """Garbage below one folder of a location."""

    uri: str
    garbage: Amount


@dataclass(frozen=True, kw_only=True)
class SweepReport(PassReport):
    """What a sweep found in a region's own stores, and what it did.

    Args:
        main: the commit of `main` that was read.
        term: of the primary; "" where the regions share one catalog.
        locations: ids of the locations that were swept, and URIs of the folders of the region's REST address.
        folders: where most of the garbage is, or of the unreachable where there is no garbage yet.
    """

    main: str
    term: str = field(metadata={"json": "epoch"})
    locations: tuple[str, ...]
    folders: tuple[FolderSize, ...] = ()
