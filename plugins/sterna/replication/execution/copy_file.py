"""A file that is to be copied, and why it can't be."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.errors import EngineError, NotCopied, SizeDiffers, SourceGone, SternaError, TableError


@dataclass(frozen=True)
class CopyFile:
    """A foreign content file that a table needs here.

    Args:
        table: the table's key.
        source: its URI on `main`.
        target: its URI in this region.
        size: bytes, as the metadata says.
    """

    table: str
    source: str
    target: str
    size: int


def original_mismatch(file: CopyFile) -> SizeDiffers:
    """Return the fault of a file whose target, outside the replica root, has another file.

    That is never written over.
    """
    return SizeDiffers(
        f"an original of this region hasn't the {file.size} bytes that main says", table=file.table, file=file.target
    )


def source_fault(file: CopyFile, size: int | None) -> TableError | None:
    """Return why a file can't be copied, by its size at its source, None where it isn't there; None: it can."""
    if size is None:
        return SourceGone(
            "the file is gone at its source and was not copied before", table=file.table, file=file.source
        )
    if size != file.size:
        return SizeDiffers(
            f"the file has {size} bytes, its metadata says {file.size}", table=file.table, file=file.source
        )
    return None


def error_for_file(error: SternaError, file: CopyFile) -> SternaError:
    """Return a store's error as the failure of one of the files that need it."""
    uri = error.file if isinstance(error, TableError) and error.file else file.source
    return type(error)(error.message, table=file.table, file=uri, hint=error.hint)


def not_copied(file: CopyFile, reason: str, missing_count: int) -> SternaError:
    """Return the failure of a file that is at its source and did not arrive.

    Args:
        reason: rclone's, for people.
        missing_count: how many files didn't, where none did; else 0.
    """
    if missing_count:
        message = f"{missing_count} files were not copied though they are at their source: {reason}"
        return EngineError(message, table=file.table, file=file.source, hint="a later run resumes")
    return NotCopied(f"the file is at its source and did not arrive: {reason}", table=file.table, file=file.source)
