"""Three regions with a catalog of their own, struck and brought back inside tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path

import httpx
import psutil
import psycopg
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from sterna.catalog.model import Unchanged
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import Deadlines
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import SOURCE_BRANCH, Registry
from sterna.errors import SternaError, UsageError
from sterna.postgres.connection import open_connection
from sterna.replication.failover.model import CatalogSite
from sterna.replication.failover.promote import Promoted, plan_promotion, promote
from sterna.replication.failover.rejoin import Rejoined, rejoin
from sterna.replication.failover.site import inspect_sites, newest_term
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.sites import Sites, kill, sites
from tests.support.world import pyiceberg_properties

REGIONS = ("us", "eu", "ap")
WAIT_SECONDS = 60.0
_UNREACHABLE_HOST = "127.0.0.1:1"
_CONNECTIONS = 20
# A test's client asks another region rather than the same one again.
_DEADLINES = Deadlines(connect=2.0, read=15.0, total=20.0, attempts=1)


def silent(line: str) -> None:
    """Take a line and say nothing."""


def until(description: str, true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not in {WAIT_SECONDS:.0f} s: {description}"
        time.sleep(0.05)


@dataclass
class Cluster:
    """Regions us, eu and ap.

    Args:
        sites: their servers.
        registry: where they are.
    """

    sites: Sites
    registry: Registry
    _numbers: Iterator[int] = field(default_factory=count)

    def catalog(self, region: str) -> NessieCatalog:
        """Return a new client of a region's own Nessie."""
        return NessieCatalog(self.sites.by_region[region].uri, deadlines=_DEADLINES)

    def head(self, region: str, branch: str = SOURCE_BRANCH) -> str:
        """Return where a branch stands, as a region serves it."""
        with self.catalog(region) as catalog:
            return catalog.reference(branch).hash

    def commit(self, region: str, branch: str = SOURCE_BRANCH) -> str:
        """Commit through a region's Nessie; return the hash."""
        with self.catalog(region) as catalog:
            head = catalog.reference(branch).hash
            return catalog.commit(branch, head, [Unchanged(("nothing",))], f"commit {next(self._numbers)}", {})

    def commit_under_tag(self, region: str, tag: str) -> str:
        """Commit what only a tag shows: its branch is gone again; return the hash."""
        branch = f"{tag}-aside"
        with self.catalog(region) as catalog:
            before = catalog.history(SOURCE_BRANCH, operations=False)
            catalog.create_branch(branch, [commit.hash for commit in before][1])
        hash = self.commit(region, branch)
        with self.catalog(region) as catalog:
            catalog.create_tag(tag, branch, hash)
        uri = self.sites.by_region[region].uri
        httpx.delete(f"{uri}/trees/{branch}@{hash}", params={"type": "BRANCH"}).raise_for_status()
        return hash

    def history(self, region: str, reference: str = SOURCE_BRANCH) -> list[str]:
        """Return the hashes of a branch's commits, newest first."""
        with self.catalog(region) as catalog:
            return [commit.hash for commit in catalog.history(reference, operations=False)]

    def references(self, region: str) -> dict[str, str]:
        """Return a region's branches and tags and where they stand."""
        with self.catalog(region) as catalog:
            return {reference.name: reference.hash for reference in catalog.references()}

    def read_sites(self) -> dict[str, CatalogSite]:
        """Return all regions' catalogs."""
        return inspect_sites(self.registry.regions, self.sites.secrets)

    def primary(self) -> str:
        """Return the region of the newest epoch."""
        newest = newest_term(list(self.read_sites().values()))
        assert newest is not None
        return newest.region

    def promote(
        self, region: str, *, planned: bool = False, registry: Registry | None = None, gone: Collection[str] = ()
    ) -> Promoted:
        """Promote a region, as `sterna catalog promote` does."""
        effective = registry or self.registry
        promotion = plan_promotion(effective, self.sites.secrets, region, planned=planned, gone=gone)
        return promote(effective, self.sites.secrets, promotion, silent)

    def rejoin(self, region: str) -> Rejoined:
        """Let a region rejoin, as `sterna catalog rejoin` does."""
        return rejoin(self.registry, self.sites.secrets, region, silent)

    def without(self, *dark: str) -> Registry:
        """Return the registry as it works where some regions can't be reached."""

        def cut(region):
            database = region.catalog.database.model_copy(update={"hosts": [_UNREACHABLE_HOST]})
            return region.model_copy(update={"catalog": region.catalog.model_copy(update={"database": database})})

        regions = [cut(region) if region.name in dark else region for region in self.registry.regions]
        return self.registry.model_copy(update={"regions": regions})

    def sql(self, region: str, statement: str) -> None:
        """Run a statement in a region's database as its superuser."""
        with psycopg.connect(
            replace(self.sites.by_region[region].postgres.admin, name="nessie").url(), autocommit=True
        ) as connection:
            connection.execute(statement)

    def stop_applying(self, *regions: str) -> None:
        """Let regions fall behind, as a link that is too slow does."""
        for region in regions:
            self.sql(region, "ALTER SUBSCRIPTION sterna DISABLE")
            until(f"{region} stops", lambda region=region: not self.read_sites()[region].following.working)

    def promote_furthest(self) -> str:
        """Promote the copy that has received most of a primary that died; return which one that is."""
        copies = cycle(region for region in REGIONS if region != self.primary())
        promoted: list[str] = []

        def is_promoted() -> bool:
            region = next(copies)
            with suppress(UsageError):  # it has less than another one, which goes on applying what has arrived
                self.promote(region)
                promoted.append(region)
            return bool(promoted)

        until("a copy is promoted", is_promoted)
        return promoted[0]

    def kill_catalog(self, region: str) -> None:
        """Kill a region's Postgres; its Nessie runs and has nothing to say."""
        kill(self.sites.by_region[region].postgres.process)

    @contextmanager
    def hanging_catalog(self, region: str) -> Iterator[None]:
        """Stop a region's Postgres in its tracks: its port accepts connections, and nobody answers."""
        server = psutil.Process(self.sites.by_region[region].postgres.process.pid)
        stopped = [server, *server.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def kill(self, region: str) -> None:
        """Kill a region whole: catalog, database, storage."""
        self.sites.by_region[region].kill()

    def start_database(self, region: str) -> None:
        """Start what holds a region's data: database and storage, where they are down."""
        site = self.sites.by_region[region]
        if not site.postgres.process.is_alive():
            site.start_postgres()
            if site.nessie is not None and site.nessie.process.is_alive():
                # Its pool still holds connections of the server that died; each fails once.
                until(f"{region}'s Nessie is over it", lambda: all(self._reads(region) for _ in range(_CONNECTIONS)))
        if site.endpoint.process is None or not site.endpoint.process.is_alive():
            site.endpoint.start()

    def start_nessie(self, region: str) -> None:
        """Start a region's Nessie where it is down."""
        site = self.sites.by_region[region]
        if site.nessie is None or not site.nessie.process.is_alive():
            site.start_nessie()

    def wait_until_replicated(self, commit: str, *regions: str) -> None:
        """Wait until regions show a commit as the head of `main`."""
        for region in regions or REGIONS:
            until(f"{region} shows {commit}", lambda region=region: self.head(region) == commit)

    def assert_whole(self, primary: str) -> None:
        """A region is the primary and takes commits, the others follow it, take none and show the same."""
        sites = self.read_sites()
        assert {name for name, site in sites.items() if site.writable} == {primary}
        assert {name for name, site in sites.items() if site.following} == set(REGIONS) - {primary}
        assert {site.following.region for site in sites.values() if site.following} == {primary}
        assert len({site.term for site in sites.values()}) == 1
        assert {slot.name for slot in sites[primary].slots} == {f"sterna_{name}" for name in REGIONS if name != primary}
        assert all(not site.slots for name, site in sites.items() if name != primary)
        self.wait_until_replicated(self.commit(primary))
        assert self.references("us") == self.references("eu") == self.references("ap")

    def heal(self) -> None:
        """Start what is down, let everybody follow one primary, and make that us."""
        for region in REGIONS:
            self.start_database(region)
        for region in REGIONS:
            self.start_nessie(region)
        primary = self.primary()
        for name, site in self.read_sites().items():
            if name == primary:
                continue
            if (
                site.writable
                or site.following is None
                or not site.following.working
                or site.following.region != primary
            ):
                self.rejoin(name)
        if primary != "us":
            self.promote("us", planned=True)
        until("us takes commits", lambda: self._answers("us"))
        self.assert_whole("us")

    def _reads(self, region: str) -> bool:
        try:
            self.head(region)
        except SternaError:
            return False
        return True

    def _answers(self, region: str) -> bool:
        try:
            self.commit(region)  # a pool of connections that a Postgres took with it is made anew
        except SternaError:
            return False
        return True

    def append(self, table: str, region: str = "eu", *, through: str = "us") -> None:
        """Commit one data file to a small table that is at home in a region, through a region's Nessie.

        Make it where it is not there.
        """
        number = next(self._numbers)
        rows = pa.table({"id": pa.array([number], pa.int64()), "name": [f"row {number}"]})
        site = self.sites.by_region
        properties = pyiceberg_properties(site[region].endpoint)
        catalog = load_catalog(
            "main", type="rest", uri=f"{site[through].iceberg_uri}/main", warehouse=region, **properties
        )
        catalog.create_namespace_if_not_exists("ha")
        catalog.create_table_if_not_exists(f"ha.{table}", rows.schema).append(rows)

    @contextmanager
    def context(self, region: str) -> Iterator[RegionContext]:
        """Open a region, as a task does."""
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            yield context

    def sync(self, region: str) -> Report:
        """Sync a region in this process."""
        with self.context(region) as context:
            return sync(context, SyncOptions(), silent)

    def assert_closed(self, region: str) -> None:
        """A region's replica branch, as the region itself serves it, is closed and stands for `main`."""
        branch = f"main_replica_{region}"
        self.wait_until_replicated(self.head(self.primary()), region)
        until(f"{region} serves its replica", lambda: self.head(region, branch) == self.head(self.primary(), branch))
        with self.context(region) as context:
            verified = verify_structure(context)
        assert verified.findings == (), verified.findings

    def main_at_terms(self) -> list[tuple[int, str, str]]:
        """Return number, region and the head of `main` at the beginning of each epoch, as the primary knows them."""
        with open_connection(self.registry.region(self.primary()), self.sites.secrets) as connection:
            rows = connection.execute(
                "SELECT epoch, region, heads ->> 'refs/heads/main' FROM sterna_epoch ORDER BY epoch, region"
            )
            return [(int(number), str(region), str(head)) for number, region, head in rows]


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Bring up all regions in a folder."""
    with sites(folder, REGIONS) as deployment, temporary_environment(deployment.environment):
        yield Cluster(deployment, deployment.read_registry())
