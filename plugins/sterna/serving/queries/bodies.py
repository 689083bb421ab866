"""From a request that was understood to the job of its run, and from what came of that to the answer's body."""

from __future__ import annotations

from typing import Any

from sterna.catalog.model import key_name
from sterna.config.secrets import connection_environment
from sterna.config.sections.queries import SharedLimits
from sterna.errors import NoSuchQuery
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.job import PinnedTable, QueryJob
from sterna.serving.queries.request import CommitPin, MomentPin, Question, SnapshotPin


def require_admitted_tables(context: RegionContext, question: Question) -> None:
    """Require that no rule of the registry excludes a question's tables from this region, also in older commits.

    Raises:
        NoSuchQuery: one does.
    """
    for name in map(key_name, question.tables):
        if context.registry.exclusion_reason(name, context.region.name):
            raise NoSuchQuery(f"there is no table {name}", table=name)


def build_job(
    context: RegionContext, shared: SharedLimits, question: Question, tables: tuple[PinnedTable, ...]
) -> QueryJob:
    """Return what is to be run.

    Args:
        shared: limits of queries that have none of their own.

    Raises:
        CredentialError: one of the region's stores has none.
    """
    limits = question.query.limits
    local = [location for location in context.registry.locations if location.region == context.region.name]
    ids = [location.credential_id for location in local if location.credential_id]
    return QueryJob(
        sql=question.query.sql,
        params=question.params,
        tables=tables,
        kpi=question.query.answer == "kpi",
        seconds=limits.seconds or shared.seconds,
        memory=limits.memory or shared.memory,
        rows=limits.rows or shared.rows,
        bytes=limits.bytes or shared.bytes,
        spark_bytes=limits.spark_bytes or shared.spark_bytes,
        stores=context.objects.spec(),
        credentials=connection_environment(ids, context.secrets),
        repair=question.repair,
    )


def build_answer_body(question: Question, tables: tuple[PinnedTable, ...], output: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's body.

    Args:
        output: `types` and `rows`, as the run returned them.
    """
    value = {"kpi": output["rows"][0]} if question.query.answer == "kpi" else {"rows": output["rows"]}
    return {**value, "types": output["types"], **_version_fields(question, tables)}


def _version_fields(question: Question, tables: tuple[PinnedTable, ...]) -> dict[str, Any]:
    match question.pin:
        case SnapshotPin(snapshot):
            return {"snapshot_id": str(snapshot)}
        case CommitPin(hash, main):
            snapshots = {table.name: id_text(table.snapshot) for table in tables}
            return {"cursor": hash, **({"main": main} if main else {}), "snapshots": snapshots}
        case MomentPin():
            raise AssertionError("it is fixed first")


def id_text(snapshot: int | None) -> str | None:
    """Return a snapshot's id as in answers: as text, since JavaScript loses digits of such numbers."""
    return None if snapshot is None else str(snapshot)
