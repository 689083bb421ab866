"""Spark's own streams: a replica branch is read across syncs, and the sink brings each row once."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from sterna.flows.sink import StreamSink
from sterna.wap.protocol import Change, Landed, Look
from sterna.wap.spark import JavaBase, SparkTable
from tests.support.world import World


@pytest.fixture
def namespace(world: World) -> Iterator[str]:
    with world.namespace(f"sink_{uuid.uuid4().hex[:8]}") as name:
        for table in ("clicks", "kept"):
            world.sql(
                f"CREATE TABLE main_us.{name}.{table} (id BIGINT) USING iceberg "
                "TBLPROPERTIES ('write.wap.enabled'='true')"
            )
        yield name


class Stream:
    """From a table's replica into another table."""

    def __init__(self, world: World, namespace: str, checkpoint: Path) -> None:
        self.world, self.namespace, self.checkpoint, self.ids = world, namespace, checkpoint, 0
        self.sink = StreamSink(world.spark, f"main_us.{namespace}.kept", "clicks")

    def put(self) -> None:
        self.ids += 1
        self.world.sql(f"INSERT INTO main_us.{self.namespace}.clicks VALUES ({self.ids})")
        self.world.sync("eu")

    def start(self) -> Any:
        stream = self.world.spark.readStream.format("iceberg").load(f"replica_eu.{self.namespace}.clicks")
        writer = stream.writeStream.foreachBatch(self.sink).trigger(processingTime="0 seconds")
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def run(self) -> None:
        query = self.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def rows(self) -> list[int]:
        return sorted(row[0] for row in self.world.sql(f"SELECT id FROM main_us.{self.namespace}.kept"))


def test_each_row_once_across_syncs_kills_and_a_lost_checkpoint(
    world: World, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(world, namespace, tmp_path / "checkpoint")
    assert not stream.sink.restore(str(stream.checkpoint))
    stream.put()
    query = stream.start()
    try:
        query.processAllAvailable()
        assert stream.rows() == [1]
        stream.put()  # the branch moves while it reads
        query.processAllAvailable()
        assert stream.rows() == [1, 2]
    finally:
        query.stop()
    real = SparkTable.commit

    def killed(self: SparkTable, look: Look[JavaBase], change: Change, step: Any) -> Landed:
        raise RuntimeError("killed between stage and publish")

    def lost(self: SparkTable, look: Look[JavaBase], change: Change, step: Any) -> Landed:
        real(self, look, change, step)
        raise RuntimeError("killed behind it")

    for strike, kept in ((killed, True), (lost, True), (killed, False), (lost, False)):
        stream.put()
        with monkeypatch.context() as patch, pytest.raises(StreamingQueryException):
            patch.setattr(SparkTable, "commit", strike)
            stream.run()
        if not kept:
            shutil.rmtree(stream.checkpoint)
            if strike is killed:
                with pytest.raises(StreamingQueryException, match="restore"):
                    stream.run()  # from the beginning: refused
                shutil.rmtree(stream.checkpoint)
            assert stream.sink.restore(str(stream.checkpoint))
        assert not stream.sink.restore(str(stream.checkpoint))
        stream.run()
        assert stream.rows() == list(range(1, stream.ids + 1))
    stream.put()
    stream.run()
    assert stream.rows() == list(range(1, stream.ids + 1))
