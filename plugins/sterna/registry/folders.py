"""The folders below a replica root that hold what sterna writes down for itself: their names stand here alone.

What a clean-up may delete, and when, follows from them (`sterna.gc.decide`): a folder that has one name for who writes
and another for the clean-up is kept for ever, or deleted too soon.
"""

from __future__ import annotations

from typing import Final

_OWN: Final = "_sterna"  # no location id begins with "_"

RUNS: Final = "runs"
"""Plans, reports and lists of files of runs."""
COLLECT: Final = "collect"
"""Records of clean-ups."""
TRANSIT: Final = "transit"
"""Signs of life of the large lane."""
PLANNING: Final = "planning"
"""Marks of plans that may die while they read a table."""
SWEEP: Final = "sweep"
"""Records of sweeps."""
FEATURES: Final = "features"
"""How far views of features are."""
FLOWS: Final = "flows"
"""Why flows failed the last time."""
UPKEEP: Final = "upkeep"
"""Groups of files that upkeep couldn't write."""
HELD: Final = "held"
"""Long lists of held keys."""
DEAD: Final = "dead"
"""Dead letters of outlets."""
BANDWIDTH: Final = "bandwidth"
"""Leases on the bandwidth of locations."""

EVIDENCE: Final = (RUNS, COLLECT, TRANSIT, PLANNING, SWEEP, FEATURES, FLOWS, BANDWIDTH, UPKEEP)
"""What a clean-up deletes by its age, and not by what heads reach."""
FOLDERS: Final = (*EVIDENCE, HELD, DEAD)


def own_root(replica_root: str) -> str:
    """Return the URI prefix, with a slash at its end, of all that sterna writes down for itself beside a replica."""
    return f"{replica_root}/{_OWN}/"


def own_folder(replica_root: str, name: str) -> str:
    """Return the URI of one of `FOLDERS`, without a slash at its end."""
    return f"{own_root(replica_root)}{name}"


def is_own(uri: str) -> bool:
    """Tell whether a URI lies in such a folder, of whichever replica."""
    return f"/{_OWN}/" in uri


def own_place(path: list[str]) -> list[str] | None:
    """Return the names of folders, and of the file, below the folder of all that; None where a path lies elsewhere.

    Args:
        path: the names below a replica root.
    """
    return path[1:] if path[:1] == [_OWN] else None
