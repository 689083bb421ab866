"""What the SQL of a flow may be: what a step and a rebuild would answer differently is refused.

Plan nodes are a list of what is allowed. What else falls under it: rows that aren't the step's (VALUES, a constant, a
CTE that takes the view's name), words that are dates (`now`, in each spelling), orders that tie, and keys of types
whose equality isn't one.
"""

from __future__ import annotations

import pytest
from pyspark.sql.types import DateType, LongType, StructType

from sterna.errors import ServicesError
from sterna.flows.plan_of_sql import check_sql
from sterna.services.flows import Flow
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
        ("SELECT day AS id FROM changes GROUP BY day", ""),
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
            "SELECT id, sum(id) OVER (PARTITION BY id ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n "
            "FROM changes",
            "may tie",
        ),
        ("SELECT id FROM changes WHERE 'a date' <> 'timestamp' /* DATE 'now' */", ""),
        ("SELECT CAST(id AS DOUBLE) AS id FROM changes", "tells no rows apart"),
        ("SELECT map(1, id) AS id FROM changes", "tells no rows apart"),
    ],
)
def test_sql_whose_answer_does_not_follow_from_the_rows_is_refused(world: World, sql: str, said: str) -> None:
    flow = Flow.model_validate({"name": "a", "from": "n.a", "into": "n.b", "mode": "replace(id)", "sql": sql})
    if not said:
        assert check_sql(world.spark, flow, sql, SOURCE, None).names == ["id"]
        return
    with pytest.raises(ServicesError, match=said):
        check_sql(world.spark, flow, sql, SOURCE, None)
