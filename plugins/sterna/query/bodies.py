"""From a request that was understood to the job of its run, and from what came of that to the answer's body."""

from __future__ import annotations

from typing import Any

from sterna.catalog.model import key_name
from sterna.edges.secrets import connection_environment
from sterna.errors import NoSuchQuery
from sterna.query.job import Job, PinnedTable
from sterna.query.request import CommitPin, Question, SnapshotPin
from sterna.replica.region import RegionContext
from sterna.services.queries import SharedLimits


def refuse_not_here(context: RegionContext, asked: Question) -> None:
    """Raise NoSuchQuery for a table that a rule of the registry keeps out of this region, also in its older commits."""
    for name in map(key_name, asked.tables):
        if context.registry.refusal(name, context.region.name):
            raise NoSuchQuery(f"there is no table {name}", table=name)


def make_job(context: RegionContext, shared: SharedLimits, asked: Question, tables: tuple[PinnedTable, ...]) -> Job:
    """Return what is to be run.

    Args:
        context: the region.
        shared: limits of queries that have none of their own.
        asked: the request.
        tables: what its pin stands for.

    Raises:
        CredentialError: one of the region's stores has none.
    """
    own = asked.query.limits
    here = [place for place in context.registry.locations if place.region == context.region.name]
    ids = [place.credential_id for place in here if place.credential_id]
    return Job(
        sql=asked.query.sql,
        params=asked.params,
        tables=tables,
        kpi=asked.query.answer == "kpi",
        seconds=own.seconds or shared.seconds,
        memory=own.memory or shared.memory,
        rows=own.rows or shared.rows,
        bytes=own.bytes or shared.bytes,
        spark_bytes=own.spark_bytes or shared.spark_bytes,
        stores=context.objects.spec(),
        credentials=connection_environment(ids, context.secrets),
    )


def answer_body(asked: Question, tables: tuple[PinnedTable, ...], found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's body.

    Args:
        asked: the request.
        tables: what its pin stands for.
        found: `types` and `rows`, as the run returned them.
    """
    value = {"kpi": found["rows"][0]} if asked.query.answer == "kpi" else {"rows": found["rows"]}
    return {**value, "types": found["types"], **_version(asked, tables)}


def _version(asked: Question, tables: tuple[PinnedTable, ...]) -> dict[str, Any]:
    match asked.pin:
        case SnapshotPin(snapshot):
            return {"snapshot_id": str(snapshot)}
        case CommitPin(hash):
            return {"cursor": hash, "snapshots": {table.name: id_text(table.snapshot) for table in tables}}


def id_text(snapshot: int | None) -> str | None:
    """Return a snapshot's id as answers tell it: as text, for JavaScript loses digits of such numbers."""
    return None if snapshot is None else str(snapshot)
