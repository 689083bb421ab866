"""A region's own copy of the catalog.

It serves every read, refuses every write, and what it makes for itself stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pyiceberg.exceptions import RESTError

from sterna.catalog.model import Unchanged
from sterna.errors import NotPrimary
from tests.support.ha.two_sites import BRANCH, NAMESPACE, TwoSites, rows, wait_until


def ids(two: TwoSites, region: str) -> set[bytes]:
    return {bytes(row[0]) for row in two.execute(region, "SELECT obj_id FROM objs2")}


def apply_errors(two: TwoSites) -> int:
    ((count,),) = two.execute("eu", "SELECT apply_error_count FROM pg_stat_subscription_stats WHERE subname = 'sterna'")
    return int(count)


@pytest.fixture
def table(two_sites: TwoSites) -> str:
    """A table of us that the replica has."""
    name = two_sites.create()
    two_sites.sync()
    two_sites.wait_until_served()
    return name


def reads(main: str, replica: str, key: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Every read of Nessie's API v2 with the ways to name a reference; a body makes it a POST."""
    wanted = {"requestedKeys": [{"elements": key.split(".")}]}
    content = "?for-write=false&with-doc=true"
    return [
        ("config", None),
        ("trees", None),
        ("trees?fetch=ALL&max-records=1", None),
        ("trees?filter=ref.name%3D%3D'main'", None),
        *((f"trees/{ref}", None) for ref in ("main", "-", BRANCH, "main?fetch=ALL", f"{BRANCH}?fetch=ALL")),
        *(
            (f"trees/{ref}/{what}", None)
            for ref in ("main", BRANCH, f"main@{main}", f"-@{main}", f"{BRANCH}@{replica}", f"-@{replica}")
            for what in (
                "history?fetch=ALL",
                "history?max-records=1",
                "entries?content=true",
                f"contents/{key}{content}",
                f"contents?key={key}",
                "recent-changes",
            )
        ),
        *((f"trees/{ref}/contents{content}", wanted) for ref in ("main", f"-@{main}", BRANCH)),
        *(
            (f"trees/main@{main}/diff/{to}", None)
            for to in (BRANCH, f"-@{replica}", "main~1", f"{BRANCH}?max-records=1")
        ),
        ("trees/main/entries?filter=entry.contentType%3D%3D'ICEBERG_TABLE'", None),
        (f"trees/{BRANCH}/entries?prefix-key={NAMESPACE}&page-token=", None),
    ]


def test_every_read_answers_as_at_the_primary_and_leaves_nothing_behind(two_sites: TwoSites, table: str) -> None:
    before = ids(two_sites, "eu")
    main, replica = (two_sites.us.reference(branch).hash for branch in ("main", BRANCH))
    statuses = set()
    for path, body in reads(main, replica, table):
        answers = [
            httpx.request("POST" if body else "GET", f"{site.uri}/{path}", json=body, timeout=60)
            for site in two_sites.sites.by_region.values()
        ]
        statuses.add(answers[0].status_code)
        assert answers[0].status_code == answers[1].status_code, (path, answers[1].text)
        assert answers[0].json() == answers[1].json(), path
    assert 200 in statuses
    assert ids(two_sites, "eu") == before


def writes(two: TwoSites) -> dict[str, Callable[[], object]]:
    site, head = two.sites.by_region["eu"], two.eu.reference("main").hash
    branch = {"type": "BRANCH", "name": "main", "hash": head}

    def send(method: str, path: str, body: Any = None) -> None:
        answer = httpx.request(method, f"{site.uri}/{path}", json=body, timeout=60)
        assert answer.status_code >= 400, answer.text
        raise (
            NotPrimary(answer.text)
            if "permission denied for table refs2" in answer.text
            else AssertionError(answer.text)
        )

    return {
        "commit": lambda: two.eu.commit("main", head, [Unchanged(("x",))], "no", {}),
        "create": lambda: two.eu.create_branch("no", head),
        "assign": lambda: send("PUT", f"trees/{BRANCH}@{two.eu.reference(BRANCH).hash}", branch),
        "delete": lambda: send("DELETE", f"trees/{BRANCH}@{two.eu.reference(BRANCH).hash}"),
    }


@pytest.mark.parametrize("name", ["commit", "create", "assign", "delete"])
def test_writes_are_refused_and_change_nothing(two_sites: TwoSites, name: str) -> None:
    before = two_sites.eu.references()
    with pytest.raises(NotPrimary):
        writes(two_sites)[name]()
    assert two_sites.eu.references() == before == two_sites.us.references()


def test_a_table_can_not_be_made_or_changed_through_the_copys_rest(two_sites: TwoSites, table: str) -> None:
    before = two_sites.eu.references()
    reader = two_sites.reader("main")
    with pytest.raises(RESTError):
        reader.create_namespace("no")
    with pytest.raises(RESTError):
        reader.load_table(table).transaction().set_properties(no="no").commit_transaction()
    assert two_sites.eu.references() == before == two_sites.us.references()


@pytest.mark.parametrize(("branch", "store"), [("main", "us"), (BRANCH, "eu")])
def test_iceberg_rest_of_the_copy_lists_and_loads(two_sites: TwoSites, table: str, branch: str, store: str) -> None:
    reader = two_sites.reader(branch, store)
    assert (NAMESPACE,) in reader.list_namespaces()
    assert tuple(table.split(".")) in reader.list_tables(NAMESPACE)
    assert reader.table_exists(table)
    assert rows(reader.load_table(table)) == rows(two_sites.writers["us"].load_table(table))


def test_it_starts_again_and_serves_what_it_served(two_sites: TwoSites, table: str) -> None:
    site, served = two_sites.sites.by_region["eu"], two_sites.eu.references()
    assert site.nessie
    site.nessie.stop()
    site.start_nessie()
    assert two_sites.eu.references() == served
    assert rows(two_sites.reader().load_table(table))
    two_sites.commit()
    two_sites.wait_until_served()


def test_what_rest_makes_in_the_copy_before_the_primary_sends_it_does_not_stop_the_following(
    two_sites: TwoSites, table: str
) -> None:
    errors, primarys = apply_errors(two_sites), ids(two_sites, "us")
    two_sites.subscription("DISABLE")
    # sterna published it through API v2: no REST has looked at this version of the table yet, in neither region.
    load = two_sites.reader().load_table
    assert load(table)
    local_ids = ids(two_sites, "eu") - primarys
    uri = f"{two_sites.sites.by_region['us'].iceberg_uri}/{BRANCH}"
    assert httpx.get(
        f"{uri.replace(BRANCH, '')}v1/{BRANCH}%7Ceu/namespaces/{NAMESPACE}/tables/{table.partition('.')[2]}", timeout=60
    ).is_success
    assert local_ids & ids(two_sites, "us"), "the primary makes other objects than the copy: this test shows nothing"
    two_sites.subscription("ENABLE")
    for _ in range(3):
        two_sites.append(table)
        two_sites.wait_until_served()
    assert apply_errors(two_sites) == errors
    assert two_sites.sync().published
    wait_until(
        lambda: rows(load(table)) == rows(two_sites.writers["us"].load_table(table)),
        "the replica does not show main's rows",
    )
