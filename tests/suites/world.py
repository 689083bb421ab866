"""Two real regions for tests: Nessie, an S3 endpoint each, one Spark; and the question whether a replica equals main."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from sterna.edges.catalog import Content, Key, key_name
from sterna.edges.environment import environment
from sterna.edges.nessie import NessieCatalog
from sterna.edges.secrets import environment_secrets
from sterna.local.spark import add_catalog
from sterna.local.stack import Deployment
from sterna.sync.context import Context, open_context
from sterna.sync.model import Options, Report
from sterna.sync.run import sync
from sterna.verify.structure import verify_structure

MERGE_ON_READ = (
    "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')"
)


@dataclass
class World:
    """Regions us and eu of one deployment, with catalogs main_us, main_eu, replica_us and replica_eu in one Spark."""

    stage: Deployment
    spark: SparkSession
    catalog: NessieCatalog
    lines: list[str] = field(default_factory=list)

    def context(self, region: str = "eu") -> Context:
        return open_context(self.stage.registry, region, environment_secrets())

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def sync(self, region: str = "eu", **options: Any) -> Report:
        self.lines.clear()
        with self.context(region) as context:
            return sync(context, Options(**options), self.lines.append)

    def snapshots(self, table: str) -> list[int]:
        return [row[0] for row in self.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at, snapshot_id")]

    def history(self, table: str) -> dict[int | str, list[tuple[Any, ...]]]:
        """The rows of a table, sorted, now and at every snapshot it retains."""
        rows: dict[int | str, list[tuple[Any, ...]]] = {"now": _sorted(self.sql(f"SELECT * FROM {table}"))}
        for snapshot in self.snapshots(table):
            rows[snapshot] = _sorted(self.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}"))
        return rows

    @contextmanager
    def dark(self, region: str) -> Iterator[None]:
        """A region's store is off, and so is the wide endpoint that could reach it."""
        self.stage.wide.go_dark()
        self.stage.endpoints[region].go_dark()
        try:
            yield
        finally:
            self.stage.endpoints[region].start()
            self.stage.wide.start()

    def assert_equal(self, *tables: str, region: str = "eu") -> None:
        """Replica and main hold the same rows at every snapshot, with the other region dark; and the replica is closed."""
        other = "us" if region == "eu" else "eu"
        wanted = {table: self.history(f"main_{other}.{table}") for table in tables}
        with self.dark(other):
            for table in tables:
                assert self.history(f"replica_{region}.{table}") == wanted[table], table
            with self.context(region) as context:
                found = verify_structure(context, tables)
        assert found.findings == ()
        assert found.foreign == 0

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace born in us, dropped at the end with its tables, so that nobody else meets them."""
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS main_us.{name}")
        yield name
        for row in self.sql(f"SHOW TABLES IN main_us.{name}"):
            self.sql(f"DROP TABLE main_us.{name}.{row[1]}")
        self.sql(f"DROP NAMESPACE main_us.{name}")

    def replica(self, region: str = "eu") -> dict[str, Content]:
        branch = f"main_replica_{region}"
        head = self.catalog.reference(branch)
        return {key_name(key): content for key, content in self.catalog.entries(branch, head.hash)}

    def content(self, key: Key) -> Content:
        return self.catalog.contents("main", self.catalog.reference("main").hash, [key])[key]


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@contextmanager
def world_of(stage: Deployment, spark: SparkSession) -> Iterator[World]:
    """Add the regions' catalogs to a Spark session, and the deployment's variables to the environment."""
    with environment(stage.environment):
        for region in stage.regions:
            add_catalog(spark, f"main_{region}", stage.nessie.uri, "main", stage.warehouse(region), stage.wide)
            branch = f"main_replica_{region}"
            add_catalog(spark, f"replica_{region}", stage.nessie.uri, branch, stage.warehouse(region), stage.endpoints[region])
        with NessieCatalog(stage.nessie.uri) as catalog:
            yield World(stage, spark, catalog)
