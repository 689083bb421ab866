"""The names of what a run writes down in its own folder, `_sterna/runs/<run id>/`: they stand here alone.

Other versions read it: status and clean-ups read the plans and reports of all runs, and the stages of one run may be of
two versions. What only goes from stage to stage is deleted by its name.
"""

from __future__ import annotations

from typing import Final

PLAN: Final = "plan.json"
REPORT: Final = "report.json"
REPAIR: Final = "repair.json"
NEWS: Final = "news.json.gz"
TO_LOCALIZE: Final = "localize.parquet"
"""The list of what is localized."""

LISTED: Final = "copy-"
"""How the names of lists of what is copied begin."""
PARTS: Final = "parts/"
"""Where a table's files are listed as its manifests were read."""
CHILDREN: Final = "children-"
"""How the names of files begin that tell workers what a table's other files have become."""
FETCHED: Final = "fetched/"
"""Where a run keeps what it read of other regions' metadata."""
COPIED: Final = "copied/"
"""Where a run's copy batches leave their marks."""
COPIES_BEGUN: Final = f"{COPIED}begun"
COPIED_PARTLY: Final = f"{COPIED}partly-"
"""How the marks of batches begin that are done but for some tables."""

_WORKING: Final = (FETCHED, PARTS, CHILDREN, COPIED)


def listed_name(batch: int) -> str:
    """Return the name of the list of what a batch copies, by the batch's number."""
    return f"{LISTED}{batch}.parquet"


def part_name(kind: str, digest: str) -> str:
    """Return the name of a part of a list.

    Args:
        kind: LISTED or PARTS.
        digest: SHA-256 of its bytes, in hex.
    """
    return f"{kind}{digest[:32]}.parquet"


def children_name(digest: str) -> str:
    """Return the name of a file that tells workers what a table's other files have become.

    Args:
        digest: SHA-256 of its bytes, in hex.
    """
    return f"{CHILDREN}{digest[:16]}.json"


def fetched_name(digest: str) -> str:
    """Return the name of what was read at a URI.

    Args:
        digest: SHA-256 of the URI, in hex.
    """
    return f"{FETCHED}{digest[:32]}"


def copied_name(batch: int) -> str:
    """Return the name of the mark of a batch that is done."""
    return f"{COPIED}{batch}"


def partly_name(batch: int, digest: str) -> str:
    """Return the name of the mark of a batch that is done but for some tables.

    Args:
        batch: its number.
        digest: of the tables' names.
    """
    return f"{COPIED_PARTLY}{batch}-{digest}"


def batch_of_partly(uri: str) -> int:
    """Return the number of the batch whose mark this is.

    Raises:
        ValueError: it is none.
    """
    return int(uri.rpartition(COPIED_PARTLY)[2].partition("-")[0])


def is_working(path: str) -> bool:
    """Tell by its path below a run's folder whether a file is only handed on from stage to stage."""
    return path.startswith(_WORKING)
