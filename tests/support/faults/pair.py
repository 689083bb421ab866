"""Two regions with real servers, small tables that PyIceberg writes in us, and what a replica of them must show in
eu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable

from sterna.catalog.model import key_name
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import NessieAuth
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import RUN_ID
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.access import TokenIssuer
from sterna.servers.stack import Deployment, deployment
from tests.support.faults.command_lines import CommandLines, watching
from tests.support.world import pyiceberg_properties

NAMESPACE = "faults"
BRANCH = "main_replica_eu"


@dataclass
class Pair:
    """Regions us and eu.

    Args:
        stage: the deployment.
        catalog: the catalog, past all proxies.
        writers: PyIceberg's view of `main` in each region, at that region's own endpoint.
        command_lines: what stood on the command line of any process since the servers run.
    """

    stage: Deployment
    catalog: NessieCatalog
    writers: dict[str, Catalog]
    command_lines: CommandLines
    _numbers: Iterator[int] = field(default_factory=count)

    def create(self, region: str = "us") -> str:
        """Make a table in a region with a few rows; return its name."""
        table = f"{NAMESPACE}.{region}_{next(self._numbers)}"
        self.writers[region].create_namespace_if_not_exists(NAMESPACE)
        self.writers[region].create_table(table, self._rows().schema)
        self.append(table)
        return table

    def append(self, table: str, rows: pa.Table | None = None) -> None:
        """Commit one data file."""
        writer = self.writers[table.removeprefix(f"{NAMESPACE}.").partition("_")[0]]
        writer.load_table(table).append(self._rows() if rows is None else rows)

    def drop_all(self) -> None:
        """Drop all tables: who compares everything compares less."""
        for writer in self.writers.values():
            for table in writer.list_tables(NAMESPACE) if writer.namespace_exists(NAMESPACE) else ():
                writer.drop_table(table)

    def sync(self, context: RegionContext | None = None, *, region: str = "eu") -> Report:
        """Sync a region in this process."""
        if context is not None:
            return sync(context, SyncOptions(), lambda line: None)
        with self.context(region) as own:
            return sync(own, SyncOptions(), lambda line: None)

    def context(self, name: str = "eu", bulk_copy_threshold: int | None = None, **addresses: str) -> RegionContext:
        """Return a region; from `bulk_copy_threshold` bytes on a copy may be large.

        `us`, `eu` and `catalog` may be reached by other addresses than their own, and `spark` is to localize all.
        """
        registry = yaml.safe_load(self.stage.registry.read_text())
        for location in registry["locations"]:
            options = location["remote"]["options"]
            options["endpoint"] = addresses.get(location["region"], options["endpoint"])
        for region in registry["regions"]:
            region["catalog"]["read"] = addresses.get("catalog", region["catalog"]["read"])
            region |= {} if bulk_copy_threshold is None else {"bulk_copy_threshold": bulk_copy_threshold}
            region |= {"spark": addresses["spark"], "localize": "spark"} if "spark" in addresses else {}
        path = self.stage.work / f"registry-{next(self._numbers)}.yaml"
        path.write_text(yaml.safe_dump(registry))
        return open_region(path, name, environment_secrets())

    def assert_equal(self, region: str = "eu") -> None:
        """A replica is closed, shows the rows of `main`'s head, and tells of each run once."""
        branch = f"main_replica_{region}"
        with self.context(region) as context:
            assert verify_structure(context).findings == ()
        main, replica = (self._tables(name) for name in (SOURCE_BRANCH, branch))
        assert replica.keys() == main.keys()
        for name, location in main.items():
            born = name.removeprefix(f"{NAMESPACE}.").partition("_")[0]
            assert self.rows(replica[name], region) == self.rows(location, born), name
        history = self.catalog.history(f"{branch}@{self.catalog.reference(branch).hash}", operations=False)
        runs = [commit.properties[RUN_ID] for commit in history]
        assert len(runs) == len(set(runs)), "a run was committed twice"

    def assert_no_secret(self, *texts: str) -> None:
        """No endpoint's secret is in some texts, a log, a replica commit, what runs left beside the replica, or was
        on a command line.
        """
        assert "rclone/child.py" in self.command_lines.words, "no copy was ever looked at"
        assert not self.command_lines.showing
        left = [
            path
            for root in (self.stage.work.glob("*.log"), self.stage.work.glob("s3/*/*/replica/_sterna/**/*"))
            for path in root
            if path.is_file()
        ]
        history = [
            repr(commit)
            for commit in self.catalog.history(f"{BRANCH}@{self.catalog.reference(BRANCH).hash}", operations=True)
        ]
        assert left and history
        for endpoint in self.stage.endpoints.values():
            assert not [text for text in (*texts, *history) if endpoint.secret_key in text]
            assert not [path for path in left if endpoint.secret_key.encode() in path.read_bytes()]

    def rows(self, location: str, region: str) -> list[tuple[Any, ...]]:
        """Return a table's rows, read at one region's own endpoint alone."""
        table = (
            StaticTable.from_metadata(location, pyiceberg_properties(self.stage.endpoints[region])).scan().to_arrow()
        )
        return sorted(zip(*table.to_pydict().values(), strict=True))

    def copied(self, since: int = 0) -> list[str]:
        """Return the keys of data files that were written in eu, each as often as it was."""
        written = (
            request for request in self.stage.endpoints["eu"].requests(since) if request.method in ("PUT", "COMPLETE")
        )
        return [
            request.key for request in written if request.key.endswith(".parquet") and "/_sterna/" not in request.key
        ]

    def nothing_sent_again(self, since: int) -> Callable[[], bool]:
        """Return what tells whether no data file that has arrived in eu by now, after some request there, is
        written once more.

        Within one copy rclone itself repeats an upload that the endpoint broke off; that isn't a file that had arrived.
        """
        arrived, now = set(self.copied(since)), len(self.stage.endpoints["eu"].requests())
        return lambda: not arrived & set(self.copied(now))

    def _tables(self, branch: str) -> dict[str, str]:
        entries = self.catalog.entries(branch, self.catalog.reference(branch).hash)
        return {key_name(key): content.metadata_location for key, content in entries if content.metadata_location}

    def _rows(self) -> pa.Table:
        number = next(self._numbers)
        return pa.table({"id": pa.array([number, number + 1], pa.int64()), "name": [f"row {number}", "x" * 50]})


@contextmanager
def pair_in(folder: Path, access: TokenIssuer | None = None) -> Iterator[Pair]:
    """Bring up both regions in a folder.

    With an access only writers write, and the pair's own catalog is an operator's.
    """
    with (
        deployment(folder, postgres=False, count_requests=True, token_issuer=access) as stage,
        temporary_environment(stage.environment),
        NessieCatalog(
            stage.nessie.uri, NessieAuth("bearer", secret=access.token("operator", "admin")) if access else None
        ) as catalog,
    ):
        uri = f"{stage.nessie.iceberg_uri}/main"
        login = {"token": access.token("writer", "writer")} if access else {}
        writers = {
            region: load_catalog(
                "main", type="rest", uri=uri, warehouse=region, **login, **pyiceberg_properties(endpoint)
            )
            for region, endpoint in stage.endpoints.items()
        }
        with watching(*(endpoint.secret_key for endpoint in stage.endpoints.values())) as command_lines:
            yield Pair(stage, catalog, writers, command_lines)
        assert not command_lines.showing
