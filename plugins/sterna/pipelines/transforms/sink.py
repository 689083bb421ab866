"""A sink of Spark's Structured Streaming that publishes each micro-batch on `main` once, even if a checkpoint is lost.

The target's position holds the sources' offsets at the end of the last batch; the commit of the rows sets it. A batch
is published only if it starts at these offsets. So the query's checkpoint isn't trusted, and one that is lost can be
restored from the position.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.errors import EngineError, FlowStopped
from sterna.pipelines.publish.model import Channel, Step
from sterna.pipelines.publish.protocol import publish_step
from sterna.pipelines.publish.spark import SparkTable, jvm, require_jvm
from sterna.spark.start import spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_PROPERTY = "sql.streaming.queryId"  # Spark's thread-local property of a running query
_RELATION_CLASS = "StreamingDataSourceV2ScanRelation"


@dataclass(frozen=True)
class StreamPosition:
    """The position of a stream.

    Args:
        batch: the number of its last batch.
        offsets: each source's offset at the end of that batch, in the source's own format.
    """

    batch: int
    offsets: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> StreamPosition | None:
        """Parse the target's property; None: nothing was published yet.

        Raises:
            FlowStopped: no stream has written it.
        """
        if not text:
            return None
        try:
            record = json.loads(text)
            return cls(int(record["batch"]), tuple(str(offset) for offset in record["offsets"]))
        except (ValueError, KeyError, TypeError):
            raise FlowStopped(f"the applied position {text!r} is no stream's") from None

    @property
    def text(self) -> str:
        """The value of the target's property."""
        return json.dumps({"batch": self.batch, "offsets": list(self.offsets)})


def decide_batch(position: StreamPosition | None, batch: int, starts: Sequence[str], ends: Sequence[str]) -> bool:
    """Return whether a batch is to be published; it was already if the last one ended at its end.

    Args:
        position: of the stream; None: nothing is published yet.
        batch: the batch's number.
        starts: each source's offset at its beginning.
        ends: the same at its end.

    Raises:
        FlowStopped: it isn't the next batch.
    """
    if position is None:
        if batch == 0:
            return True
        raise FlowStopped(
            f"batch {batch} is first at a target without a position: it was recreated, or isn't this stream's",
            hint="begin with a checkpoint of its own, and an empty one",
        )
    if tuple(ends) == position.offsets:
        return False
    if tuple(starts) == position.offsets:
        return True
    raise FlowStopped(
        f"the target has come up to {position.offsets}, and batch {batch} begins at {tuple(starts)}",
        hint="its checkpoint is another one, or was lost: StreamSink.restore(checkpoint) before the query is started",
    )


class StreamSink:
    """The function that a query passes its batches to: `writeStream.foreachBatch(StreamSink(spark, table, name))`.

    Args:
        spark: the session that starts the query: a classic one.
        table: the target's name in SQL; its rows can be staged (`write.wap.enabled`).
        name: the stream's name, one for each query into the table: letters, digits, `_`, `.` and `-`.

    Raises:
        NotStaged: the session is one of Spark Connect.
        UsageError: the name is invalid.
    """

    def __init__(self, spark: SparkSession, table: str, name: str) -> None:
        require_jvm(spark)
        self._spark, self._table = spark, table
        self.channel = Channel("stream", "all", name)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Publish a batch, once.

        Args:
            rows: its rows, with the target's columns.
            batch: its number.

        Raises:
            FlowStopped: it isn't the next batch.
            Rewound: the target was rolled back or replaced.
            NotStaged: the target's rows would go live at once.
            TableMoved, CatalogStateUnknown, EngineError: a later try may succeed.
        """
        starts, ends = self._offsets(rows)
        table = SparkTable.of_catalog(rows.sparkSession, self._table)
        applied_position = table.refresh().state.position(self.channel)
        if not decide_batch(StreamPosition.parse(applied_position), batch, starts, ends):
            return
        new_position = StreamPosition(batch, ends).text
        id = f"{self.channel}/{batch}-{hashlib.sha256(f'{applied_position} {new_position}'.encode()).hexdigest()[:16]}"
        step = Step(id, self.channel, new_position, applied_position, is_numbered=False)
        writer = rows.writeTo(self._table)
        publish_step(table, step, lambda loaded: table.stage_sql(loaded, step, lambda _: writer.append()))

    def read_position(self) -> StreamPosition | None:
        """Return the stream's position on the target; None: nothing is published yet."""
        state = SparkTable.of_catalog(self._spark, self._table).refresh().state
        return StreamPosition.parse(state.position(self.channel))

    def restore(self, checkpoint: str) -> bool:
        """Restore a lost checkpoint from the position; return whether it was lost. One that exists is left unchanged.

        Only for queries without state: the state of an aggregation or a join can't be restored.

        Args:
            checkpoint: the query's `checkpointLocation`.

        Raises:
            EngineError: it can't be written.
        """
        position = self.read_position()
        if position is None:
            return False
        try:
            path: Any = jvm(self._spark).org.apache.hadoop.fs.Path(checkpoint)
            file_system = path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
            if file_system.exists(path) and len(file_system.listStatus(path)):
                return False
            for name, text in _checkpoint_files(position).items():
                self._write(file_system, f"{checkpoint}/{name}", text)
        except spark_errors() as error:
            raise EngineError(f"the checkpoint can't be made: {summarize_error(error, 3)}", file=checkpoint) from None
        return True

    def _write(self, file_system: Any, path: str, text: str) -> None:
        stream = file_system.create(jvm(self._spark).org.apache.hadoop.fs.Path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _offsets(self, rows: DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return each source's offsets at both ends of the running batch."""
        try:
            id = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_PROPERTY)
            session: Any = self._spark
            query = session._jsparkSession.streams().get(id)
            plan = query.streamingQuery().lastExecution().logical()
            relations = [leaf for leaf in _leaves(plan) if str(leaf.getClass().getSimpleName()) == _RELATION_CLASS]
            starts = tuple(_json(leaf.startOffset()) for leaf in relations)
            ends = tuple(_json(leaf.endOffset()) for leaf in relations)
        except spark_errors() as error:
            raise EngineError(f"the batch's offsets can't be read: {summarize_error(error, 3)}") from None
        if not relations:
            raise FlowStopped("the stream's source reports no offsets: Kafka and Iceberg do, files don't")
        return starts, ends


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


def _json(offset: Any) -> str:
    return str(offset.get().json()) if offset.isDefined() else ""


def _checkpoint_files(position: StreamPosition) -> dict[str, str]:
    """Return the files of a checkpoint that ends with the last batch, in Spark's format."""
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    offsets = "\n".join(["v1", metadata, *position.offsets])
    # Spark also reads the batch before the last one, but not its offsets.
    return {
        "metadata": json.dumps({"id": str(uuid.uuid4())}),
        **{f"offsets/{number}": offsets for number in (position.batch - 1, position.batch) if number >= 0},
        f"commits/{position.batch}": 'v1\n{"nextBatchWatermarkMs":0}',
    }
