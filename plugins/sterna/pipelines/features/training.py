"""Training sets: for each label what was known then, from the history of the views' tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.config.sections.features import Entity, Features, FeatureService, FeatureView
from sterna.config.services_file import read_services
from sterna.errors import LabelTooOld, UsageError
from sterna.iceberg.metadata.history import has_inherited_files
from sterna.pipelines.changes import CHANGE, between
from sterna.spark.changelog_scan import list_snapshots, load_named
from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_UTC_ZONES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00")
_NUMBER, _AT, _SIGN, _TURN, _LABEL, _KEY = ("_sterna_" + name for name in ("n", "at", "s", "turn", "label", "key"))


@dataclass(frozen=True)
class TrainingService:
    """A service's features as a session of Spark finds their history.

    Args:
        features: the section of the services file.
        catalog: the catalog in the session that shows the tables, such as `replica_eu`.
        time: the labels' column with the time of each.
    """

    features: Features
    service: FeatureService
    catalog: str
    time: str = "event_timestamp"


def feature_service(
    name: str, catalog: str, *, services: str | Path | None = None, time: str = "event_timestamp"
) -> TrainingService:
    """Return a service of the services file, for `training_set`.

    Args:
        catalog: the catalog in Spark that shows the tables: a region's replica.
        services: path of the services file; None: the one in this folder.
        time: the labels' column with the time of each.

    Raises:
        ServicesError: the file is wrong or missing.
        UsageError: there is no such service.
    """
    features = read_services(services).features
    matching = [] if features is None else [service for service in features.services if service.name == name]
    if features is None or not matching:
        raise UsageError(f"the services file has no service {name!r} in its section features")
    return TrainingService(features, matching[0], catalog, time)


def training_set(labels: DataFrame, service: TrainingService) -> DataFrame:
    """Return labels with what was known of their entities at their times.

    A row counts when it was committed by then, and true by then: commit time and event time are no later than the
    label's. Of several the newest counts, if it is no older than the view's `max_age`. Else its features are null.

    Args:
        labels: with the entity's key, and a time (`TIMESTAMP`).

    Returns:
        The labels' columns, then a column a feature, named `view.feature`; rows in no order that means anything.

    Raises:
        LabelTooOld: a label is older than the history that a table keeps.
        UsageError: the labels lack a column, a table isn't there, or times without a zone meet a session off UTC.
        Gap, NotAnAncestor, NeedsClassicSpark, EngineError: as `sterna.pipelines.changes.between`.
    """
    from pyspark.sql import functions as f

    features = service.features
    names = list(dict.fromkeys(feature.partition(".")[0] for feature in service.service.features))
    entity = features.entity_of(features.views_by_name[names[0]])
    if missing := [name for name in (*entity.columns, service.time) if name not in labels.columns]:
        raise UsageError(f"the labels have no column {missing[0]}: there are {', '.join(labels.columns)}")
    _validate_time_zone(labels, service.time, "labels")
    # Numbered once and materialized: a plan that runs again would number differently.
    numbered = labels.withColumn(_LABEL, f.monotonically_increasing_id()).localCheckpoint()
    time = f.col(quote_backtick(service.time)).cast("timestamp")
    lookups = numbered.select(_LABEL, *_keys(entity), time.alias(_AT))
    joined = numbered
    for name in names:
        columns = [feature.partition(".")[2] for feature in service.service.features if feature.startswith(f"{name}.")]
        view_features = _features_at(lookups, service, features.views_by_name[name], entity, columns)
        joined = joined.join(view_features, _LABEL, "left")
    selected = [f.col(quote_backtick(column)) for column in (*labels.columns, *service.service.features)]
    return joined.select(*selected)


def _features_at(
    lookups: DataFrame, service: TrainingService, view: FeatureView, entity: Entity, columns: Sequence[str]
) -> DataFrame:
    """Return what was known of a view by label: at most one row each."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark, table = lookups.sparkSession, f"{service.catalog}.{view.table}"
    numbered, steps = _number_snapshots(lookups, spark, table)
    events = _change_events(spark, table, steps, entity, view)
    if events is None:
        nothing = lookups.where("false").select(_LABEL, *[f.lit(None).alias(f"{view.name}.{name}") for name in columns])
        return nothing
    if view.event_time:
        _validate_time_zone(events, "v0", f"event_time of view {view.name}")
    keys = [name for name in events.columns if name.startswith(_KEY)]
    rows = [name for name in events.columns if name not in (_SIGN, _TURN, *keys)]
    joined = numbered.join(events, keys).where(f.col(_TURN) <= f.col(_NUMBER))
    moment = f.col("v0").cast("timestamp") if view.event_time else None
    if moment is not None:
        joined = joined.where(moment <= f.col(_AT))
    # What was deleted again, or replaced, by the label's time adds up to nothing.
    live_rows = joined.groupBy(_LABEL, _AT, *rows).agg(f.sum(_SIGN).alias(_SIGN)).where(f.col(_SIGN) > 0)
    order: list[Column] = [f.col("v0").desc()] if view.event_time else []
    order += [f.col(name).desc_nulls_last() for name in rows]
    rank = f.row_number().over(Window.partitionBy(_LABEL).orderBy(*order))
    newest = live_rows.withColumn(_TURN, rank).where(f.col(_TURN) == 1)
    if moment is not None and view.max_age is not None:
        newest = newest.where(moment >= f.col(_AT) - f.expr(f"INTERVAL {view.max_age} SECONDS"))
    value_columns = {name: f"v{at}" for at, name in enumerate(_row_columns(view))}
    return newest.select(_LABEL, *[f.col(value_columns[name]).alias(f"{view.name}.{name}") for name in columns])


def _validate_time_zone(frame: DataFrame, column: str, what: str) -> None:
    """Refuse a time that the session's zone would move: the online store takes times without a zone as UTC."""
    zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    if dict(frame.dtypes)[column] in ("timestamp_ntz", "date") and zone not in _UTC_ZONES:
        raise UsageError(
            f"the times of {what} have no time zone and are meant as UTC, but the session's zone is {zone}",
            hint="set spark.sql.session.timeZone to UTC",
        )


def _row_columns(view: FeatureView) -> list[str]:
    first = [view.event_time] if view.event_time else []
    return [*first, *(name for name in view.features if name != view.event_time)]


def _number_snapshots(lookups: DataFrame, spark: SparkSession, table: str) -> tuple[DataFrame, list[int]]:
    """Return labels with the number of the snapshot that was current at each one's time, and these snapshots.

    Labels from before the table's first snapshot have none.
    """
    from pyspark.sql import functions as f

    jvm_table = load_named(spark, table)
    _, lineage = list_snapshots(jvm_table)
    if not lineage:
        return lookups.where("false").withColumn(_NUMBER, f.lit(0)), []
    oldest_first = lineage[::-1]
    earliest = lookups.agg(f.min(f.unix_millis(_AT))).collect()[0][0]
    if earliest is not None and earliest < oldest_first[0][1] and _had_rows_before(jvm_table, oldest_first[0][0]):
        raise LabelTooOld(
            f"a label is for {_format_ms(earliest)}, and the history that is kept begins at "
            f"{_format_ms(oldest_first[0][1])}",
            table=table,
            hint="leave such labels out, and say time_travel in the view: maintenance keeps the history for so long",
        )
    times = spark.createDataFrame([(number, time) for number, (_, time) in enumerate(oldest_first)], "n INT, time LONG")
    # Clocks of writers differ: a later snapshot counts from its own time on, whatever the one before says.
    newest_number = f.max("n").alias(_NUMBER)
    joined = lookups.join(f.broadcast(times), f.col("time") <= f.unix_millis(_AT))
    keys = [name for name in lookups.columns if name.startswith(_KEY)]
    placed = joined.groupBy(_LABEL, *keys, _AT).agg(newest_number).localCheckpoint()
    used = sorted(row[0] for row in placed.select(_NUMBER).distinct().collect())
    turns = spark.createDataFrame([(n, step) for step, n in enumerate(used)], "n INT, turn INT") if used else None
    if turns is None:
        return placed, []
    numbered = placed.join(f.broadcast(turns), f.col(_NUMBER) == f.col("n")).drop("n", _NUMBER)
    return numbered.withColumnRenamed("turn", _NUMBER), [oldest_first[n][0] for n in used]


def _had_rows_before(jvm_table: Any, oldest: int) -> bool:
    """Return whether a table may have had rows before the oldest snapshot of its line.

    Its parent shows it. A table that was replaced names none, nor does what Nessie's Iceberg REST keeps, which is the
    current snapshot alone: there the log, the counts and the sequence number show it.
    """
    first = jvm_table.snapshot(oldest)
    replaced = any(record.snapshotId() != oldest for record in jvm_table.history()[:1])
    if replaced or first.parentId() is not None or has_inherited_files(dict(first.summary())):
        return True
    # A batch that was staged before this snapshot, and rejected, took a number and no rows.
    number = int(first.sequenceNumber())
    return number > 1 and sum(snapshot.sequenceNumber() < number for snapshot in jvm_table.snapshots()) < number - 1


def _change_events(
    spark: SparkSession, table: str, steps: Sequence[int], entity: Entity, view: FeatureView
) -> DataFrame | None:
    """Return what came and went between the snapshots that labels ask for: a row, a sign and the step's number."""
    from pyspark.sql import functions as f

    events: Any = None
    previous: int | None = None
    for step, snapshot in enumerate(steps):
        changed = between(spark, table, previous, snapshot)
        if missing := [name for name in (*entity.columns, *_row_columns(view)) if name not in changed.columns]:
            raise UsageError(f"at snapshot {snapshot} the table has no column {missing[0]}", table=table)
        sign = f.when(f.col(CHANGE).isin("delete", "update_before"), -1).otherwise(1)
        values = [f.col(quote_backtick(name)).alias(f"v{at}") for at, name in enumerate(_row_columns(view))]
        step_events = changed.select(*_keys(entity), *values, sign.alias(_SIGN), f.lit(step).alias(_TURN))
        events = step_events if events is None else events.unionByName(step_events)
        previous = snapshot
    return events  # type: ignore[no-any-return]


def _keys(entity: Entity) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.col(quote_backtick(name)).alias(f"{_KEY}{at}") for at, name in enumerate(entity.columns)]


def _format_ms(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
