"""What a view's SQL names: catalogs that it reads wherever it is read, and its text without those of its own.

The kind: a reader of the replica reads `main`, for the view says so. By a name in the SQL, quoted or not, in a list, a
subquery or a join; by the catalog that was current; by both. `verify` finds the same by rules of its own.

The kind also has what only looks like a name: in a text, a comment or a column, by the rules of each dialect. SQL that
can't be read with certainty stays as it is, and the view is named. And what looks like a word of the language: a table
or an alias may be called `window`, `values` or `stream`, and options of a table begin with WITH.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.iceberg.metadata.view import localize_view_metadata, named_catalogs
from sterna.replication.verify.compare_json import differences, strip_own_catalogs
from sterna.replication.verify.view_names import UNKNOWN_CATALOG, referenced_catalogs

URI = "s3://us/v/metadata/1.metadata.json"
SPACES = {"ns", "s", "a"}


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


def named(metadata: dict[str, Any], own: tuple[str, ...] = ()) -> set[str]:
    """Return which catalogs a view names, by the plan; `verify` says the same of the localized copy."""
    data = json.dumps(metadata).encode()
    planned = set(named_catalogs(data, URI, own_catalogs=own, other_catalogs=(), has_namespace=SPACES.__contains__))
    assert referenced_catalogs(localized(metadata, own), SPACES, own) == planned
    return planned


def localized(metadata: dict[str, Any], own: tuple[str, ...]) -> dict[str, Any]:
    data = localize_view_metadata(
        json.dumps(metadata).encode(), URI, map_root=str, map_property=lambda value: None, own_catalogs=own
    )
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
        # A branch, tag or commit of Nessie's is read wherever the view stands.
        ("SELECT * FROM `t@main`", {"t@main"}),
        ("SELECT * FROM ns.`t@main` JOIN ns.`u#0a1b`.snapshots", {"t@main", "u#0a1b"}),
        ("SELECT `a@b`.c, a.`x@y` FROM ns.t a JOIN ns.u `a@b` WHERE '@' <> a.`d#e`", set()),
        ("SELECT * FROM a AS x, (SELECT * FROM lake.ns.t) y", {"lake"}),
        ("WITH w AS (SELECT * FROM lake.ns.t) SELECT * FROM w", {"lake"}),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM one.ns.t) AND EXISTS (SELECT 1 FROM (two.ns.t))", {"one", "two"}),
        ("SELECT extract(YEAR FROM a.at), trim(BOTH FROM a.b) FROM a WHERE a.b IS DISTINCT FROM a.c", set()),
        ("SELECT * FROM ns.t UNION ALL SELECT * FROM lake.ns.t", {"lake"}),
        # Spark's streams; `stream` may also be a table, or an alias.
        ("SELECT * FROM STREAM lake.ns.t", {"lake"}),
        ("SELECT * FROM a x JOIN stream lake.ns.t WITH ('a' = 'b') AS y, one.ns.u", {"lake", "one"}),
        ("SELECT * FROM STREAM (lake.ns.t) s", {"lake"}),
        ("SELECT * FROM STREAM(`lake`.ns.t)", {"lake"}),
        ("SELECT * FROM ns.t stream, lake.ns.u", {"lake"}),
        ("SELECT * FROM stream, lake.ns.u", {"lake"}),
        ("SELECT * FROM stream AS s JOIN lake.ns.u", {"lake"}),
        ("SELECT * FROM stream", set()),
        ("SELECT * FROM stream WHERE id > 3", set()),
        ("SELECT * FROM stream GROUP BY id", set()),
        ("SELECT * FROM stream.t", {"stream"}),
        # Words of the language that are aliases or tables, and clauses of a table that begin as a query's do.
        ("SELECT * FROM ns.t window, lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t limit, lake.ns.u", {"lake"}),
        ("SELECT * FROM window, lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t window(x, y), lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t qualify (x), lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t AS window (x), lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t values, lake.ns.u", {"lake"}),
        ("SELECT * FROM values", set()),
        ("SELECT * FROM values JOIN lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t with, lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t WITH ('split-size' = '1'), lake.ns.u", {"lake"}),
        ("SELECT * FROM ns.t WITH (`split-size` = 1) AS t JOIN one.ns.v, lake.ns.u", {"lake", "one"}),
        ("SELECT * FROM ns.t a://b--c, lake.ns.u", {"lake"}),
        ("SELECT window, x.y.z FROM ns.t WINDOW w AS (PARTITION BY id), v AS (ORDER BY a.b.c)", set()),
        ("SELECT * FROM ns.t WHERE (a.b.c) LIMIT (3)", set()),
        ("FROM ns.t SELECT (x), lake.ns.u", {"lake"}),
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
    local = localized(view(sql, default), ("lake", "us"))
    assert local == view(wanted) | {"versions": [view(wanted)["versions"][0] | local["versions"][0]]}
    assert local["versions"][0].get("default-catalog") is None
    assert local["versions"][0]["representations"][0]["sql"] == wanted
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
    metadata = view("SELECT * FROM t")
    metadata["versions"].append(view("SELECT * FROM lake.ns.t", "old")["versions"][0] | {"version-id": 2})
    assert named(metadata) == set()
    assert localized(metadata, ("lake",))["versions"][1]["representations"][0]["sql"] == "SELECT * FROM ns.t"


@pytest.mark.parametrize(
    ("dialect", "sql", "wanted"),
    [
        (
            "trino",
            r"SELECT '\', x FROM lake.a.b WHERE c = 'FROM lake.a.z'",
            r"SELECT '\', x FROM a.b WHERE c = 'FROM lake.a.z'",
        ),
        ("trino", r"SELECT '\' || x FROM lake.a.b WHERE c='d'", r"SELECT '\' || x FROM a.b WHERE c='d'"),
        ("trino", "SELECT 1 /* a /* b */ FROM lake.a.b", "SELECT 1 /* a /* b */ FROM a.b"),
        ("trino", 'SELECT * FROM "lake"."a"."b"', 'SELECT * FROM "a"."b"'),
        ("trino", "SELECT * FROM LAKE.a.b, Lake.a.c", "SELECT * FROM a.b, a.c"),
        (
            "spark",
            r"SELECT r'\' FROM lake.a.b WHERE c = ' FROM lake.a.z '",
            r"SELECT r'\' FROM a.b WHERE c = ' FROM lake.a.z '",
        ),
        ("spark", r"SELECT '\'' FROM lake.a.b", r"SELECT '\'' FROM a.b"),
        (
            "spark",
            "SELECT 1 /* a /* b */ FROM lake.a.z */ FROM lake.a.b",
            "SELECT 1 /* a /* b */ FROM lake.a.z */ FROM a.b",
        ),
        ("spark", "SELECT /*+ BROADCAST(t) */ * FROM lake.a.b t", "SELECT /*+ BROADCAST(t) */ * FROM a.b t"),
        ("hive", 'SELECT "FROM lake.a.z" FROM lake.a.b', 'SELECT "FROM lake.a.z" FROM a.b'),
        ("spark", "SELECT * FROM t UNION ALL TABLE lake.a.b", "SELECT * FROM t UNION ALL TABLE a.b"),
        ("spark", "SELECT * FROM t WHERE x = ANY (TABLE lake.a.c)", "SELECT * FROM t WHERE x = ANY (TABLE a.c)"),
        ("spark", "TABLE lake.a.b", "TABLE a.b"),
    ],
)
def test_only_names_go_by_the_tokens_of_the_dialect(dialect: str, sql: str, wanted: str):
    source = view(sql, dialect=dialect)
    replica = localized(source, ("lake",))
    assert replica["versions"][0]["representations"][0]["sql"] == wanted
    assert named(source, ("lake",)) == set()
    assert list(differences(*strip_own_catalogs(replica, source, ("lake",)), "")) == []
    assert "lake" in {name.lower() for name in named(source)}


@pytest.mark.parametrize(
    ("dialect", "sql", "left"),
    [
        ("trino", "SELECT 'a FROM lake.a.b", {UNKNOWN_CATALOG}),
        ("trino", "SELECT 1 FROM lake.a.b /* a", {UNKNOWN_CATALOG}),
        ("spark", "SELECT $$ ' $$ FROM lake.a.b WHERE c = ' FROM lake.a.z '", {UNKNOWN_CATALOG}),
        ("spark", "SELECT * FROM IDENTIFIER('lake.a.b')", {UNKNOWN_CATALOG}),
        ("spark", 'SELECT * FROM "lake".a.b', {UNKNOWN_CATALOG}),
        ("other", r"SELECT '\' FROM lake.a.b WHERE c = ' FROM lake.a.z '", {UNKNOWN_CATALOG, "lake"}),
        ("spark", "SELECT * FROM a.b, LATERAL lake.a.f(1)", {"lake"}),
        ("spark", "SELECT * FROM lake.nessie.b", {"lake"}),
        ("spark", "SELECT * FROM lake.spark_catalog.b", {"lake"}),
        ("spark", "SELECT * FROM lake.pg.b", {"lake"}),
        ("trino", "SELECT * FROM a.b AS lake CROSS JOIN UNNEST(lake.s.items)", {"lake"}),
        ("spark", "SELECT * FROM lake.a.b AS o JOIN a.c AS Lake", {"lake"}),
        ("spark", "SELECT /*+ BROADCAST(lake.a.b) */ * FROM lake.a.b", {"lake"}),
    ],
)
def test_what_is_in_doubt_stays_and_the_view_is_named(dialect: str, sql: str, left: set[str]):
    metadata, own = view(sql, dialect=dialect), ("lake", "nessie")
    data = json.dumps(metadata).encode()
    assert (
        localize_view_metadata(
            data, URI, map_root=str, map_property=lambda value: None, own_catalogs=own, other_catalogs=("pg",)
        )
        == data
    )
    planned = set(named_catalogs(data, URI, own_catalogs=own, other_catalogs=("pg",), has_namespace={"a"}.__contains__))
    assert planned >= left
    assert referenced_catalogs(metadata, {"a"}, own) - {"pg"} == planned


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("TABLE other.s.b", {"other"}),
        ("SELECT other.s.f(1) FROM t", {"other"}),
        ("SELECT * FROM ns.b o CROSS JOIN UNNEST(o.items)", set()),
        ("FROM ns.b AS o |> EXTEND o.x AS z, o.y AS w", set()),
        ("SELECT * FROM ns.b AS o, (VALUES (1), (o.y.z)) v", set()),
    ],
)
def test_relations_and_functions_are_named_and_columns_are_not(sql: str, expected: set[str]):
    assert named(view(sql)) == expected


@pytest.mark.parametrize(
    ("here", "there", "differs"),
    [
        (view("SELECT 'x' FROM ns.t"), view("SELECT 'lake.x' FROM lake.ns.t"), True),
        (view("SELECT id FROM t"), view("SELECT id FROM t", "old"), True),
        (view("SELECT id FROM t"), view("SELECT id FROM t", "lake"), False),
        (view("SELECT id FROM ns.t"), view("SELECT id FROM lake.ns.t", "old"), False),
    ],
)
def test_verify_sees_what_was_not_to_change(here: dict[str, Any], there: dict[str, Any], differs: bool):
    assert bool(list(differences(*strip_own_catalogs(here, there, ("lake",)), ""))) == differs


PIECES = [
    "'FROM lake.a.z'",
    r"'\'",
    "''",
    "'it''s'",
    "-- lake.a.z'\n",
    "/* lake.a.z */",
    "/* /* */",
    "*/",
    '"lake.a"',
    "`x`",
]


@given(
    dialect=st.sampled_from(["spark", "hive", "trino", "flink", "other"]),
    pieces=st.lists(st.sampled_from(PIECES), min_size=3, max_size=6),
)
def test_texts_and_comments_stay_whatever_the_dialect(dialect: str, pieces: list[str]):
    sql = f"SELECT {' '.join(pieces[:2])} FROM lake.a.b WHERE {' '.join(pieces[2:])}"
    metadata = view(sql, dialect=dialect)
    text = localized(metadata, ("lake",))["versions"][0]["representations"][0]["sql"]
    assert text in (sql, sql.replace("FROM lake.a.b WHERE", "FROM a.b WHERE"))
    data = json.dumps(metadata).encode()
    left = set(named_catalogs(data, URI, own_catalogs=("lake",), other_catalogs=(), has_namespace=SPACES.__contains__))
    checked = referenced_catalogs(localized(metadata, ("lake",)), SPACES, ("lake",))
    assert checked == left or UNKNOWN_CATALOG in checked & left  # by what else it names, nobody can tell
    assert text != sql or left & {UNKNOWN_CATALOG, "lake"} or "FROM lake.a.b" not in sql.split("/*")[0].split("'")[0]
