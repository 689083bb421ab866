"""What the SQL of a flow may be: what a step and a rebuild would answer differently is refused.

Plan nodes are a list of what is allowed. What else falls under it: rows that aren't the step's (VALUES, a constant, a
CTE that takes the view's name), words that are dates (`now`, in each spelling), orders that tie, and keys of types
whose equality isn't one. Expressions are such a list, too: functions of users, of catalogs and of later Sparks, sums
whose last digits depend on the order of rows. That rows of two partitions don't meet is shown, whatever makes them
meet, and so is that a key is the source's own: two keys may have changed places.

A text becomes a time by a cast, said or implied, within nested types, from a VARIANT, or by a schema of JSON, CSV and
XML: `12:00:00` is then that hour of the day on which the step runs. A format says all of it, and a TIMESTAMP_NTZ or a
DATE takes no such text. A constant `today` that is cast is the day, too. A collation comes by COLLATE, by a cast or
a column.
"""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from sterna.config.sections.transforms import Transform
from sterna.errors import ServicesError
from sterna.pipelines.changes.rows import is_plain
from sterna.pipelines.publish.spark import jvm
from sterna.pipelines.transforms.column_usage import read_columns
from sterna.pipelines.transforms.expressions import ALLOWED
from sterna.pipelines.transforms.sql_plan import validate_sql
from sterna.pipelines.transforms.step_context import TransformSpark
from tests.support.world import World

SOURCE = StructType().add("id", LongType()).add("day", DateType())
OTHER = "it may read the view `changes` and nothing else"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, rand() AS r FROM changes", "gives other rows each time"),
        ("SELECT id FROM changes WHERE day > current_date - 3", "gives other rows each time"),
        ("SELECT id, now() AS at FROM changes", "gives other rows each time"),
        ("SELECT id FROM changes WHERE day > (SELECT max(current_date()) FROM changes)", "gives other rows each time"),
        ("SELECT id FROM range(3)", OTHER),
        ("SELECT id FROM changes WHERE id IN (SELECT id FROM range(3))", OTHER),
        ("SELECT id FROM changes WHERE day > DATE '2026-01-01'", ""),
        ("SELECT id FROM changes GROUP BY id", ""),
        ("SELECT id FROM changes WHERE day > TIMESTAMP'now'", "gives other rows each time"),
        ('SELECT id FROM changes WHERE day > date /* */ "today"', "gives other rows each time"),
        ("SELECT id FROM changes UNION ALL SELECT 0", OTHER),
        ("WITH changes AS (SELECT 0 AS id) SELECT id FROM changes", OTHER),
        ("SELECT id FROM changes UNION ALL VALUES (0L)", OTHER),
        ("SELECT id FROM changes TABLESAMPLE (50 PERCENT)", "this has sample"),
        ("SELECT id FROM changes LIMIT 3", "limit"),
        ("SELECT id, count(*) OVER () AS n FROM changes", "goes over all rows"),
        ("SELECT max(id) AS id FROM changes", "goes over all rows"),
        ("SELECT id FROM changes WHERE id > (SELECT min(id) FROM changes)", "a subquery"),
        ("SELECT id, first(day) AS d FROM changes GROUP BY id", "gives other rows|may tie"),
        ("SELECT id, max_by(day, day) AS d FROM changes GROUP BY id", "may tie"),
        (
            "SELECT id, day, sum(id) OVER (PARTITION BY id ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n "
            "FROM changes",
            "may tie",
        ),
        ("SELECT id FROM changes WHERE 'a date' <> 'timestamp' /* DATE 'now' */", ""),
        ("SELECT CAST(id AS DOUBLE) AS id FROM changes", "identifies no rows"),
        ("SELECT map(1, id) AS id FROM changes", "identifies no rows"),
        ("SELECT CAST(id AS STRING COLLATE UTF8_LCASE) AS id FROM changes", "by a collation other texts are equal"),
        (
            "SELECT id FROM changes GROUP BY id, CAST(id AS STRING COLLATE UTF8_LCASE)",
            "by a collation other texts are equal",
        ),
        ("SELECT DISTINCT id, CAST(id AS STRING COLLATE UNICODE_CI) AS s FROM changes", "by a collation"),
    ],
)
def test_sql_whose_answer_does_not_follow_from_the_rows_is_refused(world: World, sql: str, said: str) -> None:
    flow = Transform.model_validate({"name": "a", "from": "n.a", "into": "n.b", "mode": "replace(id)", "sql": sql})
    if not said:
        assert validate_sql(world.spark, flow, sql, SOURCE, None).names == ["id"]
        return
    with pytest.raises(ServicesError, match=said):
        validate_sql(world.spark, flow, sql, SOURCE, None)


@pytest.mark.parametrize("kind", [StringType("UTF8_LCASE"), ArrayType(StringType("UNICODE_CI"))])
def test_a_key_by_a_collation_is_none(world: World, kind: DataType) -> None:
    section = {"name": "a", "from": "n.a", "into": "n.b", "mode": "merge(id)", "sql": "SELECT id FROM changes"}
    with pytest.raises(ServicesError, match="collat"):
        validate_sql(world.spark, Transform.model_validate(section), section["sql"], StructType().add("id", kind), None)
    assert not is_plain(kind)
    assert is_plain(StringType())


WIDE = (
    StructType(SOURCE.fields)
    .add("at", TimestampType())
    .add("x", DoubleType())
    .add("s", StringType())
    .add("n", IntegerType())
)


def check(world: World, mode: str, sql: str, partition: str = "") -> str:
    """Return why SQL is refused, "" where it isn't."""
    section = {"name": "a", "from": "n.a", "into": "n.b", "mode": mode, "sql": sql, "partition": partition}
    try:
        validate_sql(world.spark, Transform.model_validate(section), sql, WIDE, None)
    except ServicesError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("count(DISTINCT lower(s)) AS a, sum(n) AS b, max(x) AS c, avg(CAST(x AS DECIMAL(18, 2))) AS d", ""),
        ("sum(CASE WHEN s LIKE 'a%' AND x BETWEEN 1 AND 2 THEN 1 ELSE 0 END) / count(*) AS a", ""),
        ("approx_count_distinct(s) AS a, bool_or(n > 3) AS b, count_if(n > 3) AS c, median(n) AS d", ""),
        ("max(transform(split(s, ','), e -> trim(e) || '!')) AS a, max(to_json(struct(n))) AS b", ""),
        ("max(date_format(at, 'yyyy')) AS a, min(hour(at) + extract(MONTH FROM at)) AS b", ""),
        ("max(contains(s, 'a')) AS a, max(regexp_replace(s, 'a', 'b')) AS b, max(round(n / 7, 2)) AS c", ""),
        ("sum(x) AS a", "depends on the order of rows"),
        ("avg(CAST(x AS FLOAT)) AS a", "depends on the order of rows"),
        ("avg(n) AS a", "sum.x. / count.x."),
        ("stddev(n) AS a", "stddev"),
        ("try_sum(n) AS a", "by the order of rows"),  # MAX + 1 - 1 is too large on the way, 1 - 1 + MAX isn't
        ("try_avg(CAST(n AS DECIMAL(9))) AS a", "by the order of rows"),
        ("max(format_string('%s', CAST(s AS BINARY))) AS a", "another text each time"),
        ("max(format_string('%s', split(s, ','))) AS a", "another text each time"),
        ("max(format_string('%s %d %s', s, n, day)) AS a", ""),
        ("collect_list(s) AS a", "may tie"),
        ("sort_array(collect_list(x)) AS a", "may tie"),  # 0.0 and -0.0
        ("size(collect_list(map(s, x))) AS a", "may tie"),
        ("sort_array(array_distinct(collect_list(s))) AS a", "may tie"),
        ("array_position(collect_list(s), 'a') AS a", "may tie"),
        ("sort_array(collect_list(rand())) AS a", "."),
        ("size(collect_list(mine(n))) AS a", "mine"),
        ("max(java_method('java.lang.System', 'nanoTime')) AS a", "."),
        ("max(version()) AS a", "version"),
        ("max(input_file_name()) AS a", "."),
        ("max(s COLLATE UTF8_LCASE) AS a", "collate"),
        ("max(CAST(s AS STRING COLLATE UTF8_LCASE)) AS a", "string collate UTF8_LCASE"),
        ("count(DISTINCT CAST(s AS STRING COLLATE UNICODE_CI)) AS a", "string collate UNICODE_CI"),
        ("max(from_json(s, 'a STRING COLLATE UTF8_LCASE').a) AS a", "string collate UTF8_LCASE"),
        ("count(CAST(array(s) AS ARRAY<STRING COLLATE UTF8_LCASE>)) AS a", "string collate UTF8_LCASE"),
        ("max(mine(n)) AS a", "mine"),
    ],
)
def test_expressions_are_those_of_which_it_is_known_that_they_can_be_repeated(
    world: World, select: str, said: str
) -> None:
    world.spark.udf.register("mine", lambda n: n, "int")
    refused = check(world, "replace(day)", f"SELECT day, {select} FROM changes GROUP BY day")
    assert bool(re.search(said, refused)) if said else refused == ""


LONG = f"concat(s, {', '.join(repr(chr(97 + at)) for at in range(26))}, 'y')"
"""More than Spark shows of an expression."""
COMMON = """
    convert_timezone('Europe/Berlin', CAST(at AS TIMESTAMP_NTZ)) ; convert_timezone('UTC', 'Europe/Berlin', at)
    current_timezone() ; date_trunc('hour', at) ; trunc(day, 'MM') ; coalesce(s, '') ; nvl(n, 0) ; nullif(n, 0)
    regexp_extract(s, 'a(b)', 1) ; regexp_extract_all(s, 'a') ; regexp_like(s, 'a') ; regexp_count(s, 'a')
    from_json(s, 'a INT') ; to_json(struct(n)) ; get_json_object(s, '$.a') ; json_object_keys(s)
    schema_of_json('{"a": 1}') ; schema_of_csv('a') ; to_csv(struct(n)) ; to_xml(struct(n)) ; md5(s) ; sha1(s)
    sha2(s, 256) ; crc32(s) ; hash(s, n) ; xxhash64(s) ; array_sort(split(s, ',')) ; array_distinct(split(s, ','))
    filter(split(s, ','), e -> e = 'a') ; aggregate(split(s, ','), 0, (a, e) -> a + 1)
    zip_with(array(n), array(n), (a, b) -> a + b) ; map_filter(map(s, n), (k, v) -> v > 1)
    transform_values(map(s, n), (k, v) -> v + 1)
    map_from_entries(map_entries(map(s, n))) ; sequence(day, day, INTERVAL 1 DAY) ; try_to_date(s, 'yyyy')
    window(at, '10 minutes').start ; from_utc_timestamp(at, 'CET') ; timestampdiff(HOUR, at, at) ; parse_json(s)
    schema_of_variant(parse_json(s)) ; try_variant_get(parse_json(s), '$.a', 'int') ; parse_url(s, 'HOST') ; mask(s)
    decode(n, 1, 'a', 'b') ; format_number(n, 2) ; assert_true(n > 1)
    CASE WHEN n > 1 THEN 1 ELSE raise_error('no') END
"""
GROUPED = """
    sort_array(collect_list(s)) ; array_join(sort_array(collect_set(upper(s))), ',') ; size(collect_set(s))
    sort_array(collect_list(struct(at, n)) FILTER (WHERE n > 1), false) ; array_max(collect_list(n))
    array_contains(collect_set(s), 'a') ; array_min(collect_list(n))
    approx_count_distinct(s) ; percentile_cont(0.5) WITHIN GROUP (ORDER BY n) ; sum(n) FILTER (WHERE n > 1)
    max(struct(at, n)).n ; bool_and(n > 1) ; bit_xor(n) ; map_from_entries(sort_array(collect_list(struct(s, n))))
"""


@pytest.mark.parametrize(("mode", "text"), [("append", COMMON), ("replace(day)", GROUPED)])
def test_common_functions_that_give_the_same_each_time_are_taken(world: World, mode: str, text: str) -> None:
    listed = ", ".join(f"{part} AS c{at}" for at, part in enumerate(re.split(r"\s*(?:;|\n)\s*", text.strip())))
    by = " GROUP BY day" if mode != "append" else ""
    assert check(world, mode, f"SELECT day, {listed} FROM changes{by}") == ""


TODAY = "takes the day on which the step runs"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("at < '12:00:00'", TODAY),
        ("at < TIMESTAMP'12:00:00'", "gives other rows each time"),
        ("at < CAST(s AS TIMESTAMP)", TODAY),
        ("at < TRY_CAST(s AS TIMESTAMP)", TODAY),
        ("at < s", TODAY),
        ("at < CAST('12:00' AS TIMESTAMP)", TODAY),
        ("at < CAST('T12:00' AS TIMESTAMP)", TODAY),
        ("at IN (TIMESTAMP'2026-01-01', '12:00')", TODAY),
        ("day < CAST('today' AS DATE)", TODAY),
        ("day < 'tomorrow'", TODAY),
        ("day < to_date(concat('to', 'day'))", TODAY),
        ("at < CAST('now' AS TIMESTAMP_NTZ)", TODAY),
        ("at < to_timestamp(s)", TODAY),
        ("at < try_to_timestamp(s)", TODAY),
        ("hour(s) > 3", TODAY),
        ("CAST(split(s, ',') AS ARRAY<TIMESTAMP>)[0] < at", TODAY),
        ("CAST(named_struct('a', s) AS STRUCT<b: TIMESTAMP>).b < at", TODAY),
        ("CAST(map(s, s) AS MAP<STRING, TIMESTAMP>)[s] < at", TODAY),
        ("from_json(s, 'a TIMESTAMP').a < at", TODAY),
        ("from_json(s, 'a ARRAY<TIMESTAMP>').a[0] < at", TODAY),
        ("from_csv(s, 'a TIMESTAMP').a < at", TODAY),
        ("from_xml(s, 'a TIMESTAMP').a < at", TODAY),
        ("to_json(from_csv(s, 'a VARIANT')) = s", TODAY),
        ("variant_get(parse_json(s), '$.a', 'timestamp') < at", TODAY),
        ("CAST(parse_json(s) AS TIMESTAMP) < at", TODAY),
        ("at < '2026-01-01 12:00'", ""),
        ("at < TIMESTAMP'2026-01-01 12:00'", ""),
        ("at < to_timestamp(s, 'yyyy-MM-dd HH:mm')", ""),
        ("at < CAST(s AS TIMESTAMP_NTZ)", ""),
        ("at < CAST(CAST(s AS TIMESTAMP_NTZ) AS TIMESTAMP)", ""),
        ("at < CAST(s AS DATE)", ""),
        ("at < CAST(day AS TIMESTAMP)", ""),
        ("day < '2026-01-01'", ""),
        ("to_date(s, 'yyyy') < day", ""),
        ("from_json(s, 'a TIMESTAMP_NTZ, timestamp STRING').a < at", ""),
        ("unix_timestamp(s, 'yyyy-MM-dd') > 3 AND date_format(at, 'yyyy') = s", ""),
    ],
)
def test_a_time_without_a_day_is_refused(world: World, expression: str, said: str) -> None:
    refused = check(world, "append", f"SELECT id FROM changes WHERE {expression}")
    assert said in refused if said else refused == ""


@pytest.mark.parametrize(
    ("sql", "partition", "said"),
    [
        ("SELECT day, id FROM changes WHERE id > 3", "", ""),
        ("SELECT day, s, count(*) AS n FROM changes GROUP BY s, day HAVING count(*) > 1", "", ""),
        ("SELECT DISTINCT day, s FROM changes", "", ""),
        ("SELECT day, rank() OVER (PARTITION BY s, day ORDER BY n) AS r FROM changes", "", ""),
        # Rows that tie are equal in all that their window has: any of them may come first.
        *((f"SELECT day, s, {function} OVER (PARTITION BY day ORDER BY s DESC, n) AS r, n FROM changes", "", "")
          for function in ("row_number()", "lag(n)", "lead(s, 2)", "first_value(n)", "last_value(s) IGNORE NULLS",
                           "nth_value(n, 2)", "ntile(4)")),
        ("SELECT day, sum(n) OVER (PARTITION BY day ORDER BY n ROWS 2 PRECEDING) AS r FROM changes", "", ""),
        ("SELECT day, s FROM (SELECT day, s, n, row_number() OVER (PARTITION BY s, day ORDER BY n DESC) AS r FROM "
         "changes) WHERE r = 1", "", ""),
        ("SELECT day, id, s, row_number() OVER (PARTITION BY day ORDER BY s) AS r FROM changes", "", "may tie"),
        ("SELECT day, x, row_number() OVER (PARTITION BY day ORDER BY x) AS r FROM changes", "", "may tie"),
        ("SELECT day, n, row_number() OVER (PARTITION BY day ORDER BY -n) AS r FROM changes", "", "may tie"),
        ("SELECT day, n, first_value(n) OVER (PARTITION BY day ORDER BY id) AS r FROM changes", "", "tie|time"),
        ("SELECT day, s, first_value(rand()) OVER (PARTITION BY day ORDER BY s) AS r FROM changes", "", "."),
        ("SELECT day, s, max_by(s, s) OVER (PARTITION BY day ORDER BY s) AS r FROM changes", "", "may tie"),
        ("SELECT s AS day, row_number() OVER (PARTITION BY day ORDER BY s) AS r FROM changes", "", "PARTITION BY"),
        ("SELECT day, n, a, lead(n) OVER (PARTITION BY day ORDER BY n) AS b FROM (SELECT day, n, row_number() OVER "
         "(PARTITION BY day ORDER BY n) AS a FROM changes)", "", "may tie"),
        ("SELECT a.day, b.s FROM changes a JOIN changes b ON a.id = b.id AND a.day = b.day", "", ""),
        ("SELECT day, b.s FROM changes a LEFT JOIN changes b USING (id, day)", "", ""),
        ("SELECT day, s FROM changes UNION ALL SELECT day, upper(s) FROM changes", "", ""),
        ("WITH r AS (SELECT id, day AS d FROM changes) SELECT d AS day, count(*) AS n FROM r GROUP BY d", "", ""),
        ("SELECT day, e FROM changes LATERAL VIEW explode(split(s, ',')) AS e", "", ""),
        ("SELECT to_date(at) AS day, count(*) AS n FROM changes GROUP BY 1", "to_date(at)", ""),
        ("SELECT to_date(t) AS day, sum(n) AS n FROM (SELECT at AS t, n FROM changes) GROUP BY ALL", "to_date(at)", ""),
        ("SELECT day, n FROM (SELECT to_date(at) AS day, n FROM changes)", "to_date(at)", ""),
        ("SELECT c.p.day AS day, c.n FROM (SELECT named_struct('day', day) AS p, n FROM changes) c", "", "column day"),
        (f"SELECT {LONG} AS day, n FROM changes", LONG, ""),
        ("SELECT concat(s, 'a, b') AS day, n FROM changes", "concat(s, 'a, b')", ""),
        ("SELECT coalesce(nullif(s, ''), 'x') AS day, count(*) AS c FROM changes GROUP BY 1",
         "coalesce(nullif(s, ''), 'x')", ""),
        ("SELECT n BETWEEN 1 AND 3 AS day, count(*) AS c FROM changes GROUP BY ALL", "n BETWEEN 1 AND 3", ""),
        ("SELECT array_join(transform(split(s, ','), e -> trim(e)), ',') AS day, n FROM changes",
         "array_join(transform(split(s, ','), e -> trim(e)), ',')", ""),
        ("SELECT CASE WHEN s = 'a' THEN n ELSE 0 END AS day, count(*) AS c FROM (SELECT s, n FROM changes) GROUP BY 1",
         "CASE WHEN s = 'a' THEN n ELSE 0 END", ""),
        ("SELECT concat(b.s, b.n) AS day, a.id FROM changes a JOIN changes b ON concat(a.s, a.n) = concat(b.s, b.n)",
         "concat(s, n)", ""),
        ("SELECT c.day, a.s, b.n FROM changes a JOIN changes b ON a.day = b.day JOIN changes c ON b.day = c.day",
         "", ""),
        ("SELECT a.day, a.s FROM changes a JOIN changes b USING (day) UNION ALL SELECT day, s FROM changes",
         "", ""),
        ("SELECT concat(s, n) AS day FROM (SELECT a.s, b.n FROM changes a JOIN changes b ON concat(a.s, a.n) = "
         "concat(b.s, b.n) UNION ALL SELECT s, n FROM changes)", "concat(s, n)", "column day has to say"),
        # A constant, or another expression, that Spark shows as the partition's.
        ("SELECT '{1}' AS day, n FROM changes", "", "column day has to say"),
        ("SELECT '{1}' AS day, count(*) AS n FROM changes GROUP BY '{1}', s", "", "GROUP BY|column day has to say"),
        ("SELECT a.day, b.s FROM changes a JOIN changes b ON '{1}' = b.s AND a.id = b.id", "", "a join"),
        ("SELECT day, count(*) OVER (PARTITION BY '{1}') AS n FROM changes", "", "PARTITION BY"),
        ("SELECT concat(s, 'a', 'b') AS day, n FROM changes", "concat(s, 'a, b')", "column day has to say"),
        ("SELECT concat(s, '{5}') AS day, n FROM changes", "concat(s, n)", "column day has to say"),
        (f"SELECT {LONG[:-4]}'z') AS day, n FROM changes", LONG, "column day has to say"),
        ("SELECT try_cast(s AS DATE) AS day, n FROM changes", "CAST(s AS DATE)", "column day has to say"),
        ("SELECT to_date(s, 'yyyy') AS day, n FROM changes", "to_date(s, 'MM')", "column day has to say"),
        ("SELECT TIMESTAMP'2026-01-01' AS day, n FROM changes", "TIMESTAMP_NTZ'2026-01-01'", "column day has to say"),
        ("SELECT CASE WHEN concat(s, 'a, b') = 'q' THEN 'x' ELSE 'y' END AS day, n FROM changes",
         "CASE WHEN concat(s, 'a', 'b') = 'q' THEN 'x' ELSE 'y' END", "column day has to say"),
        ("SELECT CASE WHEN s = 'a' THEN coalesce(s, 'n, x') END AS day, n FROM changes",
         "CASE WHEN s = 'a' THEN coalesce(s, 'n', 'x') END", "column day has to say"),
        # Columns of two rows make a third one's partition.
        ("SELECT concat(a.s, b.n) AS day, a.id FROM changes a JOIN changes b ON concat(a.s, a.n) = concat(b.s, b.n)",
         "concat(s, n)", "column day has to say"),
        ("SELECT concat(a.s, b.n) AS day, count(*) AS c FROM changes a JOIN changes b "
         "ON concat(a.s, a.n) = concat(b.s, b.n) GROUP BY 1", "concat(s, n)", "GROUP BY"),
        ("SELECT concat(c.s, c.n) AS day, a.id FROM changes a JOIN changes b ON concat(a.s, a.n) = concat(b.s, b.n) "
         "JOIN changes c ON concat(a.s, b.n) = concat(c.s, c.n)", "concat(s, n)", "a join"),
        # Rows of several partitions meet, or the column says another thing.
        ("SELECT max(day) AS day, s FROM changes GROUP BY s", "", "several partitions may meet: GROUP BY"),
        ("SELECT day, count(*) OVER (PARTITION BY s) AS n FROM changes", "", "PARTITION BY"),
        ("SELECT day, r FROM (SELECT DISTINCT s AS r, DATE'2026-01-01' AS day FROM changes)", "", "DISTINCT"),
        ("SELECT a.day, b.s FROM changes a JOIN changes b ON a.id = b.id", "", "a join"),
        ("SELECT a.day, b.s FROM changes a JOIN changes b ON a.day = a.day", "", "a join"),
        ("SELECT a.day, b.s FROM changes a JOIN changes b ON a.id = b.id OR a.day = b.day", "", "a join"),
        ("SELECT b.day, a.s FROM changes a LEFT JOIN changes b ON a.day = b.day", "", "column day has to say"),
        ("SELECT to_date(at) AS day, s FROM changes", "", "column day has to say"),
        ("SELECT to_date(at) AS day, s FROM changes", "to_date(at + INTERVAL 1 DAY)", "column day has to say"),
        ("SELECT day, s FROM changes UNION ALL SELECT to_date(at), s FROM changes", "", "column day has to say"),
        ("SELECT to_date(at) AS day, n FROM changes", "max(to_date(at))", "partition: mode merge"),
        ("SELECT to_date(at) AS day, n FROM changes", "current_date", "partition: it gives other rows"),
    ],
)  # fmt: skip
def test_that_rows_keep_to_their_partition_is_shown_or_refused(
    world: World, sql: str, partition: str, said: str
) -> None:
    refused = check(world, "replace(day)", sql, partition)
    assert re.search(said, refused) if said else refused == ""


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, n, upper(s) AS s FROM changes WHERE n > 3", ""),
        ("SELECT k AS id, CAST(j AS BIGINT) AS n FROM (SELECT id AS k, n AS j FROM changes)", ""),
        ("SELECT 3 - id AS id, n FROM changes", "the key has to be the source's column as it is, and id isn't"),
        ("SELECT CAST(n AS BIGINT) AS id, CAST(id AS INT) AS n FROM changes", "id, n isn't"),
        ("SELECT id, CAST(n AS STRING) AS n FROM changes", "n isn't"),
        ("SELECT coalesce(id, 0) AS id, n FROM changes", "id isn't"),
    ],
)
def test_a_key_is_the_sources_own(world: World, sql: str, said: str) -> None:
    refused = check(world, "merge(id, n)", sql)
    assert said in refused if said else refused == ""


_PAIR = StructType().add("a", IntegerType()).add("b", IntegerType())
NESTED = (
    StructType(WIDE.fields)
    .add("p", StructType().add("x", IntegerType()).add("y", _PAIR))
    .add("xs", ArrayType(_PAIR))
    .add("m", MapType(StringType(), _PAIR))
)


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT p.x FROM changes", "p.x"),
        ("SELECT t.P.X + n AS z FROM changes t WHERE t.p.y.a > 3", "p.x p.y.a n"),
        ("SELECT p.y FROM changes", "p.y"),
        ("SELECT p FROM changes", "p"),
        ("SELECT p.x, p FROM changes", "p.x p"),
        ("SELECT to_json(p) AS z FROM changes WHERE p.x IS NULL", "p p.x"),
        ("SELECT xs.a FROM changes", "xs.element.a"),
        ("SELECT xs[n].a, m[s].b, element_at(xs, 1).b AS c, element_at(m, 'k').a AS d FROM changes",
         "xs.element.a n m.value.b s xs.element.b m.value.a"),
        ("SELECT x FROM (SELECT p.x AS x, n FROM changes)", "p.x"),
        ("SELECT r.p.x FROM (SELECT * FROM changes) r", "p.x"),
        ("SELECT q.x FROM (SELECT p AS q FROM changes)", "p"),
        ("WITH r AS (SELECT n, p FROM changes) SELECT p.x FROM r", "n p p.x"),
        ("SELECT DISTINCT p.x FROM changes", "p.x"),
        ("SELECT id FROM (SELECT DISTINCT id, p FROM changes)", "id p"),
        ("SELECT p.x FROM changes UNION ALL SELECT n FROM changes", "p.x n"),
        ("SELECT z FROM (SELECT n AS z, p FROM changes UNION ALL SELECT n, p FROM changes)", "n p"),
        ("SELECT transform(xs, e -> e.a) AS z FROM changes", "xs"),
        ("SELECT e.a FROM changes LATERAL VIEW explode(xs) AS e", "xs"),
        ("SELECT p.x, count(*) AS c FROM changes GROUP BY p.x HAVING max(p.y.b) > 3", "p.x p.y.b"),
        ("SELECT n, p FROM changes GROUP BY n, p", "n p"),
        ("SELECT a.p.x FROM changes a JOIN changes b ON a.p.y.a = b.n", "p.x p.y.a n"),
        ("SELECT id, rank() OVER (PARTITION BY p.x ORDER BY xs[0].b) AS r FROM changes", "id p.x xs.element.b"),
    ],
)  # fmt: skip
def test_what_is_read_is_known_down_to_its_fields_or_read_as_a_whole(world: World, sql: str, read: str) -> None:
    assert read_columns(world.spark, [sql], NESTED).paths == {tuple(path.split(".")) for path in read.split()}


DEFAULTS = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.chunkBase64String.enabled": "false",
}
SPOKEN = """
    SELECT '${env:PATH}', base64(repeat('x', 60)), typeof(CAST('2026-01-01' AS TIMESTAMP)),
    to_json(named_struct('a', 1, 'b', NULL)),
    CAST(array(1, NULL) AS STRING), typeof(CAST('1.1' AS DECIMAL(38, 18)) * CAST('1.1' AS DECIMAL(38, 18)))
"""


def test_a_workers_own_defaults_decide_no_row(world: World) -> None:
    """Each region has its own spark-defaults.conf, and a rebuild may run where no step did."""
    conf = world.spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    plain = TransformSpark().start_session("local[2]").sql(SPOKEN).collect()
    before = {name: conf.get(name, "") for name in DEFAULTS}
    try:
        for name, value in DEFAULTS.items():
            conf.set(name, value)
        odd = TransformSpark().start_session("local[2]").sql(SPOKEN).collect()
        control = world.spark.newSession().sql(SPOKEN).collect()
    finally:
        for name, value in before.items():
            conf.set(name, value) if value else conf.remove(name)
    assert odd == plain
    assert plain[0][0] == "${env:PATH}"
    assert all(one != other_session for one, other_session in zip(control[0], plain[0], strict=True))


def test_names_of_expressions_are_those_of_sparks_classes(world: World) -> None:
    """A name with a slip of the pen would allow nothing."""
    loader = jvm(world.spark).java.lang.Thread.currentThread().getContextClassLoader()
    places = ("", "objects.", "aggregate.", "json.", "variant.", "xml.")

    def there(name: str) -> bool:
        files = (f"org/apache/spark/sql/catalyst/expressions/{place}{name}" for place in places)
        return any(loader.getResource(f"{file.replace('.', '/')}{sign}.class") for file in files for sign in ("", "$"))

    assert [name for name in sorted(ALLOWED) if not there(name)] == []
