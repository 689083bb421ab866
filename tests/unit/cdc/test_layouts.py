"""Statements of a MariaDB or MySQL: what is followed, and what rows alone don't tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.errors import NeedsResync, UnfitSource
from sterna.pipelines.cdc.schema_history import (
    PREAMBLE,
    apply_statement,
    build_history,
    named_tables,
    validate_reported_columns,
)

TABLES = {"shop.t": ("id",), "shop.other": ("id",)}


def column(name: str, type: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "typeName": type, "optional": optional, "charsetName": None, **more}


def table(*columns: dict[str, Any], key: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    return {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": list(key), "columns": list(columns)}


ID = column("id", "INT", optional=False)
V = column("v", "VARCHAR", length=9, charsetName="utf8mb4")


def schema_change(ddl: str, kind: str, layout: Any, *, first: bool = False, name: str = "t") -> dict[str, Any]:
    changes = [{"type": kind, "id": f'"shop"."{name}"', "table": layout}] if kind else []
    return {
        "ddl": ddl,
        "databaseName": "shop",
        "tableChanges": changes,
        "source": {"snapshot": "true" if first else ""},
    }


def begun(*columns: dict[str, Any]) -> dict[str, Any]:
    preamble = {"ddl": "SET x=latin1", "databaseName": "", "tableChanges": [], "source": {"snapshot": "true"}}
    layouts = apply_statement({}, TABLES, preamble)
    layouts = apply_statement(layouts, TABLES, schema_change("DROP TABLE IF EXISTS t", "DROP", None, first=True))
    layouts = apply_statement(
        layouts, TABLES, schema_change("CREATE TABLE t", "CREATE", table(ID, *columns), first=True)
    )
    return apply_statement(
        layouts, TABLES, schema_change("CREATE TABLE alien", "CREATE", table(ID), first=True, name="alien")
    )


def test_what_the_first_statements_say_is_kept_and_comes_back_as_the_engines_own_history() -> None:
    layouts = begun(V)
    assert set(layouts) == {PREAMBLE, "shop.t"}
    offset = {"file": "binlog.000002", "pos": 7, "gtids": "0-1-2", "event": 3, "row": 1, "transaction_id": "0-1-3"}
    first, second = [json.loads(line) for line in build_history("s", layouts, offset).splitlines()]
    assert (first["ddl"], first["position"]) == ("SET x=latin1", {"file": "binlog.000002", "pos": 7, "gtids": "0-1-2"})
    (change,) = second["tableChanges"]
    assert (change["type"], change["id"], second["source"]) == ("CREATE", '"shop"."t"', {"server": "s"})
    assert [column["hasDefaultValue"] for column in change["table"]["columns"]] == [False, True]


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ALTER TABLE t ADD more INT", (V, column("more", "INT"))),
        ("ALTER TABLE t DROP v", ()),
        ("ALTER TABLE t MODIFY v TEXT", (column("v", "TEXT", charsetName="utf8mb4"),)),
        ("ALTER TABLE t CHANGE `v` v VARCHAR(99)", (V | {"length": 99},)),
        ("ALTER TABLE t RENAME INDEX a TO b", (V,)),
        ("ALTER TABLE t COMMENT 'please rename to; drop partition'", (V,)),
        ("ALTER TABLE t /* rename */ ENGINE = InnoDB", (V,)),
        ("ALTER TABLE t DROP INDEX v_index, DROP FOREIGN KEY f, ALTER v DROP DEFAULT", (V,)),
        ("ALTER TABLE t DROP INDEX i", (V, column("index", "INT"))),
        ("ALTER TABLE t DROP INDEX v, ADD INDEX v (v), DROP PRIMARY KEY, ADD PRIMARY KEY (id)", (V,)),
        ("ALTER TABLE t DROP CONSTRAINT v, DROP FOREIGN KEY v, DROP CHECK v COMMENT 'drop v'", (V,)),
    ],
)
def test_statements_that_are_followed(statement: str, columns: tuple[dict[str, Any], ...]) -> None:
    layouts = apply_statement(begun(V), TABLES, schema_change(statement, "ALTER", table(ID, *columns)))
    assert [column["name"] for column in layouts["shop.t"]["columns"]] == [
        "id",
        *(column["name"] for column in columns),
    ]


def test_a_column_that_comes_back_is_known_though_no_row_changed_meanwhile() -> None:
    """It has the same name, type and place, and no value; what it had is on `main` still."""
    layouts = apply_statement(begun(V), TABLES, schema_change("ALTER TABLE t DROP v", "ALTER", table(ID)))
    for more in ("a", "b"):
        layouts = apply_statement(
            layouts, TABLES, schema_change(f"ALTER TABLE t ADD {more} INT", "ALTER", table(ID, column("a", "INT")))
        )
    layouts = json.loads(json.dumps(layouts))
    with pytest.raises(NeedsResync, match="column V was dropped and is there again"):
        back = table(ID, column("a", "INT"), V | {"name": "V"})
        apply_statement(layouts, TABLES, schema_change("ALTER TABLE t ADD V VARCHAR(9)", "ALTER", back))
    (_, line) = build_history("s", layouts, {}).splitlines()
    assert "gone" not in line


N = column("n", "DECIMAL", length=10, scale=2)
E = column("e", "ENUM", enumValues=["a", "b"])


@pytest.mark.parametrize(
    ("statement", "had", "has", "said"),
    [
        ("ALTER TABLE t CHANGE v w VARCHAR(9)", (V,), (V | {"name": "w"},), "column v has got another name"),
        ("ALTER TABLE t RENAME COLUMN v TO w", (V,), (V | {"name": "w"},), "another name"),
        ("ALTER TABLE t ADD w INT DEFAULT 7", (), (column("w", "INT", defaultValueExpression="7"),), "added with"),
        ("ALTER TABLE t ADD w INT NOT NULL", (), (column("w", "INT", optional=False),), "added with a value"),
        ("ALTER TABLE t MODIFY v VARCHAR(3)", (V,), (V | {"length": 3},), "column v has become varchar"),
        ("ALTER TABLE t MODIFY v INT", (V,), (column("v", "INT"),), "column v has become int"),
        ("ALTER TABLE t MODIFY v …", (V,), (V | {"charsetName": "latin1"},), "column v has become"),
        ("ALTER TABLE t MODIFY v … NOT NULL", (V,), (V | {"optional": False},), "column v has become"),
        ("ALTER TABLE t MODIFY n DECIMAL(10,1)", (N,), (N | {"scale": 1},), "column n has become"),
        ("ALTER TABLE t MODIFY n …", (N,), (N | {"typeName": "DECIMAL UNSIGNED"},), "column n has become"),
        ("ALTER TABLE t MODIFY e ENUM('b','a')", (E,), (E | {"enumValues": ["b", "a"]},), "column e has become"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", (V,), (V,), "rows that the log doesn't name"),
        ("ALTER TABLE t TRUNCATE PARTITION p0", (V,), (V,), "rows that the log doesn't name"),
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u", (V,), (V,), "rows that the log doesn't name"),
        ("ALTER TABLE t DROP v, ADD v VARCHAR(9)", (V,), (V,), "column v was dropped and is there again"),
        ("ALTER TABLE t DROP IF EXISTS v,ADD v VARCHAR(9)", (V,), (V,), "column v was dropped and is there again"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS `V`, ADD v …", (V,), (V,), "column v was dropped and is there again"),
        ("ALTER TABLE t ADD w INT DEFAULT 7, ALTER w DROP DEFAULT", (), (column("w", "INT"),), "dropped at once"),
        ("ALTER TABLE t DROP v, ADD w INT DEFAULT 7, ALTER w DROP DEFAULT", (V,), (column("w", "INT"),), "at once"),
        ("ALTER TABLE t ADD w INT DEFAULT 7, ALTER w SET DEFAULT NULL", (), (column("w", "INT"),), "dropped at once"),
    ],
)
def test_statements_that_rows_do_not_tell(statement: str, had: Any, has: Any, said: str) -> None:
    with pytest.raises(NeedsResync, match=said):
        apply_statement(begun(*had), TABLES, schema_change(statement, "ALTER", table(ID, *has)))


@pytest.mark.parametrize(
    "said",
    [
        schema_change("DROP TABLE t", "DROP", None),
        schema_change("CREATE OR REPLACE TABLE t", "CREATE", table(ID)),
        schema_change("RENAME TABLE t TO u", "ALTER", table(ID), name="u"),
        schema_change("RENAME TABLE t TO old, copied TO t", "ALTER", table(ID, V)),
        schema_change("DROP DATABASE shop", "", None),
        schema_change("ALTER TABLE t DROP PRIMARY KEY", "ALTER", table(ID, key=("v",))),
    ],
)
def test_a_table_that_is_another_one_is_told(said: dict[str, Any]) -> None:
    with pytest.raises(NeedsResync):
        apply_statement(begun(V), TABLES, said)


def test_statements_about_others_change_nothing() -> None:
    layouts = begun(V)
    for change in (
        schema_change("DROP TABLE alien", "DROP", None, name="alien"),
        schema_change("RENAME TABLE tt TO uu", "", None),
    ):
        assert apply_statement(layouts, TABLES, change) == layouts
    assert (
        apply_statement(layouts, TABLES, schema_change("DROP DATABASE x", "", None) | {"databaseName": "x"}) == layouts
    )


def test_a_column_that_the_engine_leaves_out_is_told() -> None:
    layout = table(ID, column("u", "UUID"))
    validate_reported_columns("shop.t", layout, ["id", "u"])
    with pytest.raises(UnfitSource, match="column u is of type uuid, which isn't read"):
        validate_reported_columns("shop.t", layout, ["id"])
    with pytest.raises(NeedsResync):
        validate_reported_columns("shop.t", layout, ["id", "u", "w"])


@pytest.mark.parametrize(
    ("statement", "database", "named"),
    [
        ("ALTER TABLE t ADD x INET6", "shop", ["shop.t"]),
        ('ALTER TABLE "T" ADD x INET6', "shop", ["shop.t"]),
        ("ALTER TABLE shop.t ADD x INET6", "other", ["shop.t"]),
        ("ALTER TABLE `shop`.`a``b` ADD x INET6", "other", ["shop.a`b"]),
        ("/* why */ ALTER TABLE t2 ADD x INET6", "shop", []),
        ("ALTER TABLE t ADD x INET6", "other", []),
        ("DROP DATABASE IF EXISTS shop UNKNOWN", "", ["shop.t", "shop.a`b"]),
        ("CREATE OR REPLACE DEFINER=a@b PROCEDURE p() UPDATE t SET n = 1", "shop", []),
        ("/*!50003 CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW x */", "shop", ["shop.t"]),
        ("GRANT SELECT ON t TO x UNKNOWN", "shop", []),
    ],
)
def test_tables_of_a_statement_that_is_not_understood(statement: str, database: str, named: list[str]) -> None:
    """It may have done anything to a table that it names; what can't have is left out only where it is plain."""
    assert named_tables(statement, database, ["shop.t", "shop.a`b"]) == named
