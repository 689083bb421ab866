"""What a view's SQL names: catalogs that it reads wherever it is read, and its text without those of its own.

The kind: a reader of the replica reads `main`, for the view says so. By a name in the SQL, quoted or not, in a list, a
subquery or a join; by the catalog that was current; by both. `verify` finds the same by rules of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.iceberg.metadata.view import catalogs_named, localize_view_metadata
from sterna.verify.view_names import catalogs_of

URI = "s3://us/v/metadata/1.metadata.json"
SPACES = {"ns", "s"}


def view(sql: str, default: str | None = None, dialect: str = "spark") -> dict[str, Any]:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
    }
    return {
        "view-uuid": "v",
        "format-version": 1,
        "location": "s3://us/v",
        "current-version-id": 1,
        "versions": [version | ({"default-catalog": default} if default else {})],
        "schemas": [],
        "version-log": [],
    }


def named(found: dict[str, Any], own: tuple[str, ...] = ()) -> set[str]:
    """Return which catalogs a view names, by the plan; `verify` says the same of the localized copy."""
    data = json.dumps(found).encode()
    planned = set(catalogs_named(data, URI, own=own, other=(), namespace=SPACES.__contains__))
    assert catalogs_of(localized(found, own), SPACES) == planned
    return planned


def localized(found: dict[str, Any], own: tuple[str, ...]) -> dict[str, Any]:
    data = localize_view_metadata(json.dumps(found).encode(), URI, root=str, known=lambda value: None, own=own)
    document: dict[str, Any] = json.loads(data)
    return document


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id FROM t", set()),
        ("SELECT id FROM ns.t", set()),
        ("SELECT t.id.x.y FROM ns.s.t", set()),
        ("SELECT 1", set()),
        ("SELECT 'from lake.ns.t' -- from lake.ns.u\n FROM t /* join lake.ns.w */", set()),
        ("SELECT * FROM lake.ns.t", {"lake"}),
        ("select * from`lake`.`ns`.t", {"lake"}),
        ("SELECT * FROM lake . ns . t", {"lake"}),
        ("SELECT * FROM lake.t", {"lake"}),
        ("SELECT * FROM a x JOIN lake.ns.t y ON x.id = y.id", {"lake"}),
        ("SELECT * FROM a, lake.ns.t", {"lake"}),
        ("SELECT * FROM a AS x, (SELECT * FROM lake.ns.t) y", {"lake"}),
        ("WITH w AS (SELECT * FROM lake.ns.t) SELECT * FROM w", {"lake"}),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM one.ns.t) AND EXISTS (SELECT 1 FROM (two.ns.t))", {"one", "two"}),
        ("SELECT extract(YEAR FROM a.at), trim(BOTH FROM a.b) FROM a WHERE a.b IS DISTINCT FROM a.c", set()),
        ("SELECT * FROM ns.t UNION ALL SELECT * FROM lake.ns.t", {"lake"}),
    ],
)
def test_catalogs_in_the_sql(sql: str, expected: set[str]):
    assert named(view(sql)) == expected
    leans = {"old"} if "FROM" in sql or "from" in sql else set()
    assert named(view(sql, "old")) == expected | leans


@pytest.mark.parametrize(
    ("sql", "default", "wanted"),
    [
        ("SELECT id FROM t", "lake", "SELECT id FROM t"),
        ("SELECT id FROM lake.ns.t", None, "SELECT id FROM ns.t"),
        ("SELECT id FROM lake.ns.t", "lake", "SELECT id FROM ns.t"),
        (
            "WITH w AS (SELECT 'lake.ns.t' FROM `lake`.`ns`.`t`) SELECT * FROM w",
            "spark_catalog",
            "WITH w AS (SELECT 'lake.ns.t' FROM `ns`.`t`) SELECT * FROM w",
        ),
        ("SELECT * FROM lake.ns.t, /* é */ us.ns.s.u", "spark_catalog", "SELECT * FROM ns.t, /* é */ ns.s.u"),
    ],
)
def test_names_of_its_own_catalog_go(sql: str, default: str | None, wanted: str):
    found = localized(view(sql, default), ("lake", "us"))
    assert found == view(wanted) | {"versions": [view(wanted)["versions"][0] | found["versions"][0]]}
    assert found["versions"][0].get("default-catalog") is None
    assert found["versions"][0]["representations"][0]["sql"] == wanted
    assert named(view(sql, default), ("lake", "us")) == set()


@pytest.mark.parametrize(
    ("sql", "default", "left"),
    [
        ("SELECT * FROM lake.ns.t JOIN t", "old", {"lake", "old"}),  # `t` is the other catalog's
        ("SELECT * FROM lake.t", None, {"lake"}),  # in a namespace that the catalog itself knows
        ("SELECT lake.ns.t.id FROM lake.ns.t", None, {"lake"}),
        ("SELECT lake.id FROM lake.ns.t JOIN ns.u lake", None, {"lake"}),
        ("SELECT lake.system.bucket(4, id) FROM lake.ns.t", None, {"lake"}),
        ("SELECT * FROM lake.ns.t JOIN pg.public.u", None, {"pg"}),
    ],
)
def test_what_cannot_do_without_them_stays_and_is_named(sql: str, default: str | None, left: set[str]):
    assert named(view(sql, default), ("lake",)) == left
    if "lake" in left:
        assert localized(view(sql, default), ("lake",)) == view(sql, default)


def test_double_quotes_are_names_elsewhere():
    assert named(view('SELECT * FROM "lake"."ns"."t"', dialect="trino")) == {"lake"}
    assert named(view('SELECT "from lake.ns.t" FROM t')) == set()


def test_older_versions_are_nobodys_to_read():
    found = view("SELECT * FROM t")
    found["versions"].append(view("SELECT * FROM lake.ns.t", "old")["versions"][0] | {"version-id": 2})
    assert named(found) == set()
    assert localized(found, ("lake",))["versions"][1]["representations"][0]["sql"] == "SELECT * FROM ns.t"
