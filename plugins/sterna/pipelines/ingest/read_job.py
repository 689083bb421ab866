"""What the process that reads uploads gets and returns: a module without the libraries that only that process needs."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.pipelines.ingest.columns import MAX_COLUMNS, Column, Evolution

JOB_FILE, REPORT_FILE, GOOD_ROWS_FILE, DEAD_ROWS_FILE, CURRENT_UPLOAD_FILE = (
    "job.json",
    "report.json",
    "good.arrow",
    "dead.parquet",
    "at",
)
WHOLE_UPLOAD = -1
"""The offset in the dead letters of an upload that is refused whole."""


@dataclass(frozen=True)
class UploadFile:
    """An upload's content on this machine.

    Args:
        id: the upload's.
        path: its file.
        format: `json`, `arrow` or `parquet`.
        rows: how many it declares.
        error: why it isn't read at all; "": it is.
        raw_from: the offset of the first line, where they are messages of a topic as they came; None: they were
            checked.
    """

    id: str
    path: str
    format: str
    rows: int
    error: str = ""
    raw_from: int | None = None


@dataclass(frozen=True)
class ReadJob:
    """What to read, and for which table.

    Args:
        columns: the table's; none: it is to be made.
        evolve: what its schema may become: `none`, `add`, `widen`.
        longest: bytes of one value.
        uploads: what to read, in their order.
        most: columns that the table may get.
        depth: how deep values of messages may be nested that were not checked.
    """

    columns: tuple[Column, ...]
    evolve: str
    longest: int
    uploads: tuple[UploadFile, ...]
    most: int = MAX_COLUMNS
    depth: int = 0


@dataclass(frozen=True)
class ReadReport:
    """What was read.

    Args:
        columns: of the rows, as the table is to have them.
        evolution: what the table has to become for them.
        rows: good ones, in GOOD.
        bad: rows that the table doesn't take, in DEAD; an upload that can't be read counts with all the rows that it
            declares.
        first: what is wrong of the first of them, "" for none.
    """

    columns: tuple[Column, ...]
    evolution: Evolution
    rows: int
    bad: int
    first: str = ""
