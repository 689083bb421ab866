"""The rows between two snapshots of a table of a region: by its catalog, its credentials and its Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import ICEBERG_TABLE, key_name, parse_key
from sterna.changes.between import staged, to_frame
from sterna.changes.rows import CHANGE, NOT_A_KEY
from sterna.edges.spark.refusals import refusal
from sterna.edges.spark.staged_changes import Staged, load_metadata
from sterna.edges.spark.start import (
    address,
    failures,
    is_connect,
    require_iceberg,
    require_pyspark,
    start_classic,
    summary,
)
from sterna.edges.spark.tables import without_secret_values
from sterna.errors import CredentialError, EngineError, NeedsClassicSpark, NotAKey, UsageError
from sterna.registry.credential import fileio_properties
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Asked:
    """What is asked for.

    Args:
        table: the table's name in the catalog.
        start: a snapshot's id, or a branch or tag of the table; None: before the first row.
        end: the same; None: the current snapshot.
        key: columns that tell rows apart, as in `between`.
        branch: the branch of the catalog; "": the region's replica branch.
    """

    table: str
    start: str | None = None
    end: str | None = None
    key: tuple[str, ...] = ()
    branch: str = ""


@dataclass(frozen=True)
class Found:
    """What was found, counted, and some of it.

    Args:
        table: the table's name in the catalog.
        branch: the branch of the catalog.
        counts: how many rows of each change.
        files: how many data files were read.
        rows: the first ones, in no order that means anything; an Arrow table.
    """

    table: str
    branch: str
    counts: dict[str, int]
    files: int
    rows: Any


def arrow(context: RegionContext, asked: Asked) -> pa.Table:
    """Return the rows as Arrow; all of them have to fit into memory.

    Args:
        context: the region.
        asked: what is asked for.

    Raises:
        Gap: a snapshot is not kept, or the way between them isn't.
        NotAnAncestor: the start is no ancestor of the end.
        NotAKey: several rows of a snapshot have the same key.
        NeedsClassicSpark: the region's Spark is a Spark Connect server.
        UsageError: no such branch, table, tag or key column.
        EngineError: Spark can't be started, or a file can't be read.
    """
    with _opened(context, asked) as (frame, _):
        return frame.toArrow()


def look(context: RegionContext, asked: Asked, most: int) -> Found:
    """Count the rows, and show some; raises what `arrow` does.

    Args:
        context: the region.
        asked: what is asked for.
        most: how many rows are shown.
    """
    with _opened(context, asked) as (frame, planned):
        counts = {row[CHANGE]: row["count"] for row in frame.groupBy(CHANGE).count().collect()}
        rows = frame.limit(most).toArrow()
        branch = asked.branch or context.region.replica_branch
        return Found(asked.table, branch, dict(sorted(counts.items())), sum(planned.files), rows)


@contextmanager
def _opened(context: RegionContext, asked: Asked) -> Iterator[tuple[DataFrame, Staged]]:
    branch = asked.branch or context.region.replica_branch
    metadata = _metadata(context, asked.table, branch)
    stores = stores_of(context, metadata, own=branch == context.region.replica_branch)
    same_key = f"several rows of a snapshot have the same {', '.join(asked.key)}"
    with open_session(context) as spark, telling(context, asked.table, same_key, "can't read the changes"):
        loaded = load_metadata(spark, asked.table, metadata, stores)
        planned = staged(spark, loaded, asked.table, asked.start, asked.end)
        yield to_frame(spark, planned, asked.key, asked.table), planned


@contextmanager
def telling(context: RegionContext, table: str, same_key: str, failed: str) -> Iterator[None]:
    """Turn what Spark raises while changes are read into errors of ours, without what is secret of the stores.

    Args:
        context: the region.
        table: what messages call the table.
        same_key: the message for what isn't a key.
        failed: how the message for anything else begins.

    Raises:
        NotAKey: several rows of a snapshot have the same key.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: anything else.
    """
    try:
        yield
    except failures() as error:
        said = summary(error)
        if NOT_A_KEY in said:
            raise NotAKey(same_key, table=table) from None
        clean = partial(_without_secrets, context)
        if refused := refusal(error, table, reads=True, clean=clean):
            raise refused from None
        raise EngineError(f"{failed}: {clean(said)}", table=table) from None


def _without_secrets(context: RegionContext, said: str) -> str:
    for location in context.registry.locations:
        with suppress(CredentialError):  # it was not asked for then
            said = without_secret_values(said, _properties(context, location))
    return said


def _metadata(context: RegionContext, table: str, branch: str) -> str:
    key = parse_key(table)
    found = context.catalog.contents(branch, context.catalog.reference(branch).hash, [key]).get(key)
    if found is None or found.kind != ICEBERG_TABLE or not found.metadata_location:
        raise UsageError(f"there is no table {key_name(key)} on {branch}", table=table)
    return found.metadata_location


def stores_of(context: RegionContext, metadata: str, *, own: bool) -> list[tuple[str, dict[str, str]]]:
    """Return how the stores are reached: on a replica branch this region's own, else all that there are keys for.

    Args:
        context: the region.
        metadata: a table's metadata.json; its store comes first.
        own: it is the region's replica's.

    Raises:
        CredentialError: that of the first one is missing.
    """
    home = context.mapping.locate(metadata).location
    found = [(home.prefix, _properties(context, home))]
    for location in context.registry.locations:
        if location.id != home.id and (location.region == context.region.name or not own):
            with suppress(CredentialError):  # it is asked for where a file lies there
                found.append((location.prefix, _properties(context, location)))
    return found


def _properties(context: RegionContext, location: Any) -> dict[str, str]:
    credential = context.secrets(location.credential_id) if location.credential_id else None
    return fileio_properties(location, credential)


def load(context: RegionContext, spark: SparkSession, table: str) -> Any:
    """Return a table of the region's replica, as Iceberg's own object in the JVM.

    Args:
        context: the region.
        spark: a session of `open_session`.
        table: the table's name in the catalog.

    Raises:
        UsageError: there is no such table.
        EngineError: it can't be read.
        CredentialError: a store has none.
    """
    metadata = _metadata(context, table, context.region.replica_branch)
    return load_metadata(spark, table, metadata, stores_of(context, metadata, own=True))


@contextmanager
def open_session(context: RegionContext) -> Iterator[SparkSession]:
    """Open a session of the region's Spark in which changes can be planned.

    Raises:
        NeedsClassicSpark: it is a Spark Connect server.
        EngineError: it can't be started.
        NoIceberg: its driver lacks Iceberg's runtime.
    """
    master = context.region.spark
    if is_connect(master):
        raise NeedsClassicSpark(
            f"the region's Spark, at {address(master)}, is a Spark Connect server, and changes are planned in "
            "Spark's JVM",
            hint="name a master in the registry: local[*], spark://…, yarn or k8s://…",
        )
    require_pyspark()
    spark, started = start_classic(master, "sterna", {})
    try:
        require_iceberg(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        yield spark
    finally:
        if started:
            with suppress(*failures()):
                spark.stop()
