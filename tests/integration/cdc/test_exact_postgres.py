"""Every type of a Postgres' catalogue comes exactly, by either way, whatever settings its database and role have.

First rows are read by SQL and changes by the log: what both tell is compared with the database's own text, which gets
the value back as text and says whether that is the same. Types and their arrays are those of `pg_type`: one without a
value here fails. What else falls under it: settings of sessions, values that have no place in their column's type,
arrays that are no lists, values that aren't told as they weren't changed, an engine that begins anew in between, and
domains, enums and composites of users.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.sources import open_database
from sterna.servers.postgres import Database
from tests.integration.cdc.reading import SourceReader
from tests.support.often import often

_CATALOGUE = """
SELECT t.typname::text, a.typname::text FROM pg_type t LEFT JOIN pg_type a ON a.oid = t.typarray
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype IN ('b', 'r', 'm') AND t.typcategory <> 'A'
ORDER BY t.typname"""
_NOT_WRITTEN = {  # have no input of their own
    "pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary", "gtsvector",
}  # fmt: skip
_SETTINGS = (
    "IntervalStyle = iso_8601", "extra_float_digits = -10", "bytea_output = escape", "DateStyle = 'German, DMY'",
    "TimeZone = 'Asia/Kathmandu'", "quote_all_identifiers = on", "search_path = other",
)  # fmt: skip
_VALUES: dict[str, tuple[str, ...]] = {
    "bool": ("t", "f"),
    "bytea": ("", "\\x00ff", "\\x5c27"),
    "char": ("a", ""),
    "name": ("some name", "x" * 63),
    "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647", "0"),
    "int8": ("-9223372036854775808", "9223372036854775807", "0"),
    "oid": ("0", "4294967295"),
    "float4": ("NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e+38", "0.1", "16777217"),
    "float8": ("NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e+308", "0.1", "9007199254740993"),
    "numeric": ("NaN", "0.000", "1.2300", "-1e-300", "9" * 200, "Infinity"),
    "money": ("-92233720368547758.08", "92233720368547758.07", "0", "-0.01", "1234.50"),
    "text": ("", "é😀'\\\"", "NULL", "a,b{c}", "x\ty\nz"),
    "varchar": ("", "null", "é"),
    "bpchar": ("ab ", ""),
    "xml": (),
    "json": ('{"a": 1.10, "a": 2}', "null", '"é"'),
    "jsonb": ('{"a": 1.10}', "null", '"é"'),
    "jsonpath": ("$.a[*]",),
    "uuid": ("a7fbb3a2-0e9c-4d65-9a52-0d5a2c9a6f01",),
    "date": ("0001-01-01", "1582-10-04", "1582-10-10", "1582-10-15", "1969-02-03", "9999-12-31", "2000-02-29"),
    "time": ("00:00:00", "24:00:00", "23:59:59.999999", "12:13:14.5"),
    "timetz": ("00:00:00+15:59", "24:00:00-15:59", "12:13:14.5+02", "12:13:14.000001+05:45:01"),
    "timestamp": (
        "0001-01-01 00:00:00",
        "1582-10-10 01:02:03.000001",
        "9999-12-31 23:59:59.999999",
        "1883-11-18 12:00",
    ),
    "timestamptz": ("0001-01-02 00:00:00+00", "1582-10-10 01:02:03+00", "9999-12-31 23:59:59.999999+00"),
    "interval": (
        "1 day 2 sec",
        "-1 year 2 mons -3 days 04:05:06.000001",
        "-00:00:00.5",
        "178000000 years",
        "0",
        "1 mon -1 day",
        "2562047788:00:54.775807",
        "-2562047788:00:54.775807",
        "00:00:00.1",
    ),
    "bit": ("1", "0"),
    "varbit": ("", "1", "01", "00000101", "1" * 70),
    "inet": ("10.0.0.1/8", "::1", "fe80::1/64"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "point": ("(1e-05,1e+300)", "(NaN,-Infinity)"),
    "line": ("{1,-1,0.1}",),
    "lseg": ("[(1e-05,0),(1,1)]",),
    "box": ("(1,1),(1e-05,0)",),
    "path": ("((0,0),(1,1e-05))", "[(0,0),(1,1)]"),
    "polygon": ("((0,0),(1,1),(1e-05,0))",),
    "circle": ("<(1e-05,0),0.1>",),
    "tsvector": ("'a':1A 'b''c':2", ""),
    "tsquery": ("'a' & !'b'",),
    "pg_lsn": ("0/0", "FFFFFFFF/FFFFFFFF"),
    "txid_snapshot": ("10:20:10,14,15",),
    "pg_snapshot": ("10:20:10,14,15",),
    "xid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "cid": ("4294967295",),
    "tid": ("(4294967295,65535)",),
    "int2vector": ("1 2 3", ""),
    "oidvector": ("1 2 3", ""),
    "aclitem": ("=r/postgres",),
    "refcursor": ("a b",),
    "regclass": ("pg_class",),
    "regtype": ("int4", "character varying"),
    "regproc": ("now",),
    "regprocedure": ("now()",),
    "regoper": ("||/",),
    "regoperator": ("+(integer,integer)",),
    "regrole": ("postgres",),
    "regnamespace": ("public",),
    "regconfig": ("english",),
    "regdictionary": ("simple",),
    "regcollation": ('"C"',),
    "regdatabase": ("postgres",),
    "int4range": ("empty", "[1,10)", "(,5)"),
    "int8range": ("empty", "[1,9223372036854775807)"),
    "numrange": ("[1.10,2.20]", "empty"),
    "daterange": ("[0044-03-15 BC,infinity)", "[1582-10-10,1582-10-12)"),
    "tsrange": ('["0044-03-15 00:00:00 BC",infinity)',),
    "tstzrange": ('["1582-10-10 00:00:00+00",)',),
    "int4multirange": ("{}", "{[1,10),[20,30)}"),
    "int8multirange": ("{[1,10)}",),
    "nummultirange": ("{[1.10,2.20]}",),
    "datemultirange": ("{[2020-01-01,2020-02-01)}",),
    "tsmultirange": ('{["2020-01-01 00:00:00","2020-02-01 00:00:00")}',),
    "tstzmultirange": ('{["2020-01-01 00:00:00+00","2020-02-01 00:00:00+00")}',),
}
_PLAIN = (
    "-c TimeZone=UTC -c IntervalStyle=postgres -c DateStyle=ISO -c extra_float_digits=3 -c bytea_output=hex "
    "-c search_path=public -c quote_all_identifiers=off"
)
_CREATE_TYPES = """
CREATE TYPE mood AS ENUM ('good', 'so, so', 'b"a\\d', 'ü'); CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE DOMAIN cents AS numeric(9, 2); CREATE DOMAIN many AS int[]; CREATE TYPE pair AS (a int, b text);
CREATE TYPE span AS RANGE (subtype = float8); CREATE DOMAIN day AS date"""
_OWN: dict[str, tuple[str, ...]] = {
    "mood": ("good", "so, so", 'b"a\\d', "ü"),
    "small": ("99", "-5"),
    "cents": ("1.10",),
    "many": ("{1,NULL,3}", "{}"),
    "pair": ('(1,"a,b")', "(,)"),
    "span": ("[1e-05,2)",),
    "day": ("1582-10-10",),
    "numeric(12,3)": ("1.100", "-0.001"),
    "numeric(38,0)": ("9" * 38,),
    "numeric(3,5)": ("0.00123",),
    "numeric(5,-2)": ("12300",),
    "bit(3)": ("101", "000"),
    "bit(12)": ("100000000001",),
    "varchar(5)": ("NULL", ""),
    "timestamp(3)": ("1969-12-31 23:59:59.999",),
    "time(0)": ("12:00:00",),
    "interval day to second": ("-1 day -00:00:01",),
}


class Source:
    """A database of a server, and what reads it."""

    def __init__(self, server: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = f"exact_{uuid.uuid4().hex[:8]}"
        self.database: Database = server.create_database(self.name)
        login = {"conn_type": "postgres", "login": self.database.user, "password": self.database.password}
        monkeypatch.setenv("AIRFLOW_CONN_EXACT", json.dumps(login))
        with psycopg.connect(server.admin.url(), autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {self.name} REPLICATION".encode())
        settings = {"name": self.name, "region": "eu", "hosts": [f"{self.database.host}:{self.database.port}"]}
        settings |= {
            "database": self.name,
            "credential_id": "exact",
            "tables": ["public.*"],
            "into": "a",
            "every": "1s",
        }
        self.reading = SourceReader(CdcSource.model_validate(settings), folder)

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.url(), autocommit=True, options=_PLAIN) as connection:
            cursor = connection.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def apply_settings(self) -> None:
        """Give database and role settings under which values are told otherwise."""
        for at, setting in enumerate(_SETTINGS):
            self.sql(f"ALTER {'ROLE' if at % 2 else 'DATABASE'} {self.name} SET {setting}")


@pytest.fixture
def source(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    opened = Source(server, tmp_path, monkeypatch)
    yield opened
    opened.reading.restart()


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def values_of(source: Source) -> dict[str, list[str]]:
    """Values of all types of the catalogue, of some of users, and of all their arrays, as SQL has them."""
    literals: dict[str, list[str]] = {}
    for name, array in [*source.sql(_CATALOGUE), *((own_type, None) for own_type in _OWN)]:
        if name in _NOT_WRITTEN or (name == "xml" and not source.sql("SELECT has_xml FROM (SELECT false) x (has_xml)")):
            continue
        assert name in _VALUES or name in _OWN, f"the catalogue has a type {name}: what are its values?"
        own = '"char"' if name == "char" else name
        texts = [f"{literal(text)}::{own}" for text in _VALUES.get(name, ()) or _OWN.get(name, ())]
        if texts:
            literals[own] = texts
        if (array or name in _OWN) and texts:
            literals[f"{own}[]"] = [
                f"ARRAY[{', '.join(texts)}, NULL]::{own}[]",
                f"'{{}}'::{own}[]",
                f"ARRAY[{texts[0]}]",
            ]
    return literals


def rendered(value: Any, type: str) -> str | None:
    """A value of a table as text that the database can read."""
    if value is None:
        return None
    if isinstance(value, list):
        inner = [rendered(element, type.removesuffix("[]")) for element in value]
        mark = ";" if type == "box[]" else ","
        quoted = [
            "NULL" if element is None else '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'
            for element in inner
        ]
        return "{" + mark.join(quoted) + "}"
    if isinstance(value, bytes) and type.startswith("bit"):
        size = int(type[4:-1])
        return format(int.from_bytes(value, "little"), f"0{size}b")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, bool) and type == "bit":
        return str(int(value))
    return str(value)


def quoted(element: str) -> str:
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'


def list_differences(source: Source, table: str, types: dict[str, str], came: dict[Any, dict[str, Any]]) -> list[str]:
    """What came otherwise than the database has it."""
    ids = [row[0] for row in source.sql(f"SELECT id FROM {table} ORDER BY id")]
    problems = [] if sorted(came) == ids else [f"{table}: rows {sorted(came)}, not {ids}"]
    options = f"{_PLAIN} -c lc_monetary=C"
    with psycopg.connect(source.database.url(), autocommit=True, options=options) as connection:
        for id, row in came.items():
            for column, type in types.items():
                if column not in row:
                    problems.append(f"{type}: isn't there")
                    continue
                query = f"SELECT %s::text::{type}::text, {column}::text FROM {table} WHERE id = %s"
                try:
                    ((back, has),) = connection.execute(query.encode(), [rendered(row[column], type), id]).fetchall()
                except psycopg.Error as error:
                    back, has = f"{row[column]!r}: {error}", ""
                if back != has:
                    problems.append(f"{type}: row {id} has {row[column]!r}, and is {has!r} ({back!r})")
    return problems


@pytest.mark.parametrize("settings", often(["plain", "other"], ["other"]))
def test_each_type_of_the_catalogue(source: Source, settings: str) -> None:
    source.sql("CREATE SCHEMA other")
    source.sql(_CREATE_TYPES)
    if settings == "other":
        source.apply_settings()
    values = values_of(source)
    types = {f"c{at}": type for at, type in enumerate(values)}
    most = max(map(len, values.values()))
    columns = ", ".join(f"{column} {type}" for column, type in types.items())
    source.sql(f"CREATE TABLE kinds (id int PRIMARY KEY, n int, {columns}); ALTER TABLE kinds REPLICA IDENTITY FULL")
    source.sql("CREATE TABLE keyless (n int)")  # the pattern names it, and the others are read without it

    def insert(first: int) -> None:
        for at in range(most):
            row = ", ".join(literals[at] if at < len(literals) else "NULL" for literals in values.values())
            source.sql(f"INSERT INTO kinds VALUES ({first + at}, 0, {row})")

    def settle() -> list[str]:
        (last,) = source.sql("UPDATE kinds SET n = n + 1 WHERE id = (SELECT max(id) FROM kinds) RETURNING id, n")
        came = source.reading.until(lambda tables: tables.get("public.kinds", {}).get(last[0], {}).get("n") == last[1])
        return list_differences(source, "kinds", types, came["public.kinds"])

    insert(0)
    assert settle() == []
    insert(100)
    sets = ", ".join(f"{column} = (SELECT o.{column} FROM kinds o WHERE o.id = 1)" for column in types)
    source.sql(f"UPDATE kinds SET {sets} WHERE id = 0; DELETE FROM kinds WHERE id = 101")
    assert settle() == []
    source.reading.restart()
    insert(200)
    source.sql("UPDATE kinds SET n = 7 WHERE id = 2")
    assert settle() == []


_WITHOUT_A_PLACE = [
    ("int[]", "{{1,2},{3,4}}"),
    ("text[]", "{{a},{b}}"),
    ("int[]", "[2:3]={1,2}"),
    ("date", "0044-03-15 BC"),
    ("date", "10000-01-01"),
    ("timestamp", "infinity"),
    ("timestamptz", "0044-03-15 00:00:00+00 BC"),
    ("numeric(9,2)", "NaN"),
]


@pytest.mark.parametrize(
    ("is_first", "type", "value"),
    often(
        [(is_first, *one) for is_first in (True, False) for one in _WITHOUT_A_PLACE],
        [
            (True, "int[]", "{{1,2},{3,4}}"),
            (True, "timestamp", "infinity"),
            (False, "date", "10000-01-01"),
            (False, "numeric(9,2)", "NaN"),
        ],
    ),
)
def test_a_value_without_a_place_stops_its_source_by_name(
    source: Source, type: str, value: str, is_first: bool
) -> None:
    source.sql(f"CREATE TABLE t (id int PRIMARY KEY, v {type}); ALTER TABLE t REPLICA IDENTITY FULL")
    source.sql("INSERT INTO t VALUES (0, NULL)")
    if not is_first:
        source.reading.until(lambda tables: 0 in tables.get("public.t", {}))
    source.sql(f"INSERT INTO t VALUES (1, '{value}')")
    with pytest.raises(UnfitSource, match=r"a value of column v has no place in .*\[table public\.t\]"):
        source.reading.until(lambda tables: 1 in tables.get("public.t", {}))


def test_check_sees_what_a_run_would_fail_at(source: Source, server: Any) -> None:
    """Tables that the log leaves out, and those that this login may not publish."""
    database = open_database(source.reading.source, environment_secrets())
    source.sql("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)")
    with pytest.raises(UnfitSource, match=r"unlogged.*\[table public\.t\]"):
        database.list_tables()
    source.sql("ALTER TABLE t SET LOGGED")
    assert database.list_tables() == {"public.t": ("id",)}
    # Its text has `;` between elements, which is known of `box` itself alone; those of PostGIS have `:`.
    source.sql("CREATE DOMAIN own_box AS box; ALTER TABLE t ADD COLUMN boxes own_box[], ADD COLUMN others box[]")
    source.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(UnfitSource, match=r"column boxes is an array.*\[table public\.t\]"):
        database.list_tables()
    source.sql("CREATE DOMAIN some_boxes AS own_box[]; CREATE DOMAIN more_boxes AS some_boxes")
    source.sql("ALTER TABLE t DROP COLUMN boxes, ADD COLUMN nested more_boxes")
    with pytest.raises(UnfitSource, match=r"column nested is an array.*\[table public\.t\]"):
        database.list_tables()
    source.sql("ALTER TABLE t DROP COLUMN nested")
    assert database.list_tables() == {"public.t": ("id",)}
    with psycopg.connect(f"{server.admin.url().rpartition('/')[0]}/{source.name}", autocommit=True) as admin:
        admin.execute("ALTER TABLE t OWNER TO postgres")
        with pytest.raises(UnfitSource, match=r"isn't its owner.*\[table public\.t\]"):
            database.list_tables()
        admin.execute(f"ALTER TABLE t OWNER TO {source.name}; ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        assert database.list_tables() == {"public.t": ("id",)}
        for broken, mended, reason in (
            ("ALTER TABLE t FORCE ROW LEVEL SECURITY", "ALTER TABLE t NO FORCE ROW LEVEL SECURITY", "hides rows"),
            (f"REVOKE SELECT ON t FROM {source.name}", f"GRANT SELECT ON t TO {source.name}", "may not read all"),
            (
                f"ALTER ROLE {source.name} NOREPLICATION",
                f"ALTER ROLE {source.name} REPLICATION",
                "may not read the log",
            ),
            (
                f"ALTER DATABASE {source.name} OWNER TO postgres",
                f"GRANT CREATE ON DATABASE {source.name} TO {source.name}",
                "may not make a publication",
            ),
        ):
            admin.execute(broken.encode())
            with pytest.raises(UnfitSource, match=reason):
                database.list_tables()
            admin.execute(mended.encode())
            assert database.list_tables() == {"public.t": ("id",)}
    database.close()


def test_first_rows_are_all_rows_or_none(source: Source) -> None:
    """Row level security that hides rows from the login makes the engine's question fail, also where it came late."""
    database = open_database(source.reading.source, environment_secrets())
    source.sql("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    source.sql("CREATE POLICY nobody ON t USING (false); ALTER TABLE t FORCE ROW LEVEL SECURITY")
    options = database.properties(1, ["public.t"], "x", Path())["driver.options"]
    engine = psycopg.connect(source.database.url(), options=options)
    with engine, pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        engine.execute("SELECT * FROM t")
    database.close()
