"""`sterna demo --disaster`: a region is killed whole; the other reads on, is promoted and takes commits.

The first comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.demo import nyc
from sterna.demo.folder import work_folder
from sterna.edges.environment import environment
from sterna.edges.nessie.catalog import NessieCatalog
from sterna.edges.postgres.connection import connected
from sterna.embedded.sites import Sites, sites
from sterna.errors import NotPrimary, SternaError
from sterna.ha.promote import plan_promotion, promote
from sterna.ha.rejoin import fence_if_old, rejoin
from sterna.ha.tables import plan_moves
from sterna.registry.model import SOURCE_BRANCH
from sterna.render.catalog import moves_text
from sterna.replica.region import open_region
from sterna.sync.options import SyncOptions
from sterna.sync.run import sync
from sterna.verify.structure import verify_structure

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

Say = Callable[[str], None]
_US_TABLE, _EU_TABLE = f"{nyc.NAMESPACE}.airlines", f"{nyc.NAMESPACE}.airports"
_ARRIVES_SECONDS = 60.0


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


def run_disaster(work: Path | None, say: Say) -> DisasterResult:
    """Play it with real servers: Postgres, Nessie and an S3 endpoint a region.

    Args:
        work: a folder that stays, new or empty; None: a temporary one that goes.
        say: called with each line of the story.

    Raises:
        UsageError: the folder holds something, or can't be made.
        SternaError: a part did not start, or a step failed.
    """
    started, result = time.monotonic(), DisasterResult()
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work, "sterna-disaster-"))

        def tell(text: str) -> None:
            say(f"[{time.monotonic() - started:6.1f} s] {text}")

        tell(f"starting regions us and eu, each with its Postgres, Nessie and S3 endpoint, in {folder}")
        running = stack.enter_context(sites(folder))
        stack.enter_context(environment(running.environment))
        _Story(running, tell, result).play()
    result.ok, result.seconds = not result.failures, time.monotonic() - started
    return result


@dataclass
class _Story:
    sites: Sites
    say: Say
    result: DisasterResult

    def play(self) -> None:
        self.before()
        self.disaster()
        self.promotion()
        self.after()

    def before(self) -> None:
        us, eu = self.writer("us", "us"), self.writer("us", "eu")
        us.create_namespace(nyc.NAMESPACE)
        us.create_table(_US_TABLE, nyc.rows("airlines").schema).append(nyc.rows("airlines"))
        eu.create_table(_EU_TABLE, nyc.rows("airports").schema).append(nyc.rows("airports"))
        self.say("us is the primary. airlines was born in us, airports in eu, both by commits to main")
        for region in self.sites.site:
            self.sync(region)
        self.arrived("eu", "main_replica_eu")
        self.say(f"eu reads its own copy, through its own catalog and store: {self.count('eu', _US_TABLE)} airlines")

    def disaster(self) -> None:
        registry, site = self.sites.read_registry(), self.sites.site["us"]
        with connected(registry.region("eu"), self.sites.secrets) as connection:
            connection.execute("ALTER SUBSCRIPTION sterna DISABLE")
        self.writer("us", "us").load_table(_US_TABLE).append(nyc.rows("airlines"))
        self.say("the line between the regions breaks; us still takes one commit, which nobody else has")
        site.kill()
        self.say("us is killed whole: catalog, database and store")
        self.check("eu reads on", self.count("eu", _US_TABLE) == nyc.rows("airlines").num_rows)
        self.say(f"eu reads on, alone: {self.count('eu', _US_TABLE)} airlines, {self.count('eu', _EU_TABLE)} airports")
        try:
            self.writer("eu", "eu").load_table(_EU_TABLE).append(nyc.rows("airports"))
            self.result.failures.append("eu took a commit before it was promoted")
        except Exception as error:  # noqa: BLE001 - PyIceberg has one of its own for each HTTP status
            self.say(f"eu's copy takes no commits ({type(error).__name__})")

    def promotion(self) -> None:
        registry = self.sites.read_registry()
        promotion = plan_promotion(registry, self.sites.secrets, "eu", planned=False)
        self.say("$ sterna catalog promote --region eu --with-tables")
        with open_region(self.sites.registry, "eu", self.sites.secrets) as context:
            moves = plan_moves(context, ["us"])
        self.say(moves_text(moves))
        promote(registry, self.sites.secrets, promotion, self.say, moves=moves)
        before = self.count("eu", _EU_TABLE, SOURCE_BRANCH)
        self.writer("eu", "eu").load_table(_EU_TABLE).append(nyc.rows("airports"))
        self.check("eu takes commits", self.count("eu", _EU_TABLE, SOURCE_BRANCH) == 2 * before)
        self.say(
            f"eu takes commits: airports grew from {before} to {self.count('eu', _EU_TABLE, SOURCE_BRANCH)} rows on "
            "main"
        )
        self.writer("eu", "eu").load_table(_US_TABLE).append(nyc.rows("airlines"))
        grown = self.count("eu", _US_TABLE, SOURCE_BRANCH)
        self.check("eu takes commits to the table that was born in us", grown == 2 * nyc.rows("airlines").num_rows)
        self.say(f"and to airlines, which was born in us: {grown} rows on main, from eu's store alone")
        self.sync("eu")

    def after(self) -> None:
        registry, site = self.sites.read_registry(), self.sites.site["us"]
        site.start_postgres()
        site.endpoint.start()
        self.say("us comes back. $ sterna catalog guard --region us, before its Nessie starts")
        primary = fence_if_old(registry.region("us"), registry, self.sites.secrets)
        site.start_nessie()
        self.check("us is fenced", primary == "eu" and not self.takes_commits("us"))
        self.say(f"{primary} is the primary: us takes no commits. $ sterna catalog rejoin --region us")
        done = rejoin(registry, self.sites.secrets, "us", self.say)
        self.result.lost = sum(len(lost.commits) for lost in done.lost)
        self.check("the one commit that only us had is kept", self.result.lost == 1)
        for region in self.sites.site:
            self.sync(region)
        for region in self.sites.site:
            self.arrived(region, f"main_replica_{region}")
            self.check_replica(region)

    def check_replica(self, region: str) -> None:
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            faults = verify_structure(context).findings
        self.check(f"{region}'s replica is whole", not faults)
        airlines, airports = self.count(region, _US_TABLE), self.count(region, _EU_TABLE)
        self.say(f"{region}: {airlines} airlines, {airports} airports, faults: {len(faults)}")
        self.check(f"{region} has eu's commit to airlines", airlines == 2 * nyc.rows("airlines").num_rows)
        self.check(f"{region} has eu's commit to airports", airports == 2 * nyc.rows("airports").num_rows)

    def sync(self, region: str) -> None:
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            report = sync(context, SyncOptions(), lambda line: None)
        self.check(f"{region} holds nothing", not report.held)
        self.say(
            f"$ sterna sync --region {region}: {report.copied.files} files copied, main_replica_{region} stands for "
            "main"
        )

    def arrived(self, region: str, branch: str) -> None:
        """Wait until a region's own catalog shows what the primary's does."""
        registry = self.sites.read_registry()
        with open_region(self.sites.registry, region, self.sites.secrets) as context:
            wanted, deadline = context.primary.reference(branch), time.monotonic() + _ARRIVES_SECONDS
            while context.catalog.reference(branch) != wanted:
                if time.monotonic() > deadline:
                    raise SternaError(
                        f"{branch} did not arrive in {registry.region(region).name} within {_ARRIVES_SECONDS:.0f} s"
                    )
                time.sleep(0.1)

    def takes_commits(self, region: str) -> bool:
        with NessieCatalog(self.sites.site[region].uri) as catalog:
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

        settings = self.sites.site[store].endpoint.pyiceberg_properties()
        return load_catalog(
            branch, type="rest", uri=f"{self.sites.site[catalog].iceberg_uri}/{branch}", warehouse=store, **settings
        )

    def check(self, what: str, holds: bool) -> None:
        if not holds:
            self.result.failures.append(f"not so: {what}")
