"""What the SQL of a flow may be: what a step and a rebuild would answer differently is refused."""

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
    ],
)
def test_sql_whose_answer_does_not_follow_from_the_rows_is_refused(world: World, sql: str, said: str) -> None:
    flow = Flow.model_validate({"name": "a", "from": "n.a", "into": "n.b", "mode": "replace(id)", "sql": sql})
    if not said:
        assert check_sql(world.spark, flow, sql, SOURCE, None).names == ["id"]
        return
    with pytest.raises(ServicesError, match=said):
        check_sql(world.spark, flow, sql, SOURCE, None)
