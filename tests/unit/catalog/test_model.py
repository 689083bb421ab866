"""The values of a catalog: keys and their names, times, contents."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from sterna.catalog.model import ICEBERG_TABLE, Content, key_name, parse_key, parse_time
from sterna.errors import CatalogRefused, UsageError


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("a.b", "c"), r"a\.b.c"),
        (("a", "b.c"), r"a.b\.c"),
        (("a\\", ".b"), r"a\\.\.b"),
        (("ü 表",), "ü 表"),
    ],
)
def test_a_key_has_one_name(key, name):
    assert key_name(key) == name
    assert parse_key(name) == key


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a\\", "a\\b"])
def test_what_is_no_key_name(name):
    with pytest.raises(UsageError):
        parse_key(name)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05.12Z", datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ],
)
def test_times_are_read_in_utc(text, moment):
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


def test_a_content_keeps_fields_that_nobody_knows():
    payload = {"type": ICEBERG_TABLE, "id": "1", "metadataLocation": "s3://a", "future": {"x": [1, None, 1.5]}}

    content = Content.of(payload)

    assert content.payload == payload
    assert content.with_metadata_location("s3://b").payload == {**payload, "metadataLocation": "s3://b"}
    assert "id" not in content.with_id(None).payload
    assert content.with_id("2").id == "2"
    content.payload["future"]["x"].append("changed")
    assert content.payload == payload
    assert pickle.loads(pickle.dumps(content)) == content
    assert len({content, Content.of(dict(reversed(payload.items())))}) == 1


def test_a_content_without_a_type_is_refused():
    with pytest.raises(CatalogRefused):
        Content.of({"id": "1"})
