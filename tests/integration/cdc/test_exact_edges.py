"""Types of a Postgres by each replica identity, and random values at the edges of types, against the database's text.

`test_exact_postgres.py` has each type with the whole row as its identity. Here the same values come by the key alone,
through first rows, insert, update, a key that changes, delete, and an engine that begins anew; a table that is known by
an index is refused by name beside them. What else falls under it: long values that weren't changed and so aren't told,
values that a random generator finds at the edges (bit patterns of floats, texts of odd characters, digits of numbers,
far dates, nested JSON, arrays of all that), and amounts of money, whose number of decimal places is the locale's.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sterna.config.secrets import environment_secrets
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.sources import open_database
from sterna.servers.postgres import start_postgres
from tests.integration.cdc.test_exact_postgres import (
    _CREATE_TYPES,
    _OWN,
    _VALUES,
    Source,
    list_differences,
    rendered,
    source,
    values_of,
)

__all__ = ["source"]

Make = Callable[[random.Random], Any]
_START, _MICROSECONDS = datetime(1, 1, 1), 315_537_897_600_000_000  # up to the year 9999
_ODD = (
    "'\"\\{}[](),;:\t\n\r\x01\x7f\u0085\u00a0\u00ad\u0301\u200b\u202e\u2028\ufeff\ufffd\ufffe\U0001f600\U0010ffff"
    " éßÅ表ソNULL%$_ "
)
_LOCALES = Path("/usr/share/i18n/locales")


def whole(size: int) -> Make:
    """Whole numbers of so many bits, near powers of two, zero and both ends."""

    def make(rng: random.Random) -> int:
        value = rng.choice((1, -1)) * ((1 << rng.randrange(size)) + rng.choice((-1, 0, 1)))
        return max(-(1 << size - 1), min(value, (1 << size - 1) - 1))

    return make


def floating(layout: str, size: int) -> Make:
    """Numbers of all bit patterns, NaN and infinity too."""

    def make(rng: random.Random) -> str:
        ends = (0, 1, (1 << size * 8 - 1), (1 << size * 8) - 1, (1 << size * 8 - 1) - 1)
        bits = rng.choice((rng.getrandbits(size * 8), rng.getrandbits(size * 4), rng.choice(ends)))
        return repr(struct.unpack(f"<{layout}", bits.to_bytes(size, "little"))[0])

    return make


def number(digits: int, scale: int) -> Make:
    """Numbers of up to so many digits before and behind the point."""

    def make(rng: random.Random) -> str:
        before = rng.choice(("0", "9" * digits, str(rng.randrange(10 ** rng.randint(1, digits)))))
        behind = rng.choice(("", "0" * scale, "9" * scale, str(rng.randrange(10**scale)).zfill(scale)))
        return rng.choice(("", "-")) + before + (f".{behind}" if behind else "")

    return make


def unlimited(rng: random.Random) -> str:
    return str(rng.choice(("NaN", "Infinity", "-Infinity", f"{number(60, 40)(rng)}e{rng.randint(-90, 90)}")))


def text(rng: random.Random) -> str:
    letters = (rng.choice((rng.choice(_ODD), chr(rng.randrange(1, 0xD800)))) for _ in range(rng.choice((0, 1, 3, 40))))
    return "".join(letters)


def octets(rng: random.Random) -> str:
    return "\\x" + rng.randbytes(rng.choice((0, 1, 2, 33))).hex()


def moment(zone: str = "") -> Make:
    """Moments of all years that a calendar has; those near its ends and of the last days before 1582 more often."""

    def make(rng: random.Random) -> str:
        place = rng.choice((rng.randrange(_MICROSECONDS), rng.randrange(10**6), _MICROSECONDS - 1 - rng.randrange(10)))
        at = max(_START + timedelta(microseconds=place), _START + timedelta(days=1 if zone else 0))
        at = rng.choice((at, datetime(1582, 10, rng.randint(1, 31), 1, 2, 3, rng.randrange(10**6))))
        return at.isoformat(" ") + zone

    return make


def day(rng: random.Random) -> str:
    return str(moment()(rng))[:10]


def span(rng: random.Random) -> str:
    parts = (rng.randint(-(10**5), 10**5), rng.randint(-(10**5), 10**5), rng.randint(-(10**14), 10**14))
    return "{} months {} days {} microseconds".format(*(rng.choice((0, part)) for part in parts))


def any_json(rng: random.Random) -> str:
    def value(depth: int) -> Any:
        if depth and rng.random() < 0.5:
            inner = [value(depth - 1) for _ in range(rng.randint(0, 3))]
            return inner if rng.random() < 0.5 else {text(rng): element for element in inner}
        return rng.choice((None, True, text(rng), whole(64)(rng), rng.random() * 10 ** rng.randint(-20, 20)))

    return json.dumps(value(3), ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))


def array_of(make: Make, kind: str) -> Make:
    """Arrays of such values, with gaps."""

    def make_array(rng: random.Random) -> str | None:
        return rendered([rng.choice((make(rng), make(rng), None)) for _ in range(rng.randint(0, 4))], f"{kind}[]")

    return make_array


_SCALARS: Mapping[str, Make] = {
    "smallint": whole(16),
    "integer": whole(32),
    "bigint": whole(64),
    "numeric": unlimited,
    "numeric(38,10)": number(28, 10),
    "numeric(12,3)": number(9, 3),
    "real": floating("f", 4),
    "double precision": floating("d", 8),
    "text": text,
    "varchar": text,
    "bytea": octets,
    "date": day,
    "timestamp": moment(),
    "timestamptz": moment("+00"),
    "interval": span,
    "json": any_json,
    "bit(12)": lambda rng: format(rng.getrandbits(12), "012b"),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128))),
    "money": number(14, 2),
}
_TYPES = {**_SCALARS, **{f"{kind}[]": array_of(make, kind) for kind, make in _SCALARS.items() if kind != "bit(12)"}}


def cycled(texts: Sequence[str]) -> Make:
    """One text after the other."""
    cycle = itertools.cycle(texts)
    return lambda rng: next(cycle)


class Walk:
    """Tables of a source that get the same rows, each with an identity of its own.

    Args:
        source: where.
        seed: of the values.
        rows: of each phase.
        makers: by type, what makes its values.
    """

    def __init__(self, source: Source, seed: int, rows: int, makers: Mapping[str, Make]) -> None:
        self.source, self.rng, self.rows, self.makers = source, random.Random(seed), rows, makers
        self.types: dict[str, dict[str, str]] = {}

    def table(self, name: str, identity: str, types: Sequence[str]) -> None:
        """Make a table."""
        self.types[name] = {f"c{at}": type for at, type in enumerate(types)}
        columns = "".join(f", {column} {type}" for column, type in self.types[name].items())
        self.source.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, long text{columns})")
        self.source.sql(f"ALTER TABLE {name} ALTER long SET STORAGE EXTERNAL; ALTER TABLE {name} {identity}")

    def insert(self, first: int) -> None:
        """Write rows; every third has a long value."""
        for at in range(first, first + self.rows):
            long = text(self.rng) + "x" * 9000 if at % 3 == 0 else None
            self.write("INSERT INTO {0} (id, n, long{1}) VALUES (%s, 0, %s{2})", at, long)

    def update(self, ids: Sequence[int]) -> None:
        """Give rows other values, but for the long ones."""
        for id in ids:
            self.write("UPDATE {0} SET (n{1}) = (SELECT n + 1{2}) WHERE id = " + str(id))

    def write(self, statement: str, *before: Any) -> None:
        values = {kind: None if self.rng.random() < 0.1 else make(self.rng) for kind, make in self.makers.items()}
        for name, types in self.types.items():
            columns = "".join(f", {column}" for column in types)
            marks = "".join(f", %s::text::{kind}" for kind in types.values())
            row = [None if (value := values[kind]) is None else str(value) for kind in types.values()]
            self.source.sql(statement.format(name, columns, marks), *before, *row)

    def settle(self) -> list[str]:
        """Wait until the last change of each table has come; return what came otherwise."""
        wanted = {}
        for name in self.types:
            sql = f"UPDATE {name} SET n = n + 1 WHERE id = (SELECT max(id) FROM {name}) RETURNING id, n"
            wanted[name] = self.source.sql(sql)[0]
        came = self.source.reading.until(
            lambda tables: all(tables.get(f"public.{t}", {}).get(id, {}).get("n") == n for t, (id, n) in wanted.items())
        )
        problems = []
        for name, types in self.types.items():
            rows = came[f"public.{name}"]
            problems += [
                f"{name}: {problem}" for problem in list_differences(self.source, name, {**types, "long": "text"}, rows)
            ]
        return problems

    def all(self) -> None:
        """First rows, inserts, updates, another key, deletes, and all of it once more behind a restart."""
        self.insert(0)
        assert self.settle() == []
        for first in (1000, 2000):
            self.insert(first)
            self.update(range(first - 1000, first - 1000 + self.rows, 2))
            for name in self.types:
                self.source.sql(f"DELETE FROM {name} WHERE id % 5 = 3")
                moved = f"SELECT max(id) FROM {name} WHERE long IS NULL"  # a long value isn't told with another key
                self.source.sql(f"UPDATE {name} SET id = id + 500, n = 7 WHERE id = ({moved})")
            assert self.settle() == []
            self.source.reading.restart()


def by_key(source: Source) -> dict[str, Make]:
    """The types of the catalogue of which a table needs no whole row as its identity."""
    literals = {**_VALUES, **_OWN}
    query = "SELECT typcategory::text FROM pg_type WHERE oid = %s::regtype"
    kinds = [kind for kind in values_of(source) if not kind.endswith("[]") and kind != "varbit"]
    return {kind: cycled(literals[kind.strip('"')]) for kind in kinds if source.sql(query, kind)[0][0] != "A"}


def test_each_type_and_random_values_by_key_and_by_row(source: Source) -> None:
    source.sql(_CREATE_TYPES)
    catalogue = by_key(source)
    walk = Walk(source, 4711, 6, {**catalogue, **_TYPES})
    walk.table("d", "REPLICA IDENTITY DEFAULT", [*_SCALARS, *(type for type in catalogue if type not in _SCALARS)])
    walk.table("f", "REPLICA IDENTITY FULL", list(_TYPES))
    source.sql("CREATE TABLE i (id int PRIMARY KEY, code text NOT NULL); CREATE UNIQUE INDEX i_code ON i (code)")
    source.sql("ALTER TABLE i REPLICA IDENTITY USING INDEX i_code; INSERT INTO i VALUES (1, 'a')")
    database = open_database(source.reading.source, environment_secrets())
    unfit: dict[str, UnfitSource] = {}
    assert sorted(database.list_tables(unfit)) == ["public.d", "public.f"]
    assert "its replica identity is neither" in unfit["public.i"].message
    database.close()
    walk.all()
    assert sorted(source.reading.rows()) == ["public.d", "public.f"]


@pytest.mark.rare
@pytest.mark.parametrize("settings", ["plain", "other"])
@pytest.mark.parametrize("seed", range(2))
def test_many_random_values(source: Source, seed: int, settings: str) -> None:
    if settings == "other":
        source.sql("CREATE SCHEMA other")
        source.apply_settings()
    walk = Walk(source, seed, 80, _TYPES)
    walk.table("d", "REPLICA IDENTITY DEFAULT", list(_SCALARS))
    walk.table("f", "REPLICA IDENTITY FULL", list(_TYPES))
    walk.all()


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that knows the locales of Germany and Japan, made here: a small image has none but C."""
    if not shutil.which("localedef") or not (_LOCALES / "ja_JP").exists():
        pytest.skip("needs localedef, and the sources of locales (Debian's package locales)")
    folder = Path(tempfile.mkdtemp(prefix="sterna-locales-"))
    folder.chmod(0o755)  # the server may have another account
    for name in ("ja_JP", "de_DE"):
        command = ["localedef", "--no-archive", "-i", name, "-f", "UTF-8", str(folder / f"{name}.UTF-8")]
        subprocess.run(command, check=False, capture_output=True)  # it ends with 1 where it warns
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(folder))
        settings = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
        started = start_postgres(tmp_path_factory.mktemp("abroad"), settings)
    yield started
    started.stop()
    shutil.rmtree(folder)


@pytest.mark.rare
def test_amounts_of_another_locale(abroad: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locale with another number of decimal places stores other numbers: 12 yen would come as 0.12."""
    source = Source(abroad, tmp_path, monkeypatch)
    source.sql(f"ALTER DATABASE {source.name} SET lc_monetary = 'de_DE.UTF-8'")
    source.sql("CREATE TYPE owed AS (n int, v money); CREATE TABLE t (id int PRIMARY KEY, v money, w owed)")
    source.sql("INSERT INTO t VALUES (1, '1234,50', ROW(7, '1234,50'))")
    assert source.sql("SELECT v::text FROM t")[0][0].startswith("1.234,50")
    came = source.reading.until(lambda tables: "public.t" in tables)["public.t"]
    assert (came[1]["v"], came[1]["w"]) == ("1234.50", '(7,"$1,234.50")')
    source.sql("UPDATE t SET v = '-0,01', w = ROW(7, '-0,01')")
    came = source.reading.until(lambda tables: tables["public.t"][1]["v"] != "1234.50")["public.t"]
    assert (came[1]["v"], came[1]["w"]) == ("-0.01", "(7,-$0.01)")
    source.reading.restart()
    source.sql(f"ALTER DATABASE {source.name} SET lc_monetary = 'ja_JP.UTF-8'")
    source.sql("CREATE DOMAIN own AS money; CREATE TABLE a (id int PRIMARY KEY, v own)")
    source.sql("CREATE TYPE paid AS (n int, v own); CREATE TABLE c (id int PRIMARY KEY, v paid)")
    source.sql("CREATE TABLE b (id int PRIMARY KEY, v text)")
    with psycopg.connect(source.database.url(), autocommit=True) as connection:
        assert connection.execute("SELECT '1234'::money::text").fetchall() == [("￥1,234",)]
    database = open_database(source.reading.source, environment_secrets())
    unfit: dict[str, UnfitSource] = {}
    assert list(database.list_tables(unfit)) == ["public.b"]
    assert all("lc_monetary" in unfit[table].message for table in ("public.a", "public.c", "public.t"))
    with pytest.raises(UnfitSource, match=r"lc_monetary.*\[table public\.t\]"):
        database.identities({"public.t": ("id",)}, {}, {})
    database.close()
