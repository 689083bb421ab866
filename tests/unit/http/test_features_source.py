"""What the replica is asked for in the store's place."""

from __future__ import annotations

import duckdb
import pytest

from sterna.config.sections.features import Entity, FeatureView
from sterna.serving.http.features_source import build_source_sql

ROWS = [(1, "2026-01-01", page, price) for page, price in (("a", 9.5), ("b", 10.5), ("b", 9.5))]


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1], [ROWS[1], ROWS[0], ROWS[2]]])
def test_of_several_that_are_as_new_it_is_always_the_same_one(rows: list[tuple[int, str, str, float]]) -> None:
    """A past answer is told again as it was, whatever order files are read in; values are ordered, not their texts."""
    view = FeatureView(name="seen", entity="user", table="ns.seen", features=["price", "page"], event_time="moment")
    with duckdb.connect() as engine:
        engine.execute(
            "CREATE SCHEMA ns; CREATE TABLE ns.seen (user_id BIGINT, moment TIMESTAMP, page TEXT, price DOUBLE)"
        )
        engine.execute("INSERT INTO ns.seen VALUES (1, '2025-01-01', 'z', 99), (1, NULL, 'z', 99)")
        engine.executemany("INSERT INTO ns.seen VALUES (?, ?, ?, ?)", rows)
        sql = build_source_sql(view, Entity(name="user", key={"user_id": "long"}), ("ns", "seen"), 1)
        (row,) = engine.execute(sql, {"p0": 1}).fetchall()
    assert row[1:3] == (10.5, "b")
