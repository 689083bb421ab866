"""The names of a run's files in its own folder, `_sterna/runs/<run id>/`: they are defined here alone.

Other versions read it: status and clean-ups read the plans and reports of all runs, and the stages of one run may be of
two versions. Files that only pass data between stages are deleted by their name.
"""

from __future__ import annotations

from typing import Final

PLAN: Final = "plan.json"
REPORT: Final = "report.json"
REPAIR: Final = "repair.json"
CHANGE_RECORD: Final = "news.json.gz"
TO_LOCALIZE: Final = "localize.parquet"
"""The list of files to localize."""

COPY_LIST_PREFIX: Final = "copy-"
"""The prefix of the names of lists of files to copy."""
PARTS_PREFIX: Final = "parts/"
"""Where a table's files are listed as its manifests were read."""
CHILDREN_PREFIX: Final = "children-"
"""The prefix of the names of files with which workers learn what a table's other files became."""
FETCHED_PREFIX: Final = "fetched/"
"""Where a run keeps what it read of other regions' metadata."""
BATCH_MARKER_PREFIX: Final = "copied/"
"""Where a run's copy batches leave their markers."""
COPY_STARTED_MARKER: Final = f"{BATCH_MARKER_PREFIX}begun"
PARTIAL_MARKER_PREFIX: Final = f"{BATCH_MARKER_PREFIX}partly-"
"""How the markers of batches begin that are done but for some tables."""

_INTERMEDIATE_PREFIXES: Final = (FETCHED_PREFIX, PARTS_PREFIX, CHILDREN_PREFIX, BATCH_MARKER_PREFIX)


def copy_list_name(batch: int) -> str:
    """Return the name of the list of a batch's files, by the batch's number."""
    return f"{COPY_LIST_PREFIX}{batch}.parquet"


def part_name(kind: str, digest: str) -> str:
    """Return the name of a part of a list.

    Args:
        kind: LISTED or PARTS.
        digest: SHA-256 of its bytes, in hex.
    """
    return f"{kind}{digest[:32]}.parquet"


def children_name(digest: str) -> str:
    """Return the name of a file from which workers learn what a table's other files became.

    Args:
        digest: SHA-256 of its bytes, in hex.
    """
    return f"{CHILDREN_PREFIX}{digest[:16]}.json"


def fetched_name(digest: str) -> str:
    """Return the name of the cached content of a URI.

    Args:
        digest: SHA-256 of the URI, in hex.
    """
    return f"{FETCHED_PREFIX}{digest[:32]}"


def batch_marker_name(batch: int) -> str:
    """Return the name of the marker of a batch that is done."""
    return f"{BATCH_MARKER_PREFIX}{batch}"


def partial_marker_name(batch: int, digest: str) -> str:
    """Return the name of the marker of a batch that is done but for some tables.

    Args:
        batch: its number.
        digest: of the tables' names.
    """
    return f"{PARTIAL_MARKER_PREFIX}{batch}-{digest}"


def parse_partial_marker(uri: str) -> int:
    """Return the number of the batch whose marker this is.

    Raises:
        ValueError: it is none.
    """
    return int(uri.rpartition(PARTIAL_MARKER_PREFIX)[2].partition("-")[0])


def is_intermediate(path: str) -> bool:
    """Return, by its path below a run's folder, whether a file is only handed on from stage to stage."""
    return path.startswith(_INTERMEDIATE_PREFIXES)
