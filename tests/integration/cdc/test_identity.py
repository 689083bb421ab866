"""By what a Postgres tells which row changed: rows that it tells otherwise change no other row.

With `REPLICA IDENTITY USING INDEX` a deletion tells the index's columns, and the engine fills in 0 for a key that isn't
told: row 0 was deleted in the place of row 2. What else falls under it: an update that changes the key or the index's
columns, another primary key (by the same columns or others), an identity that is set and taken back between two looks,
by an index that was there or one that comes and goes, an array that comes while rows are told by key alone, a table
that was renamed or made anew; each while it is read, and while nobody reads. Statements that have nothing to do with
it stop nothing, and a row whose key is 0 can be deleted.

A column is known by its number, not by its name: one that was dropped and made anew has the same name, type and place,
and no value. What else falls under it: one that takes another's name, also where both looks see the same names; one
that comes back after a look at which it was gone; and tables that are written anew without a change of rows, with a
value for a new column (a default that is volatile, and dropped again), or other values for an old one (`USING`); and
types that users make, whose text changes in rows that were there: an enum's word with another name, a composite's part.

A publication that somebody altered leaves changes out, and none of those that come says so: deletions, rows, columns,
or the table, also where it was whole again before the next look. What sterna itself alters is no such change.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pyspark.errors import AnalysisException

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import Busy, CdcError, NeedsResync, UnfitSource
from sterna.pipelines.cdc import postgres
from sterna.pipelines.cdc.postgres import PostgresDatabase
from sterna.pipelines.cdc.status import read_sources, resync
from tests.integration.cdc.test_cdc import CaptureTestbed, shop
from tests.support.often import often

__all__ = ["shop"]

_A = "CREATE TABLE a (id int PRIMARY KEY, code text NOT NULL, n int); CREATE UNIQUE INDEX a_code ON a (code);"
_USING = "ALTER TABLE a REPLICA IDENTITY USING INDEX a_code;"
_DEFAULT = "ALTER TABLE a REPLICA IDENTITY DEFAULT;"
_OTHER_KEY = "ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (code);"
_ALL = "insert, update, delete, truncate"
_LATER = 10**18  # microseconds since 1970: later than any look

Identities = Callable[..., dict[str, Any]]


@pytest.fixture
def place(server: Any) -> Any:
    """A database without a table."""
    return server.create_database(f"known_{uuid.uuid4().hex[:8]}")


def settings(place: Any, *tables: str) -> CdcSource:
    section = {"name": place.name, "region": "eu", "hosts": [f"{place.host}:{place.port}"], "database": place.name}
    return CdcSource.model_validate({**section, "credential_id": "known", "tables": tables, "into": place.name})


@pytest.fixture
def source(
    server: Any, place: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[PostgresDatabase, Callable[[str], None]]]:
    """A Postgres without a reader, and what runs SQL in it."""
    login = {"conn_type": "postgres", "login": place.user, "password": place.password}
    monkeypatch.setenv("AIRFLOW_CONN_KNOWN", json.dumps(login))
    opened = PostgresDatabase(settings(place, "public.*"), environment_secrets())

    def sql(text: str) -> None:
        with psycopg.connect(place.url(), autocommit=True) as connection:
            connection.execute(text.encode())

    sql(_A)
    with psycopg.connect(server.admin.url(), autocommit=True) as admin:
        admin.execute(f"ALTER ROLE {place.user} REPLICATION".encode())
    yield opened, sql
    opened.close()


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (_USING, "its replica identity is neither"),
        ("ALTER TABLE a REPLICA IDENTITY NOTHING", "its replica identity is neither"),
        (_USING + _DEFAULT, "a unique index of it was changed"),
        ("CLUSTER a USING a_code", "a unique index of it was changed"),
        (_OTHER_KEY, "its primary key was id, and is code"),
        ("ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id, code)", "its primary key was id, and is id, code"),
        ("ALTER TABLE a DROP CONSTRAINT a_pkey", "without a primary key"),
        (_OTHER_KEY + "ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id)", "dropped and recreated"),
        ("DROP TABLE a;" + _A, "dropped and recreated"),
        ("ALTER TABLE a RENAME TO b", "was dropped, or renamed"),
        ("ALTER TABLE a RENAME id TO id2", "its primary key was id, and is id2"),
        ("ALTER TABLE a ADD xs int[]", "it has an array"),
        ("ALTER TABLE a ADD xs int[]; ALTER TABLE a REPLICA IDENTITY FULL", "it has got an array"),
        ("ALTER TABLE a DROP n; ALTER TABLE a ADD n int", "column n was dropped and is there again"),
        ("ALTER TABLE a RENAME n TO old; ALTER TABLE a ADD n int", "column n was dropped and is there again"),
        ("ALTER TABLE a RENAME n TO other", "column n is gone and other is new: it has another name"),
        ("ALTER TABLE a ADD u uuid DEFAULT gen_random_uuid(); ALTER TABLE a ALTER u DROP DEFAULT", "u was added, and"),
        ("ALTER TABLE a ALTER n TYPE int USING n * 100", "column n was altered, and the table was rewritten"),
        (
            "ALTER TABLE a ADD u uuid DEFAULT gen_random_uuid(), ALTER n TYPE bigint;"
            "ALTER TABLE a ALTER u DROP DEFAULT",
            "u was added, and",
        ),
        (
            "ALTER TABLE a REPLICA IDENTITY FULL, DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
            "its primary key is deferrable",
        ),
        ("ALTER TABLE a ADD g int GENERATED ALWAYS AS (n + 1) STORED", "generated column"),
    ],
)
def test_rows_that_may_have_been_told_otherwise_stop_the_source(source: Any, statements: str, reason: str) -> None:
    database, sql = source
    tables = {"public.a": ("id",)}
    before = database.identities(tables, {}, {})
    assert database.identities(tables, before, {"public.a": _LATER // 2}) == before
    sql(statements)
    with pytest.raises((NeedsResync, UnfitSource), match=reason) as caught:
        database.identities(tables, before, {})
    assert isinstance(caught.value, CdcError)
    assert caught.value.table == "public.a"


@pytest.mark.parametrize(
    "statements",
    [
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "ALTER TABLE a ADD COLUMN more text; CREATE INDEX ON a (n); ANALYZE a",
        "CREATE UNIQUE INDEX another ON a (n); VACUUM a",
        "REINDEX TABLE a; TRUNCATE a; COMMENT ON TABLE a IS 'x'; GRANT SELECT ON a TO PUBLIC",
        "DROP INDEX a_code",
        "ALTER TABLE a ALTER id TYPE bigint",
        "REINDEX TABLE CONCURRENTLY a; CREATE UNIQUE INDEX CONCURRENTLY another ON a (n, id)",
        "CREATE TABLE other (x int); ALTER TABLE other REPLICA IDENTITY FULL",
        "VACUUM FULL a; ALTER TABLE a DROP n; ANALYZE a",
        "VACUUM FULL late; ALTER TABLE late ALTER n TYPE bigint",
        "ALTER TABLE a ALTER n TYPE bigint; TRUNCATE a",
        "ALTER TABLE a ADD COLUMN more text DEFAULT 'x'; ALTER TABLE a ALTER more DROP DEFAULT",
        "ALTER TABLE a ALTER n SET NOT NULL; ALTER TABLE a ALTER n SET STATISTICS 7",
    ],
)
def test_what_tells_rows_as_before_stops_nothing(source: Any, statements: str) -> None:
    database, sql = source
    sql("CREATE TABLE late (id int PRIMARY KEY, n int); INSERT INTO late VALUES (1, 1)")
    sql("ALTER TABLE late ADD d int DEFAULT 5")
    tables = {"public.a": ("id",), "public.late": ("id",)}
    before = database.identities(tables, {}, {})
    for statement in statements.split(";"):
        sql(statement)
    now = database.identities(tables, before, {})
    # Written down in a drop, and read from it.
    assert database.identities(tables, json.loads(json.dumps(now)), {"public.a": _LATER}) == now


@pytest.mark.parametrize("rewrite", ["VACUUM FULL a", "ALTER TABLE a ALTER n TYPE bigint"])
def test_a_column_that_was_added_with_a_value_is_known_when_the_value_is_written_into_rows(
    source: Any, rewrite: str
) -> None:
    """Until then the first row of the table shows it (`validate_added_columns`), and behind that nothing does."""
    database, sql = source
    tables = {"public.a": ("id",)}
    snapshots = [database.identities(tables, {}, {})]
    for statement in ("ALTER TABLE a ADD u int DEFAULT 7; ALTER TABLE a ALTER u DROP DEFAULT", "ANALYZE a"):
        sql(statement)
        snapshots.append(json.loads(json.dumps(database.identities(tables, snapshots[-1], {}))))
    with pytest.raises(NeedsResync, match="column u was added with a value"):
        database.validate_added_columns("public.a", ["u"])
    sql(rewrite)
    database.validate_added_columns("public.a", ["u"])
    with pytest.raises(NeedsResync, match="column u was added, and the table was rewritten"):
        database.identities(tables, snapshots[-1], {})
    refreshed = database.identities(tables, {}, {})  # that has the value in all rows
    sql("VACUUM FULL a")
    database.identities(tables, refreshed, {})


def test_types_whose_text_changes_in_rows_that_were_there_are_told(source: Any) -> None:
    """An enum's word gets another name, or a composite another part: no row changes, and each has another text."""
    database, sql = source
    tables = {"public.a": ("id",)}
    sql("CREATE TYPE mood AS ENUM ('so', 'bad'); CREATE DOMAIN own AS mood; CREATE TYPE pair AS (a int, b own[])")
    sql("CREATE TYPE other AS ENUM ('x'); ALTER TABLE a ADD p pair[], ADD o other, REPLICA IDENTITY FULL")
    before = database.identities(tables, {}, {})
    harmless = [
        "ALTER TYPE mood ADD VALUE 'fine'",
        "ALTER TYPE pair RENAME ATTRIBUTE a TO c",
        "ALTER TYPE mood RENAME TO m",
    ]
    for statement in (
        *harmless,
        "ALTER TABLE a DROP o",
        "ALTER TYPE other RENAME VALUE 'x' TO 'y'",
        "CREATE TYPE z AS (a m)",
    ):
        sql(statement)
        before = json.loads(json.dumps(database.identities(tables, before, {})))
    for statement in (
        "ALTER TYPE m RENAME VALUE 'so' TO 'well'",
        "ALTER TYPE pair ADD ATTRIBUTE d text",
        "ALTER TYPE pair DROP ATTRIBUTE b",
    ):
        sql(statement)
        with pytest.raises(NeedsResync, match=r"an enum or composite of its columns was altered.*\[table public\.a\]"):
            database.identities(tables, before, {})
        before = database.identities(tables, {}, {})


def test_a_column_that_comes_back_is_known_though_a_look_came_between(source: Any) -> None:
    database, sql = source
    tables = {"public.a": ("id",)}
    snapshots = [database.identities(tables, {}, {})]
    for statement in ("ALTER TABLE a DROP n", "ALTER TABLE a ADD m int", "ALTER TABLE a DROP m"):
        sql(statement)
        snapshots.append(database.identities(tables, json.loads(json.dumps(snapshots[-1])), {}))
    sql("ALTER TABLE a ADD n int")
    with pytest.raises(NeedsResync, match="column n was dropped and is there again"):
        database.identities(tables, snapshots[-1], {})
    # What a version before wrote says nothing of columns.
    older = {
        name: attribute
        for name, attribute in snapshots[0]["public.a"].items()
        if name not in ("columns", "gone", "file")
    }
    assert database.identities(tables, {"public.a": older}, {})["public.a"]["columns"].keys() == {"id", "code", "n"}


def test_a_publication_that_leaves_changes_out_stops_its_tables(source: Any) -> None:
    database, sql = source
    sql("CREATE TABLE b (id int PRIMARY KEY)")
    tables = {"public.a": ("id",)}
    for epoch, (statement, is_whole) in enumerate(
        (
            ("ALTER PUBLICATION {} SET (publish = 'insert, update')", False),
            ("ALTER PUBLICATION {0} SET (publish = ''); ALTER PUBLICATION {0} SET (publish = '" + _ALL + "')", True),
            ("ALTER PUBLICATION {} SET TABLE a WHERE (id > 0)", False),
            ("ALTER PUBLICATION {} SET TABLE a (id, code)", False),
            ("ALTER PUBLICATION {0} DROP TABLE a; ALTER PUBLICATION {0} ADD TABLE a", True),
            ("ALTER PUBLICATION {} DROP TABLE a", True),
        ),
        1,
    ):
        database.prepare(epoch, ["public.a"])
        before = json.loads(json.dumps(database.identities(tables, {}, {})))
        older = {name: attribute for name, attribute in before["public.a"].items() if name != "published"}
        sql(statement.format(database.slot_name(epoch)))
        with pytest.raises(NeedsResync, match=r"its publication was altered.*\[table public\.a\]"):
            database.identities(tables, before, {})
        if is_whole:
            assert database.publish_table(epoch, "public.a")
            database.identities(tables, {"public.a": older}, {})
            continue
        # Nor does one table's new reading go on with it, nor what a version before wrote down.
        with pytest.raises(NeedsResync, match=r"its publication was altered.*\[table public\.a\]"):
            database.publish_table(epoch, "public.a")
        with pytest.raises(NeedsResync, match="its publication was altered"):
            database.identities(tables, {"public.a": older}, {})
    database.prepare(7, ["public.a"])
    before = database.identities(tables, {}, {})
    sql(f"ALTER PUBLICATION {database.slot_name(7)} ADD TABLE b; CREATE PUBLICATION another FOR TABLE a (id)")
    database.identities(tables, before, {})
    database.prepare(8, ["public.a"])  # a new reading has another
    database.identities(tables, before, {})


def test_a_table_that_is_published_again_stops_no_other_one(source: Any) -> None:
    """The publication is altered then by sterna; also where a look came between the two steps of that."""
    database, sql = source
    tables = {"public.a": ("id",)}
    database.prepare(1, ["public.a"])
    before = database.identities(tables, {}, {})
    for is_seen in (False, True):
        sql("DROP TABLE IF EXISTS b; CREATE TABLE b (id int PRIMARY KEY)")
        if is_seen:
            sql(f"ALTER PUBLICATION {database.slot_name(1)} ADD TABLE b")
            before = json.loads(json.dumps(database.identities(tables, before, {})))
        assert database.publish_table(1, "public.b")
        now = database.identities(tables, before, {})
        assert now["public.a"]["published"] != before["public.a"]["published"]
        before = now
    sql(f"ALTER PUBLICATION {database.slot_name(1)} SET (publish = '{_ALL}')")
    with pytest.raises(NeedsResync, match="its publication was altered"):
        database.identities(tables, before, {})


@pytest.mark.parametrize(
    "statement", ["CREATE UNIQUE INDEX CONCURRENTLY more ON a (n)", "REINDEX TABLE CONCURRENTLY a"]
)
def test_an_index_that_is_being_built_stops_nothing(source: Any, place: Any, statement: str) -> None:
    """It waits for a transaction that is open, half made: so long drops go on."""
    database, sql = source
    tables = {"public.a": ("id",)}
    snapshots = [database.identities(tables, {}, {})]
    with psycopg.connect(place.url(), autocommit=True) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("BEGIN")
        blocker.execute("LOCK TABLE a IN ROW EXCLUSIVE MODE")
        building = pool.submit(sql, statement)
        while not blocker.execute("SELECT FROM pg_index WHERE NOT indisvalid").fetchall():
            assert not building.done()
            time.sleep(0.01)
        snapshots.append(database.identities(tables, snapshots[-1], {}))
        assert not building.done()
        blocker.execute("ROLLBACK")
        building.result(60)
    assert database.identities(tables, snapshots[-1], {})


def test_a_table_that_goes_while_it_is_asked_for_is_told_by_name(source: Any, place: Any) -> None:
    """Its columns are asked for after it went, or its publication is made; a newcomer of its name is left out."""
    database, sql = source
    sql("ALTER TABLE a ADD COLUMN plain int, ADD COLUMN filled int DEFAULT 7")
    database.validate_added_columns("public.a", ["plain"])
    for table, column, reason in (("a", "filled", "column filled was added"), ("b", "plain", "was dropped")):
        with pytest.raises(NeedsResync, match=reason) as caught:
            database.validate_added_columns(f"public.{table}", [column])
        assert caught.value.table == f"public.{table}"
    with pytest.raises(Busy):
        database.prepare(1, ["public.a", "public.b"])
    sql("CREATE SCHEMA more; CREATE TABLE more.a (id int PRIMARY KEY)")
    other, unfit = (
        PostgresDatabase(settings(place, "public.*", "more.*"), environment_secrets()),
        dict[str, UnfitSource](),
    )
    assert list(other.list_tables(unfit, ["public.a"])) == ["public.a"]
    assert list(unfit) == ["more.a"]
    other.close()


_MONEY = """
CREATE DOMAIN own AS money; CREATE DOMAIN owns AS own; CREATE TYPE paid AS (n int, v owns);
CREATE DOMAIN pays AS paid; CREATE TYPE deep AS (p pays[], t text); CREATE TYPE spent AS RANGE (subtype = money);
CREATE TYPE plain AS (n int, t text[]); CREATE SCHEMA more; CREATE TABLE more.bill (v money)"""


_AMOUNTS = (
    "money", "money[]", "own", "owns[]", "paid", "paid[]", "pays", "deep", "deep[]", "spent", "spent[]",
    "spent_multirange", "more.bill",
)  # fmt: skip


def test_amounts_of_other_decimals_are_refused_wherever_they_are(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of these tests has a locale of two decimal places: here others are what is read."""
    database, sql = source
    sql(_MONEY)
    for at, kind in enumerate(_AMOUNTS):
        sql(f"CREATE TABLE b{at} (id int PRIMARY KEY, p plain, g point, v {kind})")
        sql(f"ALTER TABLE b{at} REPLICA IDENTITY FULL")
    names = sorted(f"public.b{at}" for at in range(len(_AMOUNTS)))
    assert sorted(database.list_tables()) == ["public.a", *names]
    monkeypatch.setattr(postgres, "MONEY_DECIMALS", 3)
    unfit: dict[str, UnfitSource] = {}
    assert list(database.list_tables(unfit)) == ["public.a"]
    assert sorted(unfit) == names
    assert all("column v has amounts of money with 2 decimal places" in failure.message for failure in unfit.values())
    with pytest.raises(UnfitSource, match=r"lc_monetary.*\[table public\.b7\]"):
        database.identities({"public.b7": ("id",)}, {}, {})
    sql("ALTER TABLE b7 DROP COLUMN v")
    assert list(database.list_tables(unfit)) == ["public.a", "public.b7"]


def test_what_a_version_before_read_is_doubted_where_it_may_be_filled_in(source: Any) -> None:
    """Its drops don't say what rows were known by: a deletion behind them may be older than the first look."""
    database, _ = source
    tables = {"public.a": ("id",)}
    with pytest.raises(NeedsResync, match="whose key may be incomplete"):
        database.identities(tables, {}, {"public.a": 1})
    assert database.identities(tables, {}, {"public.a": _LATER})


def test_a_key_that_may_be_filled_in_is_believed_where_nothing_was_altered_meanwhile(source: Any) -> None:
    """An index that comes, is the identity, and goes leaves nothing behind but that the table was altered."""
    database, sql = source
    tables = {"public.a": ("id",)}
    before = database.identities(tables, {}, {})
    sql("CREATE UNIQUE INDEX short ON a (code); ALTER TABLE a REPLICA IDENTITY USING INDEX short")
    sql(f"{_DEFAULT} DROP INDEX short")
    altered = database.identities(tables, before, {})["public.a"]["changed"]
    with pytest.raises(NeedsResync, match="whose key may be incomplete"):
        database.identities(tables, before, {"public.a": altered - 1})
    # The next drop may still have rows from before it was altered.
    after = database.identities(tables, before, {})
    with pytest.raises(NeedsResync, match="whose key may be incomplete"):
        database.identities(tables, after, {"public.a": altered - 1})
    assert database.identities(tables, after, {"public.a": _LATER}) == after


def test_an_index_that_tells_rows_while_nobody_reads_deletes_no_other_row(shop: CaptureTestbed) -> None:
    shop.sql(_A)
    shop.sql("INSERT INTO a SELECT g, 'c' || g, g FROM generate_series(0, 3) g")
    shop.settled("a")
    shop.sql(f"{_USING} DELETE FROM a WHERE id = 2")
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("UnfitSource: its replica identity is neither")
    status, _ = read_sources(shop.followed())
    assert status.blocked is not None
    assert status.blocked.reason == "UnfitSource"
    shop.sql(f"{_DEFAULT} INSERT INTO a VALUES (4, 'c4', 4)")
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("NeedsResync: a unique index of it was changed")
    status, _ = read_sources(shop.followed())
    assert status.blocked is not None
    assert status.blocked.reason == "NeedsResync"
    assert [row[0] for row in shop.rows("a", "id")] == [0, 1, 2, 3]
    resync(shop.followed()[0], act=True)
    shop.settled("a")
    # A row whose key is 0 goes as any other, also where the table was altered before.
    shop.sql("ALTER TABLE a ADD COLUMN more text; INSERT INTO a VALUES (5, 'c5', 5, 'x')")
    shop.settled("a")
    shop.sql("DELETE FROM a WHERE id = 0; UPDATE a SET id = 0 WHERE id = 1; UPDATE a SET id = 1 WHERE id = 0")
    shop.settled("a")


_OTHER_ROWS = [
    f"{_USING} DELETE FROM a WHERE id = 2",
    f"{_USING} UPDATE a SET code = 'other' WHERE id = 2",
    f"{_OTHER_KEY} UPDATE a SET id = 9 WHERE id = 2; DELETE FROM a WHERE id = 3",
    "CREATE UNIQUE INDEX short ON a (code); ALTER TABLE a REPLICA IDENTITY USING INDEX short; "
    f"DELETE FROM a WHERE id = 2; {_DEFAULT} DROP INDEX short",
]


@pytest.mark.parametrize("statements", often(_OTHER_ROWS, [_OTHER_ROWS[0]]))
def test_rows_that_are_told_otherwise_while_they_are_read_change_no_other_row(
    shop: CaptureTestbed, statements: str
) -> None:
    shop.sql(_A)
    shop.sql("INSERT INTO a SELECT g, 'c' || g, g FROM generate_series(0, 3) g")

    def rows() -> list[int]:
        try:
            return [row[0] for row in shop.rows("a", "id")]
        except AnalysisException:  # the table isn't there yet
            return []

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shop.fails)
        while rows() != [0, 1, 2, 3] and not running.done():
            time.sleep(1.0)
        shop.sql(statements)
        (failure,) = running.result().failed.values()
    assert failure.startswith(("NeedsResync", "UnfitSource")), failure
    assert rows() == [0, 1, 2, 3]
