"""A node of a site dies: two Nessies over Postgres with a synchronous standby go on, and keep every acknowledged commit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from sterna.edges.catalog import Put, namespace_content
from sterna.edges.nessie import NessieCatalog
from sterna.edges.nessie_http import Deadlines
from sterna.errors import CatalogError
from sterna.local.nessie import Nessie, start_nessie
from sterna.local.patroni import Cluster, start_cluster
from sterna.local.postgres import Database

RESUME_SECONDS = 60
SOME = 20


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

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Let a writer commit meanwhile; afterwards all that was acknowledged to it stands in main's history, in that order."""
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
                commits = [commit.hash for commit in catalog.history(f"main@{catalog.reference('main').hash}", operations=False)]
                kept = [commit for commit in reversed(commits) if commit in set(writer.acknowledged)]
                assert kept == writer.acknowledged


@dataclass
class Writer:
    """Commits to main without pause, through one Nessie as long as it answers, then through another."""

    uris: list[str]
    name: str
    acknowledged: list[str] = field(default_factory=list)
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
                    self.acknowledged.append(catalogs[0].commit("main", head, [Put(key, namespace_content(key))], "test"))
                except CatalogError:
                    catalogs.append(catalogs.pop(0))
                    time.sleep(0.05)

    def wait_for(self, more: int) -> float:
        """Wait for some more acknowledged commits; return how long the first one took."""
        started, before = time.monotonic(), len(self.acknowledged)
        first = 0.0
        while len(self.acknowledged) < before + more:
            waited = time.monotonic() - started
            assert waited < RESUME_SECONDS, f"no {more} commits within {RESUME_SECONDS} s"
            if not first and len(self.acknowledged) > before:
                first = waited
            time.sleep(0.01)
        return first


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    work = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        cluster = start_cluster(work)
        stack.callback(cluster.stop)
        database = cluster.create_database("nessie")
        made = Site(work, cluster, database, [])
        for name in "ab":
            made.nessies.append(start_nessie(work / f"nessie-{name}", database=database))
        stack.callback(lambda: [nessie.stop() for nessie in made.nessies])
        yield made


def told(what: str, seconds: float) -> None:
    # For the figures in docs/operations.md: pytest -rP.
    print(f"{what}: commits resumed after {seconds:.1f} s")


def test_a_nessie_that_is_killed_is_one_of_two(site: Site) -> None:
    with site.writing() as writer:
        site.nessies[0].process.popen.kill()
        told("kill -9 of the Nessie in use", writer.wait_for(SOME))
        site.nessies[0].stop()
        # It had nothing that another one can't take from Postgres.
        site.nessies[0] = start_nessie(site.work / "nessie-new", database=site.database)


def test_a_primary_that_is_killed_is_replaced_and_comes_back_as_standby(site: Site) -> None:
    site.cluster.wait_until_safe()
    for _ in range(2):
        first = site.cluster.primary()
        with site.writing() as writer:
            first.kill()
            told("kill -9 of the primary, Postgres and Patroni", writer.wait_for(SOME))
            assert site.cluster.primary() is not first
            site.cluster.start(first)
            site.cluster.wait_until_safe()
            assert first.is_standby()
            writer.wait_for(SOME)


def test_a_standby_that_is_killed_stops_commits_for_a_moment_only(site: Site) -> None:
    site.cluster.wait_until_safe()
    (standby,) = [member for member in site.cluster.members if member.is_standby()]
    with site.writing() as writer:
        standby.kill()
        told("kill -9 of the standby", writer.wait_for(SOME))
        site.cluster.start(standby)
        site.cluster.wait_until_safe()


def test_a_postgres_that_dies_alone_is_started_again(site: Site) -> None:
    site.cluster.wait_until_safe()
    primary = site.cluster.primary()
    with site.writing() as writer:
        primary.kill_postgres()
        told("kill -9 of the primary's Postgres alone", writer.wait_for(SOME))
    site.cluster.wait_until_safe()


def test_the_third_voter_may_die(site: Site) -> None:
    site.cluster.wait_until_safe()
    with site.writing() as writer:
        site.cluster.voter.popen.kill()
        told("kill -9 of the third voter", writer.wait_for(SOME))


def test_no_password_stands_in_a_file_that_stays_or_on_a_command_line(site: Site) -> None:
    setup = site.cluster._setup
    secrets = [value.encode() for name, value in setup.passwords.items() if name.endswith("PASSWORD")] + [site.database.password.encode()]
    folders = [path for path in setup.home.iterdir() if path.name != "pginstall"] + [site.work]
    files = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*")) if path.is_file()]
    found = {path.name for path in files for secret in secrets if secret in path.read_bytes()}
    assert found <= {"pgpass"}  # which ends with the cluster
    commands = " ".join(str(part) for member in site.cluster.members for part in member.process.popen.args)
    assert not [secret for secret in secrets if secret.decode() in commands]


def test_the_settings_are_those_under_nessie() -> None:
    root = Path(__file__).parents[2]
    assert os.path.samefile(root / "nessie" / "patroni.yml", root / "plugins" / "sterna" / "local" / "patroni.yml")
