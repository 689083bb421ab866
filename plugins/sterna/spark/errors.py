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
_RESERVED_COLUMN = re.compile(r"names reserved for Iceberg metadata columns: \[([^,\]]*)")
_UNSUPPORTED_VERSION = re.compile(r"Cannot read unsupported version \d+")
_DENIED = re.compile(
    r"S3Exception: ([^\n]*Status Code: 403[^\n)]*\)?)|(?:AccessDenied|AccessControl)Exception: ([^\n]*)"
)
_TRANSIENT_CONDITIONS = ("INCOMPATIBLE_", "TABLE_OR_VIEW_NOT_FOUND")  # others have changed what was read meanwhile
_MAX_CAUSES = 20


def causes(error: BaseException) -> list[tuple[str, str]]:
    """Return class and message of a Java exception that py4j or PySpark raised, and of what caused it.

    Args:
        error: what was raised; nothing of Java's has none.
    """
    chain: list[tuple[str, str]] = []
    exception: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM is gone
        while exception is not None and len(chain) < _MAX_CAUSES:
            chain.append((str(exception.getClass().getName()), str(exception.getMessage() or "")))
            exception = exception.getCause()
    return chain


def permanent_error(
    error: BaseException, table: str, *, read_only: bool = False, clean: Callable[[str], str] = str
) -> SternaError | None:
    """Return the error of what no later run cures; None: a later run may do.

    Args:
        error: what py4j or PySpark raised.
        table: what messages call the table.
        read_only: nothing is written: what Spark can't analyze has nothing to do with a target that others change.
        clean: takes secrets out of a text.
    """
    chain = causes(error)
    text = "\n".join([str(error), *(f"{name}: {message}" for name, message in chain)])
    if match := _RESERVED_COLUMN.search(text):
        reason = f"it has a column {printable(match[1])}, and Iceberg has a metadata column of that name"
        hint = (
            f"the owner of {table or 'it'} on main renames it: ALTER TABLE … RENAME COLUMN {printable(match[1])} TO …"
        )
        return EngineRefused(f"Spark doesn't read the table: {reason}", table=table, hint=hint)
    if match := _UNSUPPORTED_VERSION.search(text):
        return EngineRefused(f"Iceberg in Spark: {match[0]}", table=table, hint="give Spark a newer Iceberg runtime")
    if match := _DENIED.search(text):
        reason = printable(clean(match[1] or match[2]))
        hint = "correct the credential, or the rights of its login at the store"
        return StoreDenied(f"a store denies access to Spark: {reason}", table=table, hint=hint)
    unsupported = [message for name, message in chain if name == "java.lang.UnsupportedOperationException" and message]
    if unsupported:
        reason = printable(clean(unsupported[-1].partition("\n")[0]))
        return EngineRefused(
            f"Spark doesn't support what the table has: {reason}", table=table, hint="see EngineRefused in the run book"
        )
    return _analysis_error(error, table, clean) if read_only else None


def _analysis_error(error: BaseException, table: str, clean: Callable[[str], str]) -> EngineRefused | None:
    from pyspark.errors import AnalysisException

    # What follows the first line is Spark's plan.
    message = str(error).partition("\n")[0]
    if not isinstance(error, AnalysisException) or any(condition in message for condition in _TRANSIENT_CONDITIONS):
        return None
    return EngineRefused(
        f"Spark can't read the table: {printable(clean(message))}",
        table=table,
        hint="see EngineRefused in the run book",
    )
