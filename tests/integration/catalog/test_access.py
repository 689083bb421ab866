"""Who may do what.

A real server with the rules of access.properties, asked by everyone for what is theirs and what is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyspark.sql import SparkSession

from sterna.catalog.model import Operation, Put, namespace_content
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import NessieAuth
from sterna.config.environment import temporary_environment
from sterna.errors import CatalogDenied
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.notifications.sinks.offset import PositionTag, remove_tag, sink_positions
from sterna.operations.status.read import read_status
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.servers.spark import add_catalog
from tests.support.faults.pair import BRANCH, NAMESPACE, Pair, pair_in
from tests.support.world import pyiceberg_properties

READERS = ("reader", "writer", "replicator-eu", "admin")
ROLES = (*READERS, "replicator-us")


@dataclass
class AccessTestbed:
    """Two regions whose catalog asks who is there; eu's replica branch and us's exist, each made by its own region."""

    pair: Pair
    access: TokenIssuer

    def login(self, *roles: str) -> NessieCatalog:
        return NessieCatalog(
            self.pair.stage.nessie.uri, NessieAuth("bearer", secret=self.access.token("someone", *roles))
        )

    def request(
        self, method: str, path: str, *roles: str, token: str | None = None, **arguments: Any
    ) -> httpx.Response:
        """Ask the server itself, with a token of some roles."""
        headers = {"Authorization": f"Bearer {token or self.access.token('someone', *roles)}"}
        uri = self.pair.stage.nessie.uri.removesuffix("/v2")
        return httpx.request(method, f"{uri}/{path}", headers=headers, timeout=60, **arguments)

    def head(self, branch: str) -> str:
        return self.pair.catalog.reference(branch).hash

    def put_back(self, branch: str, hash: str) -> None:
        """Take a test's commits off a branch: the next sync would stop at them."""
        target = {"type": "BRANCH", "name": branch, "hash": hash}
        self.request("PUT", f"v2/trees/{branch}@{self.head(branch)}", "admin", json=target).raise_for_status()

    def engine(self, branch: str, *roles: str) -> Catalog:
        """PyIceberg, through Iceberg REST."""
        region = "eu" if branch == BRANCH else "us"
        uri, token = f"{self.pair.stage.nessie.iceberg_uri}/{branch}", self.access.token("engine", *roles)
        own = pyiceberg_properties(self.pair.stage.endpoints[region])
        return load_catalog(branch, type="rest", uri=uri, warehouse=region, token=token, **own)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessTestbed]:
    access = create_token_issuer()
    with pair_in(tmp_path_factory.mktemp("guarded"), access) as pair:
        pair.create()
        for region in ("us", "eu"):
            pair.sync(region=region)
        yield AccessTestbed(pair, access)


def last_two(guarded: AccessTestbed) -> tuple[str, str]:
    """The two newest commits of eu's replica branch, the older one first."""
    guarded.pair.create()
    guarded.pair.sync()
    commits = guarded.pair.catalog.history(f"{BRANCH}@{guarded.head(BRANCH)}", operations=False)
    newer, older = islice(commits, 2)
    return older.hash, newer.hash


def some_commit(name: str) -> list[Operation]:
    return [Put((name,), namespace_content((name,)))]


# --- sterna itself


def test_a_region_seeds_its_branch_syncs_and_looks_after_it_with_its_own_token(guarded: AccessTestbed) -> None:
    # The first sync, which makes the branch, was the fixture's; the embedded deployment gives a region nothing but its
    # own role.
    table = guarded.pair.create()
    report = guarded.pair.sync()
    assert report.held == ()
    assert report.copied.files == 1
    with guarded.pair.context() as context:
        status = read_status(context)
        assert (status.problem, status.lag_seconds) == ("", 0.0)
        assert run_gc(context, GcOptions(keep=timedelta(days=1), grace=timedelta(hours=1), delete=True)).failed == 0
    guarded.pair.append(table)
    assert guarded.pair.sync().held == ()
    guarded.pair.assert_equal()


def test_a_region_with_the_token_of_another_changes_nothing(guarded: AccessTestbed) -> None:
    before = guarded.head(BRANCH)
    guarded.pair.create()
    with (
        temporary_environment({"AIRFLOW_CONN_NESSIE_EU": os.environ["AIRFLOW_CONN_NESSIE_US"]}),
        pytest.raises(CatalogDenied),
    ):
        guarded.pair.sync()
    assert guarded.head(BRANCH) == before


def test_a_clean_up_sees_every_tag(guarded: AccessTestbed) -> None:
    tag = {"type": "BRANCH", "name": BRANCH, "hash": guarded.head(BRANCH)}
    assert guarded.request("POST", "v2/trees?name=keep&type=TAG", "admin", json=tag).status_code == 200
    with guarded.login("replicator-eu") as region, guarded.login("reader") as reader:
        assert "keep" in [reference.name for reference in region.references()]
        assert dict(region.entries("keep", region.reference("keep").hash))
        assert {reference.name for reference in reader.references()} == {"main", BRANCH, "main_replica_us"}


# --- reading


@pytest.mark.parametrize("branch", ["main", BRANCH])
@pytest.mark.parametrize("role", READERS)
def test_everyone_with_a_role_reads_main_and_the_replicas(guarded: AccessTestbed, role: str, branch: str) -> None:
    with guarded.login(role) as catalog:
        head = catalog.reference(branch).hash
        keys = dict(catalog.entries(branch, head))
        assert keys
        assert dict(catalog.contents(branch, head, keys)) == keys
        commits = list(catalog.history(f"{branch}@{head}", operations=True))
        assert commits[0].operations
        assert list(catalog.diff(branch, commits[-1].hash, head))


@pytest.mark.parametrize("roles", [(), ("nobody",)], ids=["none", "unknown"])
@pytest.mark.parametrize(
    "path", ["trees/main", "trees/main/entries", "trees/main/history", f"trees/{BRANCH}/contents/{NAMESPACE}"]
)
def test_who_has_none_of_the_roles_reads_nothing(guarded: AccessTestbed, roles: tuple[str, ...], path: str) -> None:
    assert guarded.request("GET", f"v2/{path}", *roles).status_code == 403


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
@pytest.mark.parametrize("what", ["entries", "history", "diff/main"])
def test_a_bare_hash_is_for_operators(guarded: AccessTestbed, role: str, what: str) -> None:
    path = f"v2/trees/@{guarded.head('main')}/{what}"
    denied = guarded.request("GET", path, role)
    assert denied.status_code == 403
    assert "DETACHED" in denied.text
    assert guarded.request("GET", path, "admin").status_code == 200


def test_a_hash_that_one_knows_opens_its_commit_through_any_branch_that_one_reads(guarded: AccessTestbed) -> None:
    # Not wanted, but so it is, and the documents say it: should Nessie mend this, they have to follow.
    here = {"type": "BRANCH", "name": "main", "hash": guarded.head("main")}
    guarded.request("POST", "v2/trees?name=private&type=BRANCH", "admin", json=here).raise_for_status()
    hash = guarded.pair.catalog.commit("private", here["hash"], some_commit("private"), "test")
    assert guarded.request("GET", f"v2/trees/private@{hash}/entries", "reader").status_code == 403
    assert "private" in guarded.request("GET", f"v2/trees/main@{hash}/entries", "reader").text


def test_engines_read_through_iceberg_rest(guarded: AccessTestbed) -> None:
    table = guarded.pair.create()
    guarded.pair.sync()
    for branch in ("main", BRANCH):
        engine = guarded.engine(branch, "reader")
        assert tuple(table.split(".")) in engine.list_tables(NAMESPACE)
        assert engine.load_table(table).scan().to_arrow().num_rows == 2


# --- writing


@pytest.mark.parametrize("branch", ["main", BRANCH, "main_replica_us"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_commits_to_its_own_branch_alone(guarded: AccessTestbed, role: str, branch: str) -> None:
    allowed = role == "admin" or (role, branch) in {
        ("writer", "main"),
        ("replicator-eu", BRANCH),
        ("replicator-us", "main_replica_us"),
    }
    before = guarded.head(branch)
    with guarded.login(role) as catalog:
        if allowed:
            assert catalog.commit(branch, before, some_commit(f"by {role}"), "test") == guarded.head(branch)
            guarded.put_back(branch, before)
        else:
            with pytest.raises(CatalogDenied):
                catalog.commit(branch, before, some_commit(f"by {role}"), "test")
            assert guarded.head(branch) == before


def test_the_old_api_has_the_same_rules(guarded: AccessTestbed) -> None:
    head = guarded.head("main")
    content = {"type": "NAMESPACE", "elements": ["v1"]}
    body = {
        "commitMeta": {"message": "test"},
        "operations": [{"type": "PUT", "key": {"elements": ["v1"]}, "content": content}],
    }
    path = f"v1/trees/branch/main/commit?expectedHash={head}"
    assert guarded.request("POST", path, "reader", json=body).status_code == 403
    assert guarded.request("POST", path, "writer", json=body).status_code == 200


def test_engines_write_through_iceberg_rest_to_main_alone(guarded: AccessTestbed) -> None:
    table = guarded.pair.create()  # with a writer's token
    guarded.pair.sync()
    rows = guarded.pair.writers["us"].load_table(table).scan().to_arrow()
    for branch, role in (
        ("main", "reader"),
        ("main", "replicator-eu"),
        (BRANCH, "reader"),
        (BRANCH, "writer"),
        (BRANCH, "replicator-us"),
    ):
        before = guarded.head(branch)
        engine = guarded.engine(branch, role)
        # Not ForbiddenError: Nessie 0.99.0 says 500, which PyIceberg takes for "who knows" when it was a table's
        # commit.
        for attempt in (
            lambda engine=engine: engine.load_table(table).append(rows),
            lambda engine=engine: engine.drop_table(table),
            lambda engine=engine: engine.create_namespace("theirs"),
        ):
            with pytest.raises(RESTError, match="is not allowed for role"):
                attempt()
        assert guarded.head(branch) == before


def test_spark_writes_with_a_token(guarded: AccessTestbed, spark: SparkSession) -> None:
    stage = guarded.pair.stage
    for name, role in (("guarded_writer", "writer"), ("guarded_reader", "reader")):
        add_catalog(spark, name, stage.nessie.uri, "main", stage.warehouse("us"), stage.endpoints["us"])
        spark.conf.set(f"spark.sql.catalog.{name}.authentication.type", "BEARER")
        spark.conf.set(f"spark.sql.catalog.{name}.authentication.token", guarded.access.token("spark", role))
    spark.sql("CREATE NAMESPACE guarded_writer.spark")
    spark.sql("CREATE TABLE guarded_writer.spark.t USING iceberg AS SELECT 1 AS id")
    assert spark.sql("SELECT * FROM guarded_reader.spark.t").count() == 1
    with pytest.raises(Exception, match="is not allowed for role"):
        spark.sql("INSERT INTO guarded_reader.spark.t VALUES (2)")
    assert spark.sql("SELECT * FROM guarded_writer.spark.t").count() == 1


# --- branches and tags


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_branches_and_tags_are_made_deleted_and_moved_by_operators_alone(guarded: AccessTestbed, role: str) -> None:
    main, replica = guarded.head("main"), guarded.head(BRANCH)
    here = {"type": "BRANCH", "name": "main", "hash": main}
    for name, kind in (("theirs", "BRANCH"), ("theirs", "TAG"), ("main_replica_ap", "BRANCH")):
        assert guarded.request("POST", f"v2/trees?name={name}&type={kind}", role, json=here).status_code == 403
    assert (
        guarded.request("DELETE", f"v2/trees/{BRANCH}@{replica}", role).status_code == 403
    )  # main can't be deleted by anyone
    for name, head in (("main", main), (BRANCH, replica)):
        assert guarded.request("PUT", f"v2/trees/{name}@{head}", role, json=here).status_code == 403
    assert (guarded.head("main"), guarded.head(BRANCH)) == (main, replica)


def test_operators_make_move_and_delete_branches(guarded: AccessTestbed) -> None:
    commits = list(guarded.pair.catalog.history(f"main@{guarded.head('main')}", operations=False))
    newer, older = ({"type": "BRANCH", "name": "main", "hash": commit.hash} for commit in (commits[0], commits[1]))
    assert guarded.request("POST", "v2/trees?name=theirs&type=BRANCH", "admin", json=newer).status_code == 200
    assert guarded.request("PUT", f"v2/trees/theirs@{newer['hash']}", "admin", json=older).status_code == 200
    assert guarded.request("DELETE", f"v2/trees/theirs@{older['hash']}", "admin").status_code == 200


# --- outlets' tags


@pytest.mark.parametrize("role", ROLES)
def test_an_outlet_s_tag_belongs_to_its_region_alone(guarded: AccessTestbed, role: str) -> None:
    older, newer = ({"type": "BRANCH", "name": BRANCH, "hash": commit_hash} for commit_hash in last_two(guarded))
    tag, status = f"sterna-outlet-eu-{role.replace('-', '_')}", 200 if role in ("replicator-eu", "admin") else 403
    assert guarded.request("POST", f"v2/trees?name={tag}&type=TAG", role, json=older).status_code == status
    if status == 403:
        guarded.request("POST", f"v2/trees?name={tag}&type=TAG", "admin", json=older).raise_for_status()
    assert guarded.request("PUT", f"v2/trees/{tag}@{older['hash']}?type=TAG", role, json=newer).status_code == status
    assert guarded.head(tag) == (newer if status == 200 else older)["hash"]
    gone = f"v2/trees/{tag}@{guarded.head(tag)}?type=TAG"
    assert guarded.request("DELETE", gone, role).status_code == status
    assert guarded.request("DELETE", gone, "admin").status_code == (404 if status == 200 else 200)


@pytest.mark.parametrize(
    "name", ["sterna-outlet-us-a", "sterna-outlet-eu-", "sterna-outlet-eu-a-b", "my-sterna-outlet-eu-a", "sterna-eu-a"]
)
def test_a_region_makes_no_tags_but_its_outlets(guarded: AccessTestbed, name: str) -> None:
    here = {"type": "BRANCH", "name": BRANCH, "hash": guarded.head(BRANCH)}
    assert guarded.request("POST", f"v2/trees?name={name}&type=TAG", "replicator-eu", json=here).status_code == 403


def test_a_region_s_own_token_is_enough_for_an_outlet_s_position(guarded: AccessTestbed) -> None:
    older, newer = last_two(guarded)
    with guarded.pair.context() as context:
        for name, begin in (("new", context.catalog.no_ancestor()), ("pager", older)):
            tag = PositionTag(context, name)
            assert tag.begin(begin) == guarded.head(tag.name) == begin
            tag.advance(newer)
            tag.save()
            assert (tag.problem, guarded.head(tag.name)) == ("", newer)
        assert set(sink_positions("eu", context.primary.references())) == {"new", "pager"}
        second_tag = PositionTag(context, "pager")
        assert second_tag.begin(newer) == newer
        us_credentials = {"AIRFLOW_CONN_NESSIE_EU": os.environ["AIRFLOW_CONN_NESSIE_US"]}
        with temporary_environment(us_credentials), guarded.pair.context() as stranger:
            denied = PositionTag(stranger, "pager")
            assert denied.begin(newer) == newer
            denied.advance(older)
            denied.save()
        assert (denied.problem, denied.taken_over, guarded.head(tag.name)) == ("CatalogDenied", False, newer)
        for name in ("new", "pager"):
            remove_tag(context, name, newer)
        assert sink_positions("eu", context.primary.references()) == {}


# --- who is there at all


def test_nobody_without_a_good_token_gets_in(guarded: AccessTestbed) -> None:
    valid_token = guarded.access.token("someone", "admin")
    assert guarded.request("GET", "v2/trees/main", token=valid_token).status_code == 200
    signed, _, signature = valid_token.rpartition(".")
    elsewhere = create_token_issuer().token("someone", "admin")
    for wrong in (
        elsewhere,
        guarded.access.token("someone", "admin", seconds=-3600),
        f"{signed}.{signature[::-1]}",
        "password",
    ):
        assert guarded.request("GET", "v2/trees/main", token=wrong).status_code == 401
    uri = guarded.pair.stage.nessie.uri
    assert httpx.get(f"{uri}/trees/main", timeout=60).status_code == 401
    assert httpx.get(f"{uri}/trees/main", auth=("admin", "password"), timeout=60).status_code == 401
    assert httpx.get(f"{guarded.pair.stage.nessie.iceberg_uri}/v1/config", timeout=60).status_code == 401


def test_a_wrong_token_of_sternas_own_is_told_without_it(guarded: AccessTestbed) -> None:
    wrong = create_token_issuer().token("sterna-eu", "replicator-eu")
    connection = f'{{"conn_type": "sterna_nessie", "password": "{wrong}"}}'
    with temporary_environment({"AIRFLOW_CONN_NESSIE_EU": connection}), pytest.raises(CatalogDenied) as caught:
        guarded.pair.sync()
    assert wrong not in str(caught.value)


def test_no_token_lies_about(guarded: AccessTestbed) -> None:
    guarded.pair.assert_no_secret()
    stage = guarded.pair.stage
    tokens = [value for name, value in stage.environment.items() if name.startswith("AIRFLOW_CONN_NESSIE")]
    assert len(tokens) == 2
    secrets = [value.split('"password": "')[1].rstrip('"}') for value in tokens]
    command = " ".join(stage.nessie.process.popen.args)
    texts = [path.read_text(errors="replace") for path in stage.work.glob("*") if path.is_file()]
    assert not [secret for secret in secrets for text in (command, *texts) if secret in text]
