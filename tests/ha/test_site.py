"""A node of a site dies.

Two Nessies over Postgres with a synchronous standby go on, and keep every acknowledged commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import pytest

from sterna.catalog.model import Put, namespace_content
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import Deadlines
from sterna.errors import CatalogError
from sterna.servers.nessie import Nessie, start_nessie
from sterna.servers.postgres import Database
from tests.support.servers.patroni import Cluster, Member, start_cluster

RESUME_SECONDS = 240  # a bound, and no promise: a machine that is busy takes long to elect and to connect
SOME = 20
LEASE_SECONDS = 35  # in which a standby takes over, if it does: ttl and loop_wait of patroni.yml, and some


@dataclass
class Site:
    """Two Nessies over one Postgres cluster.

    Args:
        work: the folder for logs.
        cluster: Postgres.
        database: the catalog's.
        nessies: the servers; a killed one is replaced by a new one.
    """

    work: Path
    cluster: Cluster
    database: Database
    nessies: list[Nessie]
    names: Iterator[int] = field(default_factory=count)

    def roles(self) -> tuple[Member, Member]:
        """Return primary and standby, once there are both."""
        self.cluster.wait_until_safe()
        primary = self.cluster.primary()
        (standby,) = [member for member in self.cluster.members if member is not primary]
        return primary, standby

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Let a writer commit meanwhile.

        Afterwards all that was acknowledged to it stands in main's history, in that order.
        """
        writer = Writer([nessie.uri for nessie in self.nessies], f"writer-{next(self.names)}")
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(writer.run)
            try:
                writer.wait_for(SOME)
                yield writer
            finally:
                writer.stopped.set()
            running.result()
        for nessie in self.nessies:
            with NessieCatalog(nessie.uri) as catalog:
                commits = [
                    commit.hash
                    for commit in catalog.history(f"main@{catalog.reference('main').hash}", operations=False)
                ]
            acknowledged = [commit for commit, _ in writer.acknowledged]
            assert [commit for commit in reversed(commits) if commit in set(acknowledged)] == acknowledged


@dataclass
class Writer:
    """Commits to main without pause, through one Nessie as long as it answers, then through another.

    Args:
        uris: the Nessies.
        name: what its keys start with.
        acknowledged: the hash of each commit that was acknowledged, and when.
    """

    uris: list[str]
    name: str
    acknowledged: list[tuple[str, float]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        deadlines = Deadlines(connect=2, read=5, total=10, attempts=1)
        with ExitStack() as stack:
            catalogs = [stack.enter_context(NessieCatalog(uri, deadlines=deadlines)) for uri in self.uris]
            for number in count():
                if self.stopped.is_set():
                    return
                key = (f"{self.name}-{number}",)
                try:
                    # Read anew: a commit without an answer may have happened.
                    head = catalogs[0].reference("main").hash
                    commit = catalogs[0].commit("main", head, [Put(key, namespace_content(key))], "test")
                    self.acknowledged.append((commit, time.monotonic()))
                except CatalogError:
                    catalogs.append(catalogs.pop(0))
                    time.sleep(0.05)

    def wait_for(self, more: int) -> float:
        """Wait for some more acknowledged commits; return the longest pause between two of them."""
        started, before = time.monotonic(), len(self.acknowledged)
        while len(self.acknowledged) < before + more:
            assert time.monotonic() - started < RESUME_SECONDS, f"no {more} commits within {RESUME_SECONDS} s"
            time.sleep(0.01)
        times = [started, *(when for _, when in self.acknowledged[before:])]
        return max(later - earlier for earlier, later in pairwise(times))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    work = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        cluster = start_cluster(work)
        stack.callback(cluster.stop)
        database = cluster.create_database("nessie")
        nessie_site = Site(work, cluster, database, [])
        for name in "ab":
            nessie_site.nessies.append(start_nessie(work / f"nessie-{name}", database=database))
        stack.callback(lambda: [nessie.stop() for nessie in nessie_site.nessies])
        yield nessie_site


def report_pause(what: str, seconds: float) -> None:
    # For the figures in docs/procedures.md: pytest -rP.
    print(f"{what}: no commit for {seconds:.1f} s")


def test_a_nessie_that_is_killed_is_one_of_two(site: Site) -> None:
    with site.writing() as writer:
        site.nessies[0].process.popen.kill()
        report_pause("kill -9 of the Nessie in use", writer.wait_for(SOME))
        site.nessies[0].stop()
        # It had nothing that another one can't take from Postgres.
        site.nessies[0] = start_nessie(site.work / "nessie-new", database=site.database)


def test_a_primary_that_is_killed_is_replaced_and_comes_back_as_standby(site: Site) -> None:
    first, _ = site.roles()
    with site.writing() as writer:
        first.kill()
        report_pause("kill -9 of the primary, Postgres and Patroni", writer.wait_for(SOME))
        assert site.cluster.primary() is not first
        site.cluster.start(first)
        site.cluster.wait_until_safe()
        assert first.is_standby()
        writer.wait_for(SOME)


def test_a_standby_that_missed_commits_does_not_take_over(site: Site) -> None:
    primary, standby = site.roles()
    with site.writing() as writer:
        standby.kill()
        report_pause("kill -9 of the standby", writer.wait_for(SOME))  # the primary alone has these
        primary.kill()
        site.cluster.start(standby)
        time.sleep(LEASE_SECONDS)
        assert not standby.is_primary()
        site.cluster.start(primary)
        writer.wait_for(SOME)


@pytest.mark.rare
def test_a_postgres_that_dies_alone_is_started_again(site: Site) -> None:
    primary, _ = site.roles()
    with site.writing() as writer:
        primary.kill_postgres()
        report_pause("kill -9 of the primary's Postgres alone", writer.wait_for(SOME))


@pytest.mark.rare
def test_the_third_voter_may_die(site: Site) -> None:
    site.cluster.wait_until_safe()
    with site.writing() as writer:
        site.cluster.voter.popen.kill()
        report_pause("kill -9 of the third voter", writer.wait_for(SOME))
    site.cluster.start_voter()


def content(path: Path) -> bytes:
    """Return what is in a file; of a cluster at work some go while one looks."""
    with suppress(FileNotFoundError, IsADirectoryError):
        return path.read_bytes()
    return b""


def test_no_password_stands_in_a_file_that_stays_or_on_a_command_line(site: Site) -> None:
    setup = site.cluster.setup
    secrets = [value.encode() for name, value in setup.passwords.items() if name.endswith("PASSWORD")] + [
        site.database.password.encode()
    ]
    folders = [path for path in setup.home.iterdir() if path.name != "pginstall"] + [site.work]
    files = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    leaking_files = {path.name for path in files for secret in secrets if secret in content(path)}
    assert leaking_files == {"pgpass"}  # which ends with the cluster
    commands = " ".join(str(part) for member in site.cluster.members for part in member.process.popen.args)
    assert not [secret for secret in secrets if secret.decode() in commands]
