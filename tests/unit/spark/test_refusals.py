"""What Spark refuses and no later run cures is an error of its own, on one line, and never `retry`.

A column with the name of a metadata column of Iceberg's ended as `EngineError: retry`, with lines of a Java trace. What
else falls under it: a format version or type that Spark doesn't read, a column that is missing, and a store that denies
access. What may pass stays `retry`: a table that others changed meanwhile, a lost executor, a network. The words are
those of Spark 4.1 with Iceberg 1.12; a real Spark says the first ones in `tests/integration/changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from sterna.errors import EngineError, EngineRefused, Remedy, StoreDenied
from sterna.pipelines.publish.spark import translate_java_errors
from sterna.spark.errors import causes, permanent_error
from sterna.spark.main_catalog import CommitConflict, TableChanged, translate_error

_RESERVED = (
    "Table column names conflict with names reserved for Iceberg metadata columns: [_file, _pos].\n"
    "Please, use ALTER TABLE statements to rename the conflicting table columns."
)
_TRACE = (
    "\n\tat org.apache.iceberg.exceptions.ValidationException.check(ValidationException.java:49)\n\tat x.y(Z.scala:1)"
)
_DENIED = (
    "software.amazon.awssdk.services.s3.model.S3Exception: Access Denied (Service: S3, Status Code: 403, Request ID: 1)"
)


@dataclass(frozen=True)
class Thrown:
    """An exception of Java's, as py4j shows it."""

    name: str
    text: str | None
    cause: Thrown | None = None

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str | None:
        return self.text

    def getCause(self) -> Thrown | None:
        return self.cause


class JavaError(Py4JError):  # type: ignore[misc, unused-ignore]
    """What py4j raises."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__(f"An error occurred while calling o1.x.\n: {thrown.name}: {thrown.text}{_TRACE}")
        self.java_exception = thrown


def java(name: str, text: str | None, *more: tuple[str, str]) -> JavaError:
    cause = None
    for fields in reversed(more):
        cause = Thrown(*fields, cause)
    return JavaError(Thrown(name, text, cause))


CURED_BY_SOMEBODY: dict[str, tuple[BaseException, type[Exception], str]] = {
    "a metadata column's name": (
        java("org.apache.iceberg.exceptions.ValidationException", _RESERVED),
        EngineRefused,
        "it has a column _file, and Iceberg has a metadata column of that name",
    ),
    "the same, within another one": (
        java("java.lang.RuntimeException", "x", ("org.apache.iceberg.exceptions.ValidationException", _RESERVED)),
        EngineRefused,
        "it has a column _file",
    ),
    "a format version": (
        java("java.lang.IllegalArgumentException", "Cannot read unsupported version 4"),
        EngineRefused,
        "Cannot read unsupported version 4",
    ),
    "a type": (
        java("java.lang.UnsupportedOperationException", "Spark does not support time fields\nmore"),
        EngineRefused,
        "Spark does not support time fields",
    ),
    "a store, from the driver": (
        java("software.amazon.awssdk.services.s3.model.S3Exception", "Access Denied (Service: S3, Status Code: 403)"),
        StoreDenied,
        "Access Denied (Service: S3, Status Code: 403)",
    ),
    "a store, from a worker": (
        java("org.apache.spark.SparkException", f"Job aborted due to stage failure: Task 0 failed: {_DENIED}{_TRACE}"),
        StoreDenied,
        "Access Denied (Service: S3, Status Code: 403, Request ID: 1)",
    ),
}


@pytest.mark.parametrize("case", CURED_BY_SOMEBODY)
def test_what_only_somebody_cures_is_told_on_one_line(case: str) -> None:
    error, kind, message = CURED_BY_SOMEBODY[case]
    refused = permanent_error(error, "db.t")
    assert refused is not None
    assert type(refused) is kind
    assert (refused.remedy, refused.table) == (Remedy.STOP, "db.t")
    assert message in refused.message
    assert refused.hint
    assert "\n" not in str(refused)
    assert "\tat " not in str(refused)


@pytest.mark.parametrize(
    "error",
    [
        java("org.apache.iceberg.exceptions.ValidationException", "Found conflicting files that can contain records"),
        java("org.apache.iceberg.exceptions.ValidationException", "Missing required files to delete: s3://x/y"),
        java("org.apache.iceberg.exceptions.CommitFailedException", "unsupported version"),
        java("org.apache.spark.SparkException", "Job aborted: ExecutorLostFailure (executor 1 exited)"),
        java("software.amazon.awssdk.services.s3.model.S3Exception", "Slow down (Service: S3, Status Code: 503)"),
        java("java.lang.IllegalArgumentException", None),
        OSError("Status Code: 403"),
        Py4JError("Answer from Java side is empty"),
    ],
)
def test_what_may_pass_is_no_refusal(error: BaseException) -> None:
    assert permanent_error(error, "db.t") is None
    assert permanent_error(error, "db.t", read_only=True) is None


def test_what_spark_can_not_analyze_is_a_refusal_where_it_reads_alone() -> None:
    """Of what is written, others may have changed the target's columns meanwhile: the next look sees that."""
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] no column `v`; secret. SQLSTATE: 42703;\n'Project ['v]\n+- LocalRelation"
    )
    error = AnalysisException(text)
    refused = permanent_error(error, "db.t", read_only=True, clean=lambda unclean: unclean.replace("secret", "***"))
    assert isinstance(refused, EngineRefused)
    assert "UNRESOLVED_COLUMN" in refused.message
    assert "***" in refused.message
    assert "Project" not in str(refused)
    assert permanent_error(error, "db.t") is None


def test_upkeep_takes_a_refusal_for_no_table_that_others_changed() -> None:
    """A commit's ValidationException is one: a rewrite of it is tried again."""
    of_iceberg = "org.apache.iceberg.exceptions.ValidationException"
    failures = [
        translate_error(java(name, text), "local[1]", {})
        for name, text in (
            (of_iceberg, _RESERVED), (of_iceberg, "Missing required files"),
            ("org.apache.iceberg.exceptions.CommitFailedException", "moved"),
            ("org.apache.spark.SparkException", "ExecutorLostFailure"),
        )
    ]  # fmt: skip
    assert [type(failure) for failure in failures] == [EngineRefused, TableChanged, CommitConflict, EngineError]
    assert "it has a column _file" in str(failures[0])


def test_flows_and_ingestion_are_told_which_table_spark_refuses() -> None:
    with pytest.raises(EngineRefused, match=r"it has a column _file.*\[table db\.t\]"), translate_java_errors("db.t"):
        raise java("org.apache.iceberg.exceptions.ValidationException", _RESERVED)
    with pytest.raises(EngineError) as other, translate_java_errors("db.t"):
        raise java("org.apache.iceberg.exceptions.ValidationException", "Found conflicting files")
    assert other.value.remedy is Remedy.RETRY


def test_causes_end_where_a_chain_does_not() -> None:
    first: Any = Thrown("a", "x")
    object.__setattr__(first, "cause", first)
    assert causes(JavaError(first)) == [("a", "x")] * 20
    assert causes(ValueError("no Java")) == []
