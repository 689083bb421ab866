"""What can't be followed is one table's trouble, wherever a source is looked at: at its beginning, amid, in `status`.

Two databases with a table of one name stopped the whole source, as did a table that was dropped between two questions.
What else falls under it: a newcomer whose name is that of a followed table (which keeps it), both of them new, a table
whose statement the login may not see, a database that the server writes no log of, tables that go while a source
begins, and columns that are asked for after their table went. A real server has them in `tests/integration/cdc`.
Names of columns that no table on `main` has were told by the first row alone: `check` and `status` look at them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import Busy, DatabaseRefused, NeedsResync, UnfitSource
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.journal import CaptureSpec, Journal
from sterna.pipelines.cdc.mysql import MysqlDatabase
from tests.support.small_world import make_world

_VARIABLES = [
    ("version", "8.0.12"), ("log_bin", "ON"), ("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("server_id", "1")
]  # fmt: skip


@dataclass
class Server:
    """A MySQL that answers what `MysqlDatabase` asks, with some tables.

    Args:
        tables: by `database.table`, what SHOW CREATE TABLE says; an error that it says instead.
        ignored: databases that it writes no log of.
        shown: called with each table whose statement is shown, before.
    """

    tables: dict[str, str | DatabaseRefused]
    ignored: str = ""
    shown: Callable[[str], object] = lambda table: None
    server: str = "the source shop at db:1"

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if "FROM information_schema.TABLES" in statement:
            split = (name.split(".") for name in self.tables)
            return [(*name_parts, "BASE TABLE", "InnoDB", "id", None, None, None) for name_parts in split]
        if statement.startswith("SHOW CREATE TABLE"):
            name = statement.split()[-1].replace("`", "")
            self.shown(name)
            answer = self.tables.get(name, DatabaseRefused(f"{self.server} refused a statement: no such table {name}"))
            if isinstance(answer, DatabaseRefused):
                raise answer
            return [(name, answer)]
        if "VARIABLES" in statement:
            return list(_VARIABLES)
        if statement == "SHOW GRANTS":
            return [("GRANT ALL PRIVILEGES ON *.* TO x",)]
        return [("binlog.000001", 4, "", self.ignored)]

    def binlog_start_time(self, name: str) -> int:
        return 1


def source(*tables: str) -> CdcSource:
    source_fields = {
        "name": "shop",
        "region": "eu",
        "kind": "mysql",
        "hosts": ["db:1"],
        "credential_id": "c",
        "into": "a",
    }
    return CdcSource.model_validate({**source_fields, "tables": tables or ["a.*", "b.*"]})


def database(server: Server, *tables: str) -> MysqlDatabase:
    return MysqlDatabase(source(*tables), environment_secrets({}), cast(Any, server))


def left_out(mysql: MysqlDatabase, captured: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    unfit: dict[str, UnfitSource] = {}
    tables = mysql.list_tables(unfit, captured)
    assert all(error.table == name for name, error in unfit.items())
    return sorted(tables), {name: error.message for name, error in unfit.items()}


def test_of_two_tables_with_one_name_on_main_the_followed_one_goes_on() -> None:
    mysql = database(Server({"a.t": "", "a.u": "", "b.t": ""}))
    tables, unfit = left_out(mysql, ["a.t", "a.u"])
    assert (tables, list(unfit)) == (["a.t", "a.u"], ["b.t"])
    assert "a.t" in unfit["b.t"]
    mysql.validate_tables(["a.t", "a.u"])
    # Where both are new nobody knows which is meant; `check` names one of them.
    tables, unfit = left_out(mysql)
    assert (tables, sorted(unfit)) == (["a.u"], ["a.t", "b.t"])
    with pytest.raises(UnfitSource, match=r"b\.t.*\[table a\.t\]"):
        mysql.list_tables()


def test_a_table_that_goes_between_two_questions_stops_no_other() -> None:
    server = Server({"a.t": "", "a.u": ""})
    server.shown = lambda table: server.tables.pop("a.t", None)
    assert left_out(database(server)) == (["a.u"], {})
    server.tables["a.t"] = ""
    database(server).validate_tables(["a.t", "a.u"])  # what is told of it next is that it was dropped
    with pytest.raises(NeedsResync, match=r"dropped.*\[table a\.t\]"):
        database(server).validate_not_recreated(1, ["a.t", "a.u"])


def test_a_table_whose_statement_is_not_shown_is_unfit_by_name() -> None:
    mysql = database(Server({"a.t": DatabaseRefused("SHOW command denied for table t"), "a.u": ""}))
    tables, unfit = left_out(mysql)
    assert (tables, list(unfit)) == (["a.u"], ["a.t"])
    assert "SHOW command denied" in unfit["a.t"]
    with pytest.raises(UnfitSource, match=r"\[table a\.t\]"):
        mysql.validate_tables(["a.t"])
    mysql.validate_tables(["a.u"])


def test_a_database_without_a_log_stops_its_own_tables() -> None:
    mysql = database(Server({"a.t": "", "b.u": ""}, ignored="b"))
    tables, unfit = left_out(mysql)
    assert (tables, list(unfit)) == (["a.t"], ["b.u"])
    mysql.validate_tables(["a.t"])
    with pytest.raises(UnfitSource, match=r"leave database b out of its log.*\[table b\.u\]"):
        mysql.validate_tables(["a.t", "b.u"])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("  `id` int NOT NULL,\n  `_FILE` int,\n  PRIMARY KEY (`id`)", "it has a column _FILE, and Iceberg has"),
        ("  `id` int,\n  `is_deleted` int", "it has a column is_deleted, and sterna has"),
        ("  `_sterna_x` int,\n  `id` int", "it has a column _sterna_x, and sterna has"),
        ("  `straße` int,\n  `STRASSE` int", "two of its columns differ by case alone"),
    ],
)
def test_names_that_no_table_on_main_has_are_told_before_any_row(columns: str, said: str) -> None:
    """What stands in a comment, a key or a default is no column."""
    fit = "  `id` int COMMENT '`_file_uri` ',\n  `a``b` int DEFAULT 1,\n  KEY `_file_uri` (`id`),\n  KEY `ID` (`id`)"
    mysql = database(
        Server({"a.t": f"CREATE TABLE `t` (\n{columns}\n) ENGINE=x", "a.u": f"CREATE TABLE `u` (\n{fit}\n)"})
    )
    tables, unfit = left_out(mysql, ["a.t"])
    assert (tables, list(unfit)) == (["a.u"], ["a.t"])
    assert unfit["a.t"].startswith(said)
    with pytest.raises(UnfitSource, match=r"\[table a\.t\]"):
        mysql.list_tables()
    with pytest.raises(UnfitSource, match=r"\[table a\.t\]"):
        mysql.validate_tables(["a.t"])


@dataclass
class Beginning:
    """A source of which tables go, or become unfit, between two questions at its beginning."""

    troubles: dict[str, NeedsResync | UnfitSource]
    prepared: list[str] = field(default_factory=list)

    def list_tables(self, unfit: Any = None, captured: Any = ()) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("a.t", "a.u", "a.v"), ("id",))

    def identities(self, tables: Mapping[str, Any], *more: Any) -> dict[str, Any]:
        for table in tables:
            if table in self.troubles:
                raise self.troubles[table]
        return {table: {} for table in tables}

    def prepare(self, capture_id: int, tables: Sequence[str]) -> None:
        self.prepared = list(tables)


def test_a_source_begins_without_tables_that_go_meanwhile(tmp_path: Path) -> None:
    journal = Journal(make_world(tmp_path).context().objects, f"file://{tmp_path}/eu/lake/inbox", "shop")
    begins = Beginning({"a.t": NeedsResync("dropped", table="a.t"), "a.u": UnfitSource("no key", table="a.u")})
    epoch, _ = Capture(source("a.*"), cast(Any, begins), journal).begin_capture()
    assert (list(epoch.tables), begins.prepared) == (["a.v"], ["a.v"])
    assert journal.read_spec(1) == CaptureSpec(1, {"a.v": ("id",)})
    # One that the settings name as it is has to be there; one that was followed before is never left out.
    for other, name in ((source("a.*", "a.t"), "a.t"), (source("a.*"), "a.u")):
        if name == "a.u":
            journal.create_spec(CaptureSpec(2, {"a.u": ("id",)}))
            journal.request_capture(3)
        with pytest.raises(UnfitSource, match=rf"\[table {name}\]"):
            Capture(other, cast(Any, begins), journal).begin_capture()


def test_a_followed_table_that_changes_while_an_epoch_begins_is_not_left_out_of_it(tmp_path: Path) -> None:
    """A pattern alone names it, and it may be there with another key: the next try asks anew."""
    journal = Journal(make_world(tmp_path).context().objects, f"file://{tmp_path}/eu/lake/inbox", "shop")
    assert journal.create_spec(CaptureSpec(1, {"a.t": ("id",), "a.v": ("id",)}))
    journal.request_capture(2)
    begins = Beginning({"a.t": NeedsResync("another key", table="a.t")})
    with pytest.raises(Busy, match=r"being changed.*\[table a\.t\]"):
        Capture(source("a.*"), cast(Any, begins), journal).begin_capture()
    assert (begins.prepared, journal.read_spec(2)) == ([], None)
    begins.troubles.clear()
    epoch, _ = Capture(source("a.*"), cast(Any, begins), journal).begin_capture()
    assert (epoch.id, sorted(epoch.tables)) == (2, ["a.t", "a.u", "a.v"])
