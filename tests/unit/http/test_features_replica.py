"""What the replica tells of a view whose table the store wouldn't take: nothing, and by the same error.

Of this kind is each rule of one way in that the other doesn't have: types, columns, keys, times, several rows of a key.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from sterna.config.sections.features import Features
from sterna.errors import NotAKey, UnfitView
from sterna.pipelines.features.online import ReadSlot, SourceRows
from sterna.serving.http.features_source import ReplicaRows
from tests.support.small_world import World, make_world, run

USER = {"user_id": "long"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = [
    {"user_id": 1, "code": "a", "small": 1, "at": "9", "then": NOON, "tags": [{"a": 1}], "ratio": 1.5},
    {"user_id": 1, "code": "a", "small": 2, "at": "10", "then": NOON, "tags": None, "ratio": 2.5},
    {
        "user_id": 2,
        "code": "b",
        "small": 3,
        "at": "1",
        "then": NOON,
        "tags": None,
        "ratio": 3.5,
        "v": [0.5, None, math.nan],
    },
]
SCHEMA = pa.schema(
    [
        ("user_id", pa.int64()),
        ("code", pa.string()),
        ("small", pa.int32()),
        ("at", pa.string()),
        ("then", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.struct([("a", pa.int32())]))),
        ("ratio", pa.float64()),
        ("v", pa.list_(pa.float32())),
    ]
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = make_world(tmp_path_factory.mktemp("world"))
    table = world.writer.create_table(("ns", "odd"), SCHEMA, location=f"file://{world.folder}/us/lake/odd")
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    world.commit(odd=table.metadata_location)
    run(world)
    return world


def rows(world: World, *ids: str, key: Mapping[str, str] = USER, **view: Any) -> SourceRows:
    view = {"name": "odd", "entity": "user", "table": "ns.odd", "features": ["small"], "unique": True, **view}
    features = Features.model_validate({"entities": [{"name": "user", "key": dict(key)}], "views": [view]})
    source = ReplicaRows(world.context(), features)
    try:
        return asyncio.run(source.rows(features.views[0], ids, None, ReadSlot("", nullcontext)))
    finally:
        source.close()


def test_a_key_with_several_rows_has_none_that_could_be_told(world: World) -> None:
    with pytest.raises(NotAKey, match="view odd says unique, and several rows have the same key"):
        rows(world, "2", "1")
    assert rows(world, "2", "7").rows == {"2": [3]}
    assert rows(world, "1", unique=False, event_time="then").rows["1"][0] == 2


def test_a_key_of_several_columns_tells_rows_apart_that_share_some(world: World) -> None:
    entity = {"user_id": "long", "code": "string", "small": "int"}
    source_rows = rows(
        world, '["1","a","2"]', '["2","b","3"]', '["2","b","1"]', '["1","b","3"]', key=entity, features=["at"]
    )
    assert source_rows.rows == {'["1","a","2"]': ["10"], '["2","b","3"]': ["1"]}
    pair = {"code": "string", "user_id": "long"}
    assert rows(world, '["b","2"]', '["a","2"]', key=pair).rows == {'["b","2"]': [3]}
    with pytest.raises(NotAKey):
        rows(world, '["a","1"]', key=pair)


def test_lists_are_told_as_the_store_has_them(world: World) -> None:
    assert rows(world, "2", features=["v"]).rows == {"2": [[0.5, None, "NaN"]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unique": False, "event_time": "at"}, "event_time at is no timestamp"),
        ({"features": ["tags"]}, "column tags has the type list<struct"),
        ({"features": ["small", "missing"]}, "the table has no column missing"),
        ({"key": {"code": "long"}}, "the key code is a string, and entity user says long"),
        ({"key": {"user_id": "long", "ratio": "long"}}, "the key ratio is a double, and entity user says long"),
        ({"key": {"user_id": "int"}}, "the key user_id is a long, and entity user says int"),
    ],
)
def test_what_a_store_would_not_take_is_not_told(world: World, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnfitView, match=message):
        rows(world, "2", **changes)
