"""Which errors of Spark's no later run cures, by the classes of Java's exceptions and the words of Iceberg's.

Whatever isn't named here may pass: it is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sterna.errors import EngineRefused, SternaError, StoreDenied, printable

# `SparkSchemaUtil.validateMetadataColumnReferences` and `TableMetadataParser` of Iceberg's.
_RESERVED = re.compile(r"names reserved for Iceberg metadata columns: \[([^,\]]*)")
_VERSION = re.compile(r"Cannot read unsupported version \d+")
_DENIED = re.compile(
    r"S3Exception: ([^\n]*Status Code: 403[^\n)]*\)?)|(?:AccessDenied|AccessControl)Exception: ([^\n]*)"
)
_PASSING = ("INCOMPATIBLE_", "TABLE_OR_VIEW_NOT_FOUND")  # others have changed what was read meanwhile
_MOST_CAUSES = 20


def causes(error: BaseException) -> list[tuple[str, str]]:
    """Return class and message of a Java exception that py4j or PySpark raised, and of what caused it.

    Args:
        error: what was raised; nothing of Java's has none.
    """
    found: list[tuple[str, str]] = []
    at: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM is gone
        while at is not None and len(found) < _MOST_CAUSES:
            found.append((str(at.getClass().getName()), str(at.getMessage() or "")))
            at = at.getCause()
    return found


def refusal(
    error: BaseException, table: str, *, reads: bool = False, clean: Callable[[str], str] = str
) -> SternaError | None:
    """Return the error of what no later run cures; None: a later run may do.

    Args:
        error: what py4j or PySpark raised.
        table: what messages call the table.
        reads: nothing is written: what Spark can't analyze has nothing to do with a target that others change.
        clean: takes secrets out of a text.
    """
    chain = causes(error)
    text = "\n".join([str(error), *(f"{name}: {said}" for name, said in chain)])
    if found := _RESERVED.search(text):
        said = f"it has a column {printable(found[1])}, and Iceberg has a metadata column of that name"
        hint = (
            f"whoever owns {table or 'it'} on main renames it: ALTER TABLE … RENAME COLUMN {printable(found[1])} TO …"
        )
        return EngineRefused(f"Spark doesn't read the table: {said}", table=table, hint=hint)
    if found := _VERSION.search(text):
        return EngineRefused(f"Iceberg in Spark: {found[0]}", table=table, hint="give Spark a newer Iceberg runtime")
    if found := _DENIED.search(text):
        said = printable(clean(found[1] or found[2]))
        hint = "correct the credential, or the rights of its login at the store"
        return StoreDenied(f"a store denies access to Spark: {said}", table=table, hint=hint)
    unsupported = [said for name, said in chain if name == "java.lang.UnsupportedOperationException" and said]
    if unsupported:
        said = printable(clean(unsupported[-1].partition("\n")[0]))
        return EngineRefused(
            f"Spark doesn't support what the table has: {said}", table=table, hint="see EngineRefused in the run book"
        )
    return _unanalyzed(error, table, clean) if reads else None


def _unanalyzed(error: BaseException, table: str, clean: Callable[[str], str]) -> EngineRefused | None:
    from pyspark.errors import AnalysisException

    # What follows the first line is Spark's plan.
    said = str(error).partition("\n")[0]
    if not isinstance(error, AnalysisException) or any(each in said for each in _PASSING):
        return None
    return EngineRefused(
        f"Spark can't read the table: {printable(clean(said))}", table=table, hint="see EngineRefused in the run book"
    )
