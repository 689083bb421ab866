"""`sterna demo --disaster`: a table is dropped with purge and restored. Then one region is killed; the other continues
to serve reads, is promoted and takes commits. The first rejoins. A third region is seeded while the first one's
store is down.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.environment import temporary_environment
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.demo import nyc
from sterna.demo.folder import work_folder
from sterna.demo.rest_address import serve_catalog
from sterna.errors import NotPrimary, SternaError
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.postgres.connection import open_connection
from sterna.replication.failover.promote import plan_promotion, promote
from sterna.replication.failover.rejoin import guard_region, rejoin
from sterna.replication.failover.tables import plan_moves
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import Progress, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.sites import Sites, sites
from sterna.text.catalog import moves_text
from sterna.text.restore import restored_text

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_US_TABLE, _EU_TABLE = f"{nyc.NAMESPACE}.airlines", f"{nyc.NAMESPACE}.airports"
_TABLE_OF_BOTH = f"{nyc.NAMESPACE}.planes"  # born in us, and eu writes to it
_DROPPED_TABLE = f"{nyc.NAMESPACE}.carriers"  # born in us, and dropped there with all of its files
_TABLES = (_US_TABLE, _EU_TABLE, _TABLE_OF_BOTH, _DROPPED_TABLE)
REGIONS = ("us", "eu", "ap")
_LATE_REGION = REGIONS[2]  # it has no replica before us's store is down
_REPLICATION_TIMEOUT_SECONDS = 60.0


@dataclass
class DisasterResult:
    """How the demo ended.

    Args:
        ok: every check held.
        seconds: how long it took.
        lost: commits that only the killed region had; they are kept on a branch.
        failures: what did not hold.
    """

    ok: bool = False
    seconds: float = 0.0
    lost: int = 0
    failures: list[str] = field(default_factory=list)


def run_disaster(work: Path | None, progress: Progress, *, regions: int = 2) -> DisasterResult:
    """Play it with real servers: Postgres, Nessie and an S3 endpoint a region.

    Args:
        work: a folder that is kept, new or empty; None: a temporary one.
        progress: called with each line of the story.
        regions: 2, or 3 with a region that is seeded from another one's copies.

    Raises:
        UsageError: the folder holds something, or can't be made.
        SternaError: a part did not start, or a step failed.
    """
    started, outcome = time.monotonic(), DisasterResult()
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work, "sterna-disaster-"))

        def timed_progress(text: str) -> None:
            progress(f"[{time.monotonic() - started:6.1f} s] {text}")

        names = REGIONS[:regions]
        shown_names = f"{', '.join(names[:-1])} and {names[-1]}"
        timed_progress(f"starting regions {shown_names}, each with its Postgres, Nessie and S3 endpoint, in {folder}")
        running_sites = stack.enter_context(sites(folder, names, verbatim_copies=True))
        stack.enter_context(temporary_environment(running_sites.environment))
        _DisasterScenario(running_sites, timed_progress, outcome).run()
    outcome.ok, outcome.seconds = not outcome.failures, time.monotonic() - started
    return outcome


@dataclass
class _DisasterScenario:
    sites: Sites
    progress: Progress
    outcome: DisasterResult

    def run(self) -> None:
        self.before()
        self.drop_and_restore()
        self.dark_store()
        self.disaster()
        self.promotion()
        self.after()

    def before(self) -> None:
        us, eu = self.writer("us", "us"), self.writer("us", "eu")
        us.create_namespace(nyc.NAMESPACE)
        us.create_table(_US_TABLE, nyc.rows("airlines").schema).append(nyc.rows("airlines"))
        us.create_table(_DROPPED_TABLE, nyc.rows("airlines").schema).append(nyc.rows("airlines"))
        us.create_table(_TABLE_OF_BOTH, nyc.rows("planes").schema).append(nyc.rows("planes"))
        eu.create_table(_EU_TABLE, nyc.rows("airports").schema).append(nyc.rows("airports"))
        self.progress("us is the primary. airlines, carriers and planes were born in us, airports in eu, all on main")
        for region in ("us", "eu"):
            self.sync(region)
        self.wait_until_replicated("eu", "main_replica_eu")
        self.progress(
            f"eu reads its own copy, through its own catalog and store: {self.count('eu', _US_TABLE)} airlines"
        )

    def drop_and_restore(self) -> None:
        """Drop a table of us with all of its files, and bring it back from eu's copies."""
        us = self.writer("us", "us")
        table = us.load_table(_DROPPED_TABLE)
        expected = table.scan().to_arrow().to_pylist()
        with NessieCatalog(self.sites.by_region["us"].uri) as catalog:
            as_of = catalog.reference(SOURCE_BRANCH).hash
        us.drop_table(_DROPPED_TABLE)
        nyc.delete_folder(self.sites.by_region["us"].endpoint, table.location())
        self.progress("carriers is dropped in us, with PURGE: none of its files is left there")
        self.sync("eu")
        self.progress(f"$ sterna restore {_DROPPED_TABLE} --region eu --as-of {as_of} --yes")
        with open_region(self.sites.registry, "eu", self.sites.secrets) as context:
            report = restore(context, RestoreRequest(as_of, (_DROPPED_TABLE,)), lambda line: None, apply=True)
        self.progress(restored_text(report))
        self.check("carriers comes from eu's copies", [restored.files_from for restored in report.tables] == ["eu"])
        rows = self.open("us", "eu", SOURCE_BRANCH).load_table(_DROPPED_TABLE).scan().to_arrow().to_pylist()
        self.check("carriers has the rows that it had", rows == expected)
        self.progress(f"carriers is on main again, with its {len(rows)} rows")

    def dark_store(self) -> None:
        """Write to a table of us by eu's REST address while us's store is down, and its catalog up."""
        from pyiceberg.catalog.rest import RestCatalog

        planes, endpoint = nyc.rows("planes"), self.sites.by_region["us"].endpoint
        endpoint.suspend()
        self.progress("us's store goes down, and the catalog stays up: eu writes to planes by its own REST address")
        try:
            with (
                open_region(self.sites.registry, "eu", self.sites.secrets) as context,
                serve_catalog(context) as url,
            ):
                properties = self.sites.by_region["eu"].endpoint.pyiceberg_properties()
                RestCatalog("eu", uri=url, **properties).load_table(_TABLE_OF_BOTH).append(planes)
            if _LATE_REGION in self.sites.by_region:
                self.seed_late_region()
        finally:
            endpoint.start()
        for region in self.sites.by_region:
            self.sync(region)
        self.wait_until_replicated("eu", "main_replica_eu")
        row_count = self.count("us", _TABLE_OF_BOTH)
        self.check("us reads what eu wrote while us was dark", row_count == 2 * planes.num_rows)
        self.progress(f"us's store is back, and us reads what eu wrote: {row_count} planes")

    def seed_late_region(self) -> None:
        """Seed the third region while the store of us, where most of the files were written, is down."""
        self.sync("eu")
        self.wait_until_replicated(_LATE_REGION, "main_replica_eu")
        self.sync(_LATE_REGION)
        expected = {table: self.count("eu", table) for table in _TABLES}
        row_counts = {table: self.count(_LATE_REGION, table) for table in _TABLES}
        self.check(f"{_LATE_REGION} was seeded with all rows while us was dark", row_counts == expected)
        self.progress(f"{_LATE_REGION} is seeded from eu's copies while us's store is down: {row_counts}")

    def disaster(self) -> None:
        registry, site = self.sites.read_registry(), self.sites.by_region["us"]
        for region in registry.region_names[1:]:
            with open_connection(registry.region(region), self.sites.secrets) as connection:
                connection.execute("ALTER SUBSCRIPTION sterna DISABLE")
        self.writer("us", "us").load_table(_US_TABLE).append(nyc.rows("airlines"))
        self.progress("the line between the regions breaks; us still takes one commit, which no other region has")
        site.kill()
        self.progress("us is killed: catalog, database and store")
        self.check("eu reads on", self.count("eu", _US_TABLE) == nyc.rows("airlines").num_rows)
        self.progress(
            f"eu reads on, alone: {self.count('eu', _US_TABLE)} airlines, {self.count('eu', _EU_TABLE)} airports"
        )
        try:
            self.writer("eu", "eu").load_table(_EU_TABLE).append(nyc.rows("airports"))
            self.outcome.failures.append("eu took a commit before it was promoted")
        except Exception as error:  # noqa: BLE001 - PyIceberg has one of its own for each HTTP status
            self.progress(f"eu's copy takes no commits ({type(error).__name__})")

    def promotion(self) -> None:
        registry = self.sites.read_registry()
        promotion = plan_promotion(registry, self.sites.secrets, "eu", planned=False)
        self.progress("$ sterna catalog promote --region eu --with-tables")
        with open_region(self.sites.registry, "eu", self.sites.secrets) as context:
            moves = plan_moves(context, ["us"])
        self.progress(moves_text(moves))
        promote(registry, self.sites.secrets, promotion, self.progress, moves=moves)
        before = self.count("eu", _EU_TABLE, SOURCE_BRANCH)
        self.writer("eu", "eu").load_table(_EU_TABLE).append(nyc.rows("airports"))
        self.check("eu takes commits", self.count("eu", _EU_TABLE, SOURCE_BRANCH) == 2 * before)
        self.progress(
            f"eu takes commits: airports grew from {before} to {self.count('eu', _EU_TABLE, SOURCE_BRANCH)} rows on "
            "main"
        )
        self.writer("eu", "eu").load_table(_US_TABLE).append(nyc.rows("airlines"))
        row_count = self.count("eu", _US_TABLE, SOURCE_BRANCH)
        self.check("eu takes commits to the table that was born in us", row_count == 2 * nyc.rows("airlines").num_rows)
        self.progress(f"and to airlines, which was born in us: {row_count} rows on main, from eu's store alone")
        self.sync("eu")

    def after(self) -> None:
        registry, site = self.sites.read_registry(), self.sites.by_region["us"]
        site.start_postgres()
        site.endpoint.start()
        self.progress("us restarts. $ sterna catalog guard --region us, before its Nessie starts")
        primary = guard_region(registry.region("us"), registry, self.sites.secrets).primary
        site.start_nessie()
        self.check("us is fenced", primary == "eu" and not self.takes_commits("us"))
        self.progress(f"{primary} is the primary: us takes no commits. $ sterna catalog rejoin --region us")
        rejoined = rejoin(registry, self.sites.secrets, "us", self.progress)
        self.outcome.lost = sum(len(lost.commits) for lost in rejoined.lost)
        self.check("the one commit that only us had is kept", self.outcome.lost == 1)
        for region in self.sites.by_region:
            self.sync(region)
        for region in self.sites.by_region:
            self.wait_until_replicated(region, f"main_replica_{region}")
            self.check_replica(region)

    def check_replica(self, region: str) -> None:
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            faults = verify_structure(context).findings
        self.check(f"{region}'s replica is complete", not faults)
        airlines, airports = self.count(region, _US_TABLE), self.count(region, _EU_TABLE)
        carriers = self.count(region, _DROPPED_TABLE)
        self.progress(f"{region}: {airlines} airlines, {carriers} carriers, {airports} airports, faults: {len(faults)}")
        self.check(f"{region} has eu's commit to airlines", airlines == 2 * nyc.rows("airlines").num_rows)
        self.check(f"{region} has eu's commit to airports", airports == 2 * nyc.rows("airports").num_rows)
        self.check(f"{region} has what was restored", carriers == nyc.rows("airlines").num_rows)

    def sync(self, region: str) -> None:
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            report = sync(context, SyncOptions(), lambda line: None)
        self.check(f"{region} holds nothing", not report.held)
        self.progress(
            f"$ sterna sync --region {region}: {report.copied.files} files copied, main_replica_{region} is at main"
        )

    def wait_until_replicated(self, region: str, branch: str) -> None:
        """Wait until a region's own catalog shows what the primary's does."""
        registry = self.sites.read_registry()
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            expected, deadline = context.primary.reference(branch), time.monotonic() + _REPLICATION_TIMEOUT_SECONDS
            while context.catalog.reference(branch) != expected:
                if time.monotonic() > deadline:
                    raise SternaError(
                        f"{branch} did not arrive in {registry.region(region).name} within "
                        f"{_REPLICATION_TIMEOUT_SECONDS:.0f} s"
                    )
                time.sleep(0.1)

    def takes_commits(self, region: str) -> bool:
        with NessieCatalog(self.sites.by_region[region].uri) as catalog:
            try:
                catalog.create_branch("never")
            except NotPrimary:
                return False
        return True

    def count(self, region: str, table: str, branch: str = "") -> int:
        """Return a table's rows as the region's own catalog and store have them."""
        branch = branch or f"main_replica_{region}"
        return int(self.open(region, region, branch).load_table(table).scan().to_arrow().num_rows)

    def writer(self, catalog: str, store: str) -> Catalog:
        return self.open(catalog, store, SOURCE_BRANCH)

    def open(self, catalog: str, store: str, branch: str) -> Catalog:
        from pyiceberg.catalog import load_catalog

        settings = self.sites.by_region[store].endpoint.pyiceberg_properties()
        return load_catalog(
            branch,
            type="rest",
            uri=f"{self.sites.by_region[catalog].iceberg_uri}/{branch}",
            warehouse=store,
            **settings,
        )

    def check(self, condition: str, holds: bool) -> None:
        if not holds:
            self.outcome.failures.append(f"not so: {condition}")
