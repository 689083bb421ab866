"""The rows between two snapshots of a table of a region: by its catalog, its credentials and its Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import key_name, parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.config.registry.credential import load_fileio_properties
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CredentialError, EngineError, NotAKey, UsageError
from sterna.libraries import pa
from sterna.pipelines.changes.between import plan_changes, to_frame
from sterna.pipelines.changes.kinds import CHANGE, NOT_A_KEY
from sterna.replication.replica.past_replica import PAST_PREFIX, PastReplica, require_not_behind
from sterna.replication.replica.point_in_time import main_commit
from sterna.replication.replica.region import RegionContext
from sterna.spark.application import UTC_SETTINGS, SparkApplication
from sterna.spark.changelog_scan import StagedChanges, load_metadata
from sterna.spark.errors import permanent_error
from sterna.spark.read import redact_properties
from sterna.spark.start import spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ChangesRequest:
    """A request for changed rows.

    Args:
        table: the table's name in the catalog.
        start: a snapshot's id, a branch or tag of the table, or `main@` and a moment of `main`; None: before the first
            row.
        end: the same; None: the current snapshot.
        key: columns that identify rows, as in `between`.
        branch: the catalog's branch; "": the region's replica branch.
    """

    table: str
    start: str | None = None
    end: str | None = None
    key: tuple[str, ...] = ()
    branch: str = ""


@dataclass(frozen=True)
class ChangesSummary:
    """The number of changed rows, and some of them.

    Args:
        table: the table's name in the catalog.
        branch: the branch of the catalog.
        counts: how many rows of each change.
        files: how many data files were read.
        rows: the first ones, in no particular order; an Arrow table.
        main: hashes of the commits of `main` that moments led to, by `from` and `to`.
    """

    table: str
    branch: str
    counts: dict[str, int]
    files: int
    rows: Any
    main: Mapping[str, str] = field(default_factory=dict)


def read_arrow(context: RegionContext, request: ChangesRequest) -> pa.Table:
    """Return the rows as Arrow; all of them have to fit into memory.

    Args:
        request: what is asked for.

    Raises:
        Gap: a snapshot is not kept, or the way between them isn't.
        NotAnAncestor: the start is no ancestor of the end.
        NotAKey: several rows of a snapshot have the same key.
        NeedsClassicSpark: the region's Spark is a Spark Connect server.
        NoSuchMoment, NoSuchVersion, NotYetHere, StaysBehind: a moment leads to no state of the table here.
        UsageError: no such branch, table, tag or key column.
        EngineError: Spark can't be started, or a file can't be read.
    """
    with _open_changes(context, resolve_moments(context, request)[0]) as (frame, _):
        return frame.toArrow()


def summarize(context: RegionContext, request: ChangesRequest, max_rows: int) -> ChangesSummary:
    """Count the rows, and return the first `max_rows`; raises what `read_arrow` does."""
    request, main = resolve_moments(context, request)
    with _open_changes(context, request) as (frame, planned):
        counts = {row[CHANGE]: row["count"] for row in frame.groupBy(CHANGE).count().collect()}
        rows = frame.limit(max_rows).toArrow()
        branch = request.branch or context.region.replica_branch
        return ChangesSummary(request.table, branch, dict(sorted(counts.items())), sum(planned.files), rows, main)


def resolve_moments(context: RegionContext, request: ChangesRequest) -> tuple[ChangesRequest, dict[str, str]]:
    """Return a request whose moments are snapshots, and the commits of `main` that they led to, by `from` and `to`.

    Raises:
        NoSuchMoment, NoSuchVersion, NotYetHere, StaysBehind: a moment leads to no state of the table here.
        UsageError: there was no such table then, or nothing was in it.
    """
    commits: dict[str, str] = {}
    ends = {"from": request.start, "to": request.end}
    for side, text in ends.items():
        if text is not None and text.startswith(PAST_PREFIX):
            ends[side], commits[side] = _snapshot_at(context, request, text.removeprefix(PAST_PREFIX))
    return replace(request, start=ends["from"], end=ends["to"]), commits


def _snapshot_at(context: RegionContext, request: ChangesRequest, moment: str) -> tuple[str, str]:
    """Return the snapshot that a table had at a moment, on the request's branch, and the commit of `main`."""
    key, branch = parse_key(request.table), request.branch or context.region.replica_branch
    if branch == context.region.replica_branch:
        past = PastReplica(context)
        version = past.find(moment)
        require_not_behind(past.read_head(version), [key_name(key)])
        commit, main = version.commit, version.watermark
    elif branch == SOURCE_BRANCH:
        commit = main = main_commit(context.catalog, moment, datetime.now(UTC)).hash
    else:
        raise UsageError(f"a moment is one of {SOURCE_BRANCH}: {branch} has none")
    content = context.catalog.contents(branch, commit, [key]).get(key)
    if content is None:
        raise UsageError(f"there was no table {key_name(key)} at {main[:12]}", table=request.table)
    if content.snapshot_id is None:
        raise UsageError(f"the table had no snapshot at {main[:12]}", table=request.table)
    return str(content.snapshot_id), main


@contextmanager
def _open_changes(context: RegionContext, request: ChangesRequest) -> Iterator[tuple[DataFrame, StagedChanges]]:
    branch = request.branch or context.region.replica_branch
    metadata = _metadata_location(context, request.table, branch)
    stores = list_stores(context, metadata, is_replica=branch == context.region.replica_branch)
    same_key = f"several rows of a snapshot have the same {', '.join(request.key)}"
    with open_session(context) as spark, translate_errors(context, request.table, same_key, "can't read the changes"):
        loaded = load_metadata(spark, request.table, metadata, stores)
        planned = plan_changes(spark, loaded, request.table, request.start, request.end)
        yield to_frame(spark, planned, request.key, request.table), planned


@contextmanager
def translate_errors(context: RegionContext, table: str, same_key: str, prefix: str) -> Iterator[None]:
    """Translate Spark's errors while changes are read to ours, with the stores' secrets redacted.

    Args:
        table: what messages call the table.
        same_key: the message for what isn't a key.
        prefix: how the message for anything else begins.

    Raises:
        NotAKey: several rows of a snapshot have the same key.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: anything else.
    """
    try:
        yield
    except spark_errors() as error:
        message = summarize_error(error)
        if NOT_A_KEY in message:
            raise NotAKey(same_key, table=table) from None
        redact = partial(_redact, context)
        if refused_error := permanent_error(error, table, read_only=True, clean=redact):
            raise refused_error from None
        raise EngineError(f"{prefix}: {redact(message)}", table=table) from None


def _redact(context: RegionContext, message: str) -> str:
    for location in context.registry.locations:
        with suppress(CredentialError):  # Spark didn't get it then
            message = redact_properties(message, load_fileio_properties(location, context.secrets))
    return message


def _metadata_location(context: RegionContext, table: str, branch: str) -> str:
    key = parse_key(table)
    uri = table_metadata_uri(context.catalog, branch, key)
    if not uri:
        raise UsageError(f"there is no table {key_name(key)} on {branch}", table=table)
    return uri


def list_stores(context: RegionContext, metadata: str, *, is_replica: bool) -> list[tuple[str, dict[str, str]]]:
    """Return how the stores are reached: on the replica branch this region's, otherwise all that have credentials.

    Args:
        metadata: a table's metadata.json; its store comes first.
        is_replica: it is the region's replica's.

    Raises:
        CredentialError: that of the first one is missing.
    """
    first_location = context.mapping.locate(metadata).location
    stores = [(first_location.prefix, load_fileio_properties(first_location, context.secrets))]
    for location in context.registry.locations:
        if location.id != first_location.id and (location.region == context.region.name or not is_replica):
            with suppress(CredentialError):  # only required if a file is there
                stores.append((location.prefix, load_fileio_properties(location, context.secrets)))
    return stores


def load_table(context: RegionContext, spark: SparkSession, table: str) -> Any:
    """Return a table of the region's replica, as Iceberg's own object in the JVM.

    Args:
        spark: a session of `open_session`.
        table: the table's name in the catalog.

    Raises:
        UsageError: there is no such table.
        EngineError: it can't be read.
        CredentialError: a store has none.
    """
    metadata = _metadata_location(context, table, context.region.replica_branch)
    return load_metadata(spark, table, metadata, list_stores(context, metadata, is_replica=True))


@contextmanager
def open_session(context: RegionContext) -> Iterator[SparkSession]:
    """Open a session of the region's Spark in which changes can be planned.

    Raises:
        NeedsClassicSpark: it is a Spark Connect server.
        EngineError: it can't be started.
        NoIceberg: its driver lacks Iceberg's runtime.
    """
    application = SparkApplication(
        "sterna",
        "changes are planned in Spark's JVM",
        "name a master in the registry: local[*], spark://…, yarn or k8s://…",
        UTC_SETTINGS,
    )
    with application:
        yield application.open_session(context.region.spark)
