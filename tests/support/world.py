"""Two real regions for tests: Nessie, an S3 endpoint each, one Spark.

And the question whether a replica equals main.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from sterna.catalog.model import Content, Key, key_name
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.s3 import Endpoint
from sterna.servers.spark import add_catalog
from sterna.servers.stack import Deployment
from tests.support.answers import ask, ask_pyiceberg, data_rows, differences, without_places


def merge_on_read(version: int) -> str:
    """Properties of a table of a format version, whose rows Spark deletes and updates with delete files."""
    modes = ", ".join(f"'write.{mode}.mode'='merge-on-read'" for mode in ("delete", "update", "merge"))
    return f"TBLPROPERTIES ('format-version'='{version}', {modes})"


MERGE_ON_READ = merge_on_read(2)


@dataclass
class World:
    """Regions us and eu of one deployment, with catalogs main_us, main_eu, replica_us and replica_eu in one Spark."""

    stage: Deployment
    spark: SparkSession
    catalog: NessieCatalog
    lines: list[str] = field(default_factory=list)
    localize: str = "auto"

    def context(self, region: str = "eu") -> RegionContext:
        context = open_region(self.stage.registry, region, environment_secrets())
        return replace(context, region=context.region.model_copy(update={"localize": self.localize}))

    @contextmanager
    def localizing(self, where: str) -> Iterator[None]:
        """Let syncs localize on Spark or here, whatever there is to do."""
        before, self.localize = self.localize, where
        try:
            yield
        finally:
            self.localize = before

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def sync(self, region: str = "eu", **options: Any) -> Report:
        self.lines.clear()
        with self.context(region) as context:
            return sync(context, SyncOptions(**options), self.lines.append)

    def restore(self, as_of: str, *names: str, region: str = "eu", **options: Any) -> RestoreReport:
        """Restore tables; the branch with what they replace is deleted, as an operator does who needs it no more.

        Args:
            as_of: the commit of `main`.
            names: key names.
            region: that it is run for.
            options: other fields of the request.
        """
        with self.context(region) as context:
            report = restore(context, RestoreRequest(as_of, names, **options), self.lines.append, apply=True)
        if report.kept_on:
            branch = f"{report.kept_on}@{self.catalog.reference(report.kept_on).hash}"
            answer = httpx.delete(f"{self.stage.nessie.uri}/trees/{branch}", params={"type": "BRANCH"})
            assert answer.is_success, answer.text
        return report

    def snapshots(self, table: str) -> list[int]:
        return [
            row[0] for row in self.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at, snapshot_id")
        ]

    def history(self, table: str) -> dict[str, list[str]]:
        """The rows of a table, now, at every snapshot and at every ref."""
        return ask(self.spark, table).rows

    @contextmanager
    def dark(self, region: str) -> Iterator[None]:
        """A region's store is off, and so is the wide endpoint that could reach it."""
        self.stage.combined_endpoint.suspend()
        self.stage.endpoints[region].suspend()
        try:
            yield
        finally:
            self.stage.endpoints[region].start()
            self.stage.combined_endpoint.start()

    def assert_equal(
        self,
        *tables: str,
        region: str = "eu",
        pyiceberg: bool = False,
        pruned: bool = False,
        without: Collection[str] = (),
        address: str = "",
    ) -> None:
        """Replica and main answer the same, with the other region dark; and the replica is closed.

        Args:
            tables: key names.
            region: the replica's.
            pyiceberg: PyIceberg is asked for the replica's rows too.
            pruned: the replica keeps a part of main's history; what it keeps is compared.
            without: metadata tables that Iceberg itself can't answer for these tables.
            address: a catalog of Spark's that is the region's REST address, which is asked too; "": none.
        """
        other = "us" if region == "eu" else "eu"
        wanted = {table: ask(self.spark, f"main_{other}.{table}", without) for table in tables}
        with self.dark(other), self.context(region) as context:
            for table in tables:
                replica = ask(self.spark, f"replica_{region}.{table}", without)
                mismatches = differences(wanted[table], replica, context.mapping, pruned=pruned)
                assert not mismatches, f"{table} in {region}:\n" + "\n".join(mismatches)
                if address:
                    served = without_places(ask(self.spark, f"{address}.{table}", without))
                    mismatches = differences(without_places(wanted[table]), served, context.mapping, pruned=pruned)
                    assert not mismatches, f"{table} by {address}:\n" + "\n".join(mismatches)
                if pyiceberg:
                    assert self._pyiceberg(table, region) == data_rows(replica), f"{table} in {region}, by PyIceberg"
            verified = verify_structure(context, tables)
        assert verified.findings == (), verified.findings
        assert verified.foreign == 0

    def sync_and_compare(self, *tables: str, region: str = "eu", **options: Any) -> None:
        """Sync a region; see that tables that changed were published, and `assert_equal` with its options."""
        report = self.sync(region)
        held = [item for item in report.held if item.key in tables]
        assert not held, held
        assert set(tables) <= set(report.published), report.published
        self.assert_equal(*tables, region=region, **options)

    def _pyiceberg(self, table: str, region: str) -> dict[str, list[str]]:
        location = self.replica(region)[table].metadata_location or ""
        return ask_pyiceberg(StaticTable.from_metadata(location, pyiceberg_properties(self.stage.endpoints[region])))

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace born in us, dropped at the end with its tables, so that nobody else meets them."""
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS main_us.{name}")
        yield name
        for row in self.sql(f"SHOW TABLES IN main_us.{name}"):
            self.sql(f"DROP TABLE main_us.{name}.{row[1]}")
        self.sql(f"DROP NAMESPACE main_us.{name}")

    def rest(self) -> Catalog:
        """PyIceberg's view of `main`, by Nessie's Iceberg REST: a commit leaves one snapshot, without its parent."""
        uri, settings = f"{self.stage.nessie.iceberg_uri}/main", pyiceberg_properties(self.stage.endpoints["us"])
        return load_catalog("rest", type="rest", uri=uri, warehouse="us", **settings)

    def replica(self, region: str = "eu") -> dict[str, Content]:
        branch = f"main_replica_{region}"
        head = self.catalog.reference(branch)
        return {key_name(key): content for key, content in self.catalog.entries(branch, head.hash)}

    def content(self, key: Key) -> Content:
        return self.catalog.contents("main", self.catalog.reference("main").hash, [key])[key]


def pyiceberg_properties(endpoint: Endpoint) -> dict[str, str]:
    """The settings with which PyIceberg reads and writes at one endpoint."""
    return {
        "s3.endpoint": endpoint.url,
        "s3.access-key-id": endpoint.access_key,
        "s3.secret-access-key": endpoint.secret_key,
        "s3.region": endpoint.region,
        "s3.force-virtual-addressing": "false",
    }


@contextmanager
def world_of(stage: Deployment, spark: SparkSession) -> Iterator[World]:
    """Add the regions' catalogs to a Spark session, and the deployment's variables to the environment."""
    with temporary_environment(stage.environment):
        for region in stage.regions:
            add_catalog(
                spark, f"main_{region}", stage.nessie.uri, "main", stage.warehouse(region), stage.combined_endpoint
            )
            branch = f"main_replica_{region}"
            add_catalog(
                spark, f"replica_{region}", stage.nessie.uri, branch, stage.warehouse(region), stage.endpoints[region]
            )
        with NessieCatalog(stage.nessie.uri) as catalog:
            yield World(stage, spark, catalog)
