"""Which catalogs a view's SQL names, by Spark's own parser: of all SQL that the unit tests read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import ParseException

from sterna.iceberg.metadata.view_names import parse_sql
from tests.support.world import World
from tests.unit.iceberg import test_view_names as unit

(CASES,) = (mark.args[1] for mark in unit.test_catalogs_in_the_sql.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
MORE = [
    "FROM ns.t SELECT (a), b.c.d",
    "SELECT * FROM lake.ns.t VERSION AS OF 3, one.ns.u",
    "SELECT * FROM ns.t TABLESAMPLE (5 ROWS) with, lake.ns.u WHERE id IN (SELECT id FROM window, one.ns.u)",
    "SELECT * FROM ns.t offset, lake.ns.u ORDER BY id LIMIT 3 OFFSET 2",
]


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    if str(plan.nodeName()) == "RelationTimeTravel":
        yield from nodes(plan.relation())
    for some in (plan.children(), plan.subqueries(), plan.innerChildren()):
        for place in range(some.size()):
            yield from nodes(some.apply(place))


def heads(world: World, sql: str) -> set[str]:
    """Return what comes first in names, and the parts from which Nessie's catalog takes a branch or commit."""
    java: Any = world.spark
    names = set()
    for node in nodes(java._jsparkSession.sessionState().sqlParser().parsePlan(sql)):
        if str(node.nodeName()) == "UnresolvedRelation":
            name = node.multipartIdentifier()
            parts = [str(name.apply(place)) for place in range(name.size())]
            names |= {part for part in parts if {"@", "#"} & set(part)} | set(parts[:1] if parts[1:] else ())
    return names


@pytest.mark.parametrize("sql", [*(sql for sql, _ in CASES), *MORE])
def test_spark_finds_the_same_catalogs(world: World, sql: str) -> None:
    try:
        expected = heads(world, sql)
    except ParseException:
        assert "a://" in sql  # Spark's lexer takes it for a name, and its parser refuses it
        return
    assert parse_sql(sql, "spark").catalog_candidates() == expected
