"""The section `queries`: what it takes, what it refuses, and how its values are told apart."""

from __future__ import annotations

import pytest

from sterna.config.sections.load import parse_services
from sterna.config.sections.queries import NamedQueries, ParamType, SharedLimits, normalize_parameter
from sterna.errors import ServicesError
from sterna.serving.queries.sql import check_sql

SQL = "SELECT sum(price) AS total FROM db.fact_events"
SINCE = f"{SQL} WHERE day >= $since"


def read(text: str) -> NamedQueries:
    section = parse_services(text, "s.yaml", sql_check=check_sql).queries
    assert section is not None
    return section


def refused(text: str) -> list[str]:
    with pytest.raises(ServicesError) as raised:
        parse_services(text, "s.yaml", sql_check=check_sql)
    return str(raised.value).splitlines()


def test_a_query_needs_no_more_than_its_sql() -> None:
    queries = read(f"queries:\n  revenue:\n    sql: {SQL}\n")
    query = queries.by_name["revenue"]
    assert (query.sql, query.params, query.answer, queries.default) == (SQL, {}, "kpi", "revenue")
    assert queries.limits == SharedLimits()
    assert (queries.limits.seconds, queries.limits.memory, queries.limits.max_concurrency) == (10.0, 256 << 20, 2)
    assert (queries.limits.queue, queries.limits.rows, queries.limits.bytes) == (32, 10_000, 1 << 20)


def test_all_that_can_be_said() -> None:
    queries = read(f"""
queries:
  limits: {{seconds: 5, memory: 1GiB, rows: 100, bytes: 64KiB, max_concurrency: 4, queue: 0, cache: 1MiB}}
  revenue: {{sql: "{SQL}", default: true}}
  by_day:
    sql: {SINCE} AND shop = $shop AND n < $n
    answer: rows
    params:
      since: {{type: date, default: 2026-01-31}}
      shop: string
      n: {{type: int, default: 3}}
    limits: {{seconds: 0.5, memory: 64MiB}}
""")
    assert queries.default == "revenue" and set(queries.by_name) == {"revenue", "by_day"}
    by_day = queries.by_name["by_day"]
    assert {name: (param.type, param.default) for name, param in by_day.params.items()} == {
        "since": ("date", "2026-01-31"),
        "shop": ("string", None),
        "n": ("int", "3"),
    }
    assert (by_day.limits.seconds, by_day.limits.memory, by_day.limits.rows) == (0.5, 64 << 20, None)
    assert queries.limits.cache == 1 << 20


def test_several_queries_without_a_default_have_none() -> None:
    assert read(f"queries: {{a: {{sql: '{SQL}'}}, b: {{sql: '{SQL}'}}}}").default is None


@pytest.mark.parametrize("empty", ["", "[]", "{}", "null"])
def test_an_empty_section_is_none_at_all(empty: str) -> None:
    assert parse_services(f"queries: {empty}\n", "s.yaml").queries is None


def test_every_fault_is_named_with_its_line() -> None:
    lines = refused(f"""version: 1
queries:
  limits: {{queue: -1}}
  a:
    sql: SELECT now() FROM a.b
  b:
    sql: {SINCE}
  c:
    sql: {SQL}
    params: {{since: date}}
  d:
    sql: {SQL}
    sequel: x
  e: {{}}
  f:
    sql: {SINCE}
    params: {{since: {{type: date, default: yesterday}}}}
""")
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in lines] == [
        "s.yaml:3 queries.limits.queue",
        "s.yaml:5 queries.a.sql",
        "s.yaml:6 queries.b.params",
        "s.yaml:10 queries.c.params",
        "s.yaml:13 queries.d.sequel",
        "s.yaml:14 queries.e.sql",
        "s.yaml:17 queries.f.params.since.default",
    ]
    assert "now() depends on more than" in lines[1]
    assert lines[2].endswith("the SQL uses $since, which is declared nowhere")
    assert lines[3].endswith("the SQL doesn't use $since")
    assert lines[6].endswith("expected a date such as 2026-01-31")


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (f"{{9a: {{sql: '{SQL}'}}}}", "no query's name"),
        (f"{{a: {{sql: '{SQL}', default: true}}, b: {{sql: '{SQL}', default: true}}}}", "one query may be the default"),
        (f"{{a: {{sql: '{SINCE.replace('since', 'name')}', params: {{name: string}}}}}}", "no parameter's name"),
        (f"{{a: {{sql: '{SINCE.replace('since', 'Since')}', params: {{Since: string}}}}}}", "no parameter's name"),
        (f"{{a: {{sql: '{SINCE}', params: {{since: datum}}}}}}", "expected '"),
        (f"{{a: {{sql: '{SQL}', limits: {{memory: 256}}}}}}", "expected a size"),
        (f"{{a: {{sql: '{SQL}', limits: {{seconds: 0}}}}}}", "more than 0"),
        ("daily", "expected a mapping"),
        ("[a]", "expected a mapping"),
        ("{a: SELECT 1}", "expected a mapping"),
    ],
)
def test_what_is_refused(section: str, reason: str) -> None:
    assert any(reason in line for line in refused(f"queries: {section}\n"))


def test_without_a_reader_of_sql_it_is_taken_as_it_stands() -> None:
    assert parse_services("queries: {a: {sql: SELECT now()}}", "s.yaml").queries


GOOD: list[tuple[ParamType, str, str]] = [
    ("boolean", "true", "true"),
    ("int", "-2147483648", "-2147483648"),
    ("int", "+007", "7"),
    ("long", "9223372036854775807", "9223372036854775807"),
    ("double", "1e3", "1000.0"),
    ("decimal", "+1.50", "1.50"),
    ("decimal", ".5", "0.5"),
    ("decimal", "-." + "1" * 38, "-0." + "1" * 38),
    ("decimal", "0" * 40, "0"),
    ("string", "", ""),
    ("date", "2026-01-31", "2026-01-31"),
    ("timestamp", "2026-01-31 12:00", "2026-01-31T12:00:00"),
    ("timestamptz", "2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00+00:00"),
    ("timestamptz", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
]
BAD: list[tuple[ParamType, str]] = [
    ("boolean", "True"),
    ("boolean", "1"),
    ("int", "2147483648"),
    ("int", "1.0"),
    ("int", "1_000"),
    ("int", " 1"),
    ("int", "٣"),
    ("int", ""),
    ("long", "9223372036854775808"),
    ("long", "9" * 1000),
    ("double", "nan"),
    ("double", "inf"),
    ("double", "1e999"),
    ("double", "1_0"),
    ("double", "٣"),
    ("decimal", "1e3"),
    ("decimal", "NaN"),
    ("decimal", "1" * 39),
    ("decimal", "."),
    ("decimal", "1." + "0" * 38),
    ("decimal", "." + "0" * 39),
    ("string", "x" * 10_001),
    ("string", "\x00"),
    ("string", "\ud800"),
    ("date", "2026-02-30"),
    ("date", "today"),
    ("timestamp", "2026-01-31T12:00:00Z"),
    ("timestamp", "2026-01-31"),
    ("timestamptz", "2026-01-31T12:00:00"),
    ("timestamptz", "now"),
]


@pytest.mark.parametrize(("kind", "text", "spelled"), GOOD)
def test_a_value_has_one_spelling(kind: ParamType, text: str, spelled: str) -> None:
    assert normalize_parameter(kind, text) == spelled
    assert normalize_parameter(kind, spelled) == spelled


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_what_is_no_value_of_its_type_is_refused(kind: ParamType, text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        normalize_parameter(kind, text)
