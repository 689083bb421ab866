"""SQL that may be served, and SQL that is refused when the file is checked."""

from __future__ import annotations

import pytest

from sterna.serving.queries.sql import check_sql

GOOD = {
    "SELECT sum(price) AS total FROM db.fact_events WHERE d >= $since": ([("db", "fact_events")], {"since"}),
    "WITH t AS (SELECT * FROM a.b.c) SELECT * FROM t JOIN db.x USING (id)": ([("a", "b", "c"), ("db", "x")], set()),
    "SELECT row_number() OVER (ORDER BY x) FROM a.b": ([("a", "b")], set()),
    "SELECT t.user, t.current_date FROM a.b t": ([("a", "b")], set()),
    "SELECT x FROM a.b WHERE x IN (SELECT y FROM a.c) ORDER BY 1 LIMIT $n": ([("a", "b"), ("a", "c")], {"n"}),
    "VALUES (1) UNION ALL SELECT x FROM a.b": ([("a", "b")], set()),
    "SELECT * FROM range(3) r, a.b, unnest([1]) u": ([("a", "b")], set()),
    "FROM a.b": ([("a", "b")], set()),
    "WITH RECURSIVE r AS (SELECT 1 AS n FROM a.b UNION ALL SELECT n + 1 FROM r) SELECT n FROM r": ([("a", "b")], set()),
    "WITH t AS MATERIALIZED (FROM a.b) SELECT (SELECT 1), * FROM t, LATERAL (FROM a.c)": (
        [("a", "b"), ("a", "c")],
        set(),
    ),
    "SELECT age(x, y), list_transform(z, lambda v: v + 1) FROM a.b; ": ([("a", "b")], set()),
    'SELECT "now" FROM "A b"."C.d"': ([("A b", "C.d")], set()),
}
BAD = {
    "expected one SELECT": [
        "",
        "; ;",
        "SELECT 1 FROM a.b; SELECT 2 FROM a.b",
        "CREATE TABLE x (a INT)",
        "COPY a.b TO 'x'",
        "COPY (SELECT 1) TO 'x'",
        "INSERT INTO a.b VALUES (1)",
        "ATTACH 'x'",
        "LOAD x",
        "SET x = 1",
        "EXPLAIN SELECT 1 FROM a.b",
        "DESCRIBE a.b",
        "SHOW TABLES",
        "SUMMARIZE a.b",
        "PIVOT a.b ON x USING sum(y)",
        "CALL pragma_version()",
        "PRAGMA version",
        "PREPARE x AS SELECT 1",
        "WITH x AS (INSERT INTO a.b VALUES (1) RETURNING *) SELECT * FROM x, a.c",
        "WITH x AS (UPDATE a.b SET y = 1 RETURNING *) SELECT * FROM x, a.c",
        "WITH x AS (DELETE FROM a.b RETURNING *) SELECT * FROM x",
        "WITH x AS (COPY a.b TO 'y') SELECT * FROM x, a.b",
        "SELECT * FROM a.b WHERE y IN (WITH x AS (DELETE FROM a.b RETURNING *) SELECT y FROM x)",
    ],
    "can't be read": ["selec", "SELECT * FROM a.b.", "SELECT 'x", "SELECT 1 INTO x"],
    "depends on more|another one each time": [
        *(f"SELECT {call} FROM a.b" for call in ("now()", "random()", "uuid()", "today()", "NOW()", "version()")),
        *(f"SELECT {call} FROM a.b" for call in ("get_current_timestamp()", "getvariable('x')", "nextval('x')")),
        *(f"SELECT {call} FROM a.b" for call in ("current_setting('x')", "age(x)", "ago(INTERVAL 1 DAY)")),
        *(f"SELECT {call} FROM a.b" for call in ("pg_sleep(3)", "txid_current()", "write_log('x')", "getenv('x')")),
        *(f"SELECT {name} FROM a.b" for name in ("current_timestamp", "CURRENT_DATE", "localtimestamp", "localtime")),
        *(f"SELECT {name} FROM a.b" for name in ("user", "current_user", "session_user", "current_time")),
        "SELECT list_transform([1], lambda y: random()) FROM a.b",
        "SELECT x FROM a.b ORDER BY random()",
        "SELECT x FROM a.b LIMIT random()",
        "SELECT x FROM a.b WHERE x > (SELECT now())",
        "SELECT sum(x) OVER (ORDER BY random()) FROM a.b",
        "SELECT first(x ORDER BY random()) FROM a.b",
        "SELECT count(*) FILTER (random() > 0.5) FROM a.b",
        "WITH t AS (SELECT random() AS r) SELECT r FROM t, a.b",
        "SELECT * FROM a.b TABLESAMPLE 3",
        "SELECT * FROM a.b USING SAMPLE 3",
    ],
    "reads no table": [
        "SELECT * FROM read_parquet('x'), a.b",
        "SELECT * FROM query('SELECT 1'), a.b",
        "SELECT * FROM query_table('x'), a.b",
        "SELECT * FROM duckdb_settings(), a.b",
        "SELECT * FROM glob('*'), a.b",
        "SELECT * FROM (SELECT * FROM read_text('x')), a.b",
    ],
    "names no table": ["SELECT 1", "VALUES (1)", "SELECT * FROM range(3)"],
    "with its namespace": [
        "SELECT * FROM t",
        "SELECT * FROM 'x.parquet'",
        "SELECT * FROM pg_class",
        "SELECT * FROM a.b.c.d",
    ],
    "engine's own": ["SELECT * FROM information_schema.tables", "SELECT * FROM temp.x", "SELECT * FROM memory.a.b"],
    "the request says": ["SELECT * FROM a.b AT (VERSION => 3)"],
    "capital letters": ["SELECT * FROM a.b, A.B"],
    "of two parts and of three": ["SELECT * FROM a.b, a.b.c"],
    "has no name": ["SELECT ? FROM a.b", "SELECT $1 FROM a.b"],
}


@pytest.mark.parametrize("sql", GOOD)
def test_what_a_query_says_is_found(sql: str) -> None:
    tables, parameters = GOOD[sql]
    parsed = check_sql(sql)
    assert (list(parsed.tables), parsed.parameters) == (tables, parameters)


@pytest.mark.parametrize(("reason", "sql"), [(reason, sql) for reason, all in BAD.items() for sql in all])
def test_what_may_not_be_served_is_refused(reason: str, sql: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_sql(sql)
