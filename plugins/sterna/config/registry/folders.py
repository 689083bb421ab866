"""The folders below a replica root with sterna's own state: their names are defined here alone.

What a clean-up may delete, and when, follows from them (`sterna.maintenance.gc.decide`): a folder whose writer and
clean-up use different names is kept for ever, or deleted too soon.
"""

from __future__ import annotations

from typing import Final

_STATE_FOLDER: Final = "_sterna"  # no location id begins with "_"

RUNS: Final = "runs"
"""Plans, reports and lists of files of runs."""
GC: Final = "collect"
"""Records of clean-ups."""
TRANSIT: Final = "transit"
"""Signs of life of the large lane."""
PLANNING: Final = "planning"
"""Markers of plans that may die while they read a table."""
SWEEP: Final = "sweep"
"""Records of sweeps."""
FEATURES: Final = "features"
"""How far views of features are."""
TRANSFORMS: Final = "flows"
"""Why transforms failed the last time."""
MAINTENANCE: Final = "upkeep"
"""Groups of files that maintenance couldn't write."""
HELD: Final = "held"
"""Long lists of held keys."""
PAUSED: Final = "paused"
"""Markers of tables whose replication an operator has paused."""
DEAD_LETTERS: Final = "dead"
"""Dead letters of sinks."""
BANDWIDTH: Final = "bandwidth"
"""Leases on the bandwidth of locations."""
DELAYS: Final = "delays"
"""The index of delays, a file an hour."""
DOCTOR: Final = "doctor"
"""Objects that `sterna doctor` writes, and deletes at once."""
VERBATIM: Final = "verbatim"
"""Verbatim copies of other regions' path-bearing files (`sterna.config.verbatim_copies`)."""

AGE_EXPIRED_FOLDERS: Final = (
    RUNS,
    GC,
    TRANSIT,
    PLANNING,
    SWEEP,
    FEATURES,
    TRANSFORMS,
    BANDWIDTH,
    MAINTENANCE,
    DELAYS,
    DOCTOR,
)
"""What a clean-up deletes by its age, and not by what heads reach."""
STATE_FOLDERS: Final = (*AGE_EXPIRED_FOLDERS, HELD, PAUSED, DEAD_LETTERS, VERBATIM)


def state_root(replica_root: str) -> str:
    """Return the URI prefix, with a slash at its end, of all that sterna writes down for itself beside a replica."""
    return f"{replica_root}/{_STATE_FOLDER}/"


def state_folder(replica_root: str, name: str) -> str:
    """Return the URI of one of `STATE_FOLDERS`, without a slash at its end."""
    return f"{state_root(replica_root)}{name}"


def is_state_uri(uri: str) -> bool:
    """Return whether a URI is in such a folder, of any replica."""
    return f"/{_STATE_FOLDER}/" in uri


def state_path(path: list[str]) -> list[str] | None:
    """Return the names of folders, and of the file, below the state folder; None where a path is elsewhere.

    Args:
        path: the names below a replica root.
    """
    return path[1:] if path[:1] == [_STATE_FOLDER] else None
