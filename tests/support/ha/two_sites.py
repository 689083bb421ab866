"""Two regions with a catalog each: eu reads its own copy, and reaches all of us through proxies that can be struck."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable

from sterna.catalog.model import Unchanged, key_name
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogUnreachable, SternaError
from sterna.postgres.connection import open_connection
from sterna.replication.failover.rejoin import rejoin
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.sites import Sites, sites
from tests.support.faults.proxy import Fault, Proxy, proxy_to, reset
from tests.support.world import pyiceberg_properties

NAMESPACE = "ha"
BRANCH = "main_replica_eu"
_WAIT_SECONDS = 60.0


@dataclass
class TwoSites:
    """Regions us, the primary, and eu, a copy.

    Args:
        sites: their servers.
        us, eu: their catalogs, past all proxies.
        registry: as eu has it: all of us is reached through proxies.
        proxies: nessie, postgres, store: what eu's sterna reaches; replication: what eu's Postgres reaches.
        writers: PyIceberg's view of `main` at the primary, for tables born in either region.
    """

    sites: Sites
    us: NessieCatalog
    eu: NessieCatalog
    registry: Path
    proxies: dict[str, Proxy]
    writers: dict[str, Catalog]
    _numbers: Iterator[int] = field(default_factory=count)

    def strike(self, *names: str, fault: Fault = reset) -> None:
        """Let eu's connections to us meet a fault; to all of us when nothing is named."""
        for name in names or self.proxies:
            self.proxies[name].strike(fault)

    def heal(self) -> None:
        """Let eu reach all of us.

        Connections that hang are ended: an apply worker that waits for an answer waits for ever.
        """
        for proxy in self.proxies.values():
            proxy.strike(reset, times=0)

    def context(self, region: str = "eu") -> RegionContext:
        """Return a region as eu's registry says."""
        return open_region(self.registry, region, self.sites.secrets)

    def sync(self) -> Report:
        """Sync eu in this process."""
        with self.context() as context:
            return sync(context, SyncOptions(), lambda line: None)

    def create(self, region: str = "us") -> str:
        """Make a table in a region with a few rows, and return its name."""
        table = f"{NAMESPACE}.{region}_{next(self._numbers)}"
        self.writers[region].create_namespace_if_not_exists(NAMESPACE)
        self.writers[region].create_table(table, self._rows().schema)
        self.append(table)
        return table

    def append(self, table: str) -> None:
        """Commit one data file at the primary."""
        self.writers[_born(table)].load_table(table).append(self._rows())

    def commit(self) -> str:
        """Commit to `main` at the primary something that changes no table, and return its hash."""
        return self.us.commit(
            SOURCE_BRANCH, self.us.reference(SOURCE_BRANCH).hash, [Unchanged(("nothing",))], "nothing", {}
        )

    def reader(self, branch: str = BRANCH, warehouse: str = "eu") -> Catalog:
        """Return PyIceberg's view of a branch through eu's own Nessie and, for `eu`, its own store alone."""
        site = self.sites.by_region[warehouse]
        uri = f"{self.sites.by_region['eu'].iceberg_uri}/{branch}"
        return load_catalog("copy", type="rest", uri=uri, warehouse=warehouse, **pyiceberg_properties(site.endpoint))

    def serves(self) -> bool:
        """Say whether the copy shows all references as the primary does.

        Between two transactions of a reference's creation or deletion Nessie can't list them: it wants to finish the
        work.
        """
        try:
            return self.us.references() == self.eu.references()
        except CatalogUnreachable:
            return False

    def wait_until_served(self) -> None:
        """Wait until the copy has all that the primary has."""
        wait_until(self.serves, "the copy has not got what the primary has")

    def subscription(self, change: str) -> None:
        """Enable or disable eu's subscription."""
        self.execute("eu", f"ALTER SUBSCRIPTION sterna {change}")

    def execute(self, region: str, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in a region's Postgres, past all proxies, as its superuser."""
        with open_connection(self.sites.read_registry().region(region), self.sites.secrets) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def assert_equal(self) -> None:
        """The replica is closed and shows the rows of `main`'s head, each read at one region's own store."""
        with self.context() as context:
            assert verify_structure(context).findings == ()
        main, replica = (self._tables(name) for name in (SOURCE_BRANCH, BRANCH))
        assert replica.keys() == main.keys()
        for name, location in main.items():
            assert self._rows_at(replica[name], "eu") == self._rows_at(location, _born(name)), name

    def _tables(self, branch: str) -> dict[str, str]:
        entries = self.eu.entries(branch, self.eu.reference(branch).hash)
        return {key_name(key): content.metadata_location for key, content in entries if content.metadata_location}

    def _rows_at(self, location: str, region: str) -> list[tuple[Any, ...]]:
        properties = pyiceberg_properties(self.sites.by_region[region].endpoint)
        return rows(StaticTable.from_metadata(location, properties))

    def _rows(self) -> pa.Table:
        number = next(self._numbers)
        return pa.table({"id": pa.array([number, number + 1], pa.int64()), "name": [f"row {number}", "x" * 50]})


def rows(table: Any) -> list[tuple[Any, ...]]:
    """Return a table's rows, in an order of their own."""
    return sorted(zip(*table.scan().to_arrow().to_pydict().values(), strict=True))


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {_WAIT_SECONDS:.0f} s {otherwise}")
        time.sleep(0.1)


class Watcher:
    """A reader in eu that looks at the heads of `main` and of the replica branch all the time.

    Args:
        two: the regions.
    """

    def __init__(self, two: TwoSites) -> None:
        self.two = two
        self.seen: dict[str, list[str]] = {SOURCE_BRANCH: [], BRANCH: []}
        self.failures: list[str] = []
        self._over = Event()
        self._thread = Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def assert_forwards(self) -> None:
        """No look failed, and no head came before one that was seen earlier."""
        assert self.failures == []
        for branch, heads in self.seen.items():
            history = [commit.hash for commit in self.two.us.history(branch, operations=False)][::-1]
            places = [history.index(head) for head in heads]
            assert places == sorted(places), branch

    def _poll(self) -> None:
        while not self._over.wait(0.05):
            for branch, heads in self.seen.items():
                try:
                    head = self.two.eu.reference(branch).hash
                except SternaError as error:
                    self.failures.append(str(error))
                    continue
                if not heads or heads[-1] != head:
                    heads.append(head)


def _born(table: str) -> str:
    return table.removeprefix(f"{NAMESPACE}.").partition("_")[0]


@contextmanager
def two_sites_in(folder: Path) -> Iterator[TwoSites]:
    """Bring up both regions in a folder, a table of each, and the replica in eu.

    What eu knows of us goes through proxies.
    """
    with ExitStack() as stack:
        deployment = stack.enter_context(sites(folder, ("us", "eu")))
        stack.enter_context(temporary_environment(deployment.environment))
        us, eu = (stack.enter_context(NessieCatalog(site.uri)) for site in deployment.by_region.values())
        proxies = {name: stack.enter_context(proxy_to(port)) for name, port in _ports(deployment).items()}
        two = TwoSites(deployment, us, eu, _registry(deployment, proxies), proxies, {})
        for region, site in deployment.by_region.items():
            uri = f"{deployment.by_region['us'].iceberg_uri}/{SOURCE_BRANCH}"
            two.writers[region] = load_catalog(
                "main", type="rest", uri=uri, warehouse=region, **pyiceberg_properties(site.endpoint)
            )
        with two.context() as context:
            rejoin(
                context.registry, deployment.secrets, "eu", lambda line: None, keep=False
            )  # from now on through the proxy
        for region in deployment.by_region:
            two.create(region)
        two.sync()
        yield two


def _ports(deployment: Sites) -> dict[str, int]:
    us = deployment.by_region["us"]
    return {
        "nessie": us.port,
        "postgres": us.postgres.admin.port,
        "replication": us.postgres.admin.port,
        "store": us.endpoint.port,
    }


def _registry(deployment: Sites, proxies: dict[str, Proxy]) -> Path:
    def host(name: str) -> str:
        return urlsplit(proxies[name].url).netloc

    registry = yaml.safe_load(deployment.registry.read_text())
    us = registry["regions"][0]["catalog"]
    us["read"] = f"{proxies['nessie'].url}/api/v2"
    us["database"] |= {"hosts": [host("postgres")], "replication_hosts": [host("replication")]}
    registry["locations"][0]["remote"]["options"]["endpoint"] = proxies["store"].url
    path = deployment.work / "registry-of-eu.yaml"
    path.write_text(yaml.safe_dump(registry))
    return path
