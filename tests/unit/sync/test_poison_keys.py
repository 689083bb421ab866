"""Poisons in v1 tables, views and namespaces: see `test_poison.py`."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, namespace_content
from tests.unit.sync.poison import ESCAPES, GONE, Sick, bad_paths, put


def inline(sick: Sick, value: Any, **more: Any) -> bytes:
    """Return a metadata.json of format v1 whose snapshot lists its manifests itself."""
    document = sick.document
    snapshot = document["snapshots"][0]
    del snapshot["manifest-list"]
    put(snapshot, "manifests", value) if value is not GONE else None
    return json.dumps(document | {"format-version": 1, "snapshots": [snapshot | more]}).encode()


def manifests(sick: Sick) -> list[str]:
    """Return the table's own manifest."""
    return [f"file://{next(path for path in sick.path('').glob('*-m0.avro'))}"]


def test_inline_manifests(sick: Sick) -> None:
    base = sick.document["location"]
    assert sick.sync(inline(sick, manifests(sick)))[0].held == ()
    wrong = (GONE, 5, "x", True, {}, [5], [None], [[]], [{}], [""])
    for value in (*wrong, *([path] for path in bad_paths(base)), [*manifests(sick), f"{base}/gone.avro"]):
        sick.check(inline(sick, value))
    sick.check(inline(sick, manifests(sick), **{"manifest-list": f"{base}/x.avro"}))
    sick.check(inline(sick, manifests(sick) * 2_000), held=False)
    sick.check(inline(sick, [f"{base}/{odd}x" for odd in ESCAPES]))
    sick.check(inline(sick, sick.document["snapshots"][0]["manifest-list"]))


def view_document(sick: Sick) -> dict[str, Any]:
    base = sick.document["location"]
    version = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1, "summary": {"engine-name": "x"}}
    query = {"type": "sql", "sql": "select 1", "dialect": "spark"}
    version |= {"representations": [query], "default-namespace": ["ns"]}
    return {
        "view-uuid": "u",
        "format-version": 1,
        "location": f"{base}-view",
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"timestamp-ms": 1, "version-id": 1}],
        "schemas": [],
        "properties": {"write.metadata.path": f"{base}-view/metadata"},
    }


def view_content(uri: str) -> Content:
    return Content.of({"type": ICEBERG_VIEW, "metadataLocation": uri, "versionId": 1, "schemaId": 0})


def check_view(sick: Sick, data: bytes, *, held: bool = True) -> None:
    sick.check_key("ns.view", view_content(sick.write(data, "metadata.json")), held=held)


def changed_view(sick: Sick, path: str, value: Any) -> bytes:
    document = view_document(sick)
    put(document, path, value)
    return json.dumps(document).encode()


def test_a_view_without_poison_is_published(sick: Sick) -> None:
    check_view(sick, json.dumps(view_document(sick)).encode(), held=False)


@pytest.mark.parametrize("field", ["location", "view-uuid", "format-version"])
def test_a_required_field_of_a_view(sick: Sick, field: str) -> None:
    for value in (GONE, True, None, [], {}, [[]], 2**70 if field == "format-version" else 5):
        check_view(sick, changed_view(sick, field, value))


def test_the_folder_of_a_view(sick: Sick) -> None:
    base = sick.document["location"]
    for value in bad_paths(base):
        check_view(sick, changed_view(sick, "location", value), held=False)
        check_view(sick, changed_view(sick, "properties/write.metadata.path", value), held=False)


@pytest.mark.parametrize("field", ["versions", "properties", "versions/0/summary", "versions/0/summary/x", "schemas"])
def test_a_part_of_a_view_of_another_form(sick: Sick, field: str) -> None:
    for value in (5, "x", [5], [None], [[]], {"x": 5}, {"x": None}, [{}] * 3, "\ud800\n", f"s3://nowhere/{ESCAPES[1]}"):
        check_view(sick, changed_view(sick, field, value), held=False)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b"\x1f\x8b", b'{"a":1,"a":2}', b"[" * 200_000, b'{"a":' * 200_000),
        b'{"versions":[' + b"{}," * 1_100_000 + b"{}]}",
        gzip.compress(b'{"a":"' + bytes(4 << 20) + b'"}'),
    ],
)
def test_no_view_at_all(sick: Sick, data: bytes) -> None:
    check_view(sick, data)


def test_the_entry_of_a_table_or_view(sick: Sick) -> None:
    base = sick.document["location"]
    for uri in bad_paths(base):
        sick.check_key("ns.view", view_content(uri))
        sick.check_key("ns.bad", Content.of({"type": "ICEBERG_TABLE", "metadataLocation": uri, "snapshotId": 1}))
    for uri in (None, "", 5, [], {}):
        sick.check_key("ns.bad", Content.of({"type": "ICEBERG_TABLE", "metadataLocation": uri}))
    sick.check_key("ns.bad", Content.of({"type": "ICEBERG_TABLE"}))
    sick.check_key("ns.bad", Content.of({"type": "UDF\n\x1b[2J\ud800", "metadataLocation": f"{base}/x"}))


@pytest.mark.parametrize("name", ["location", "any", "\x1b[2J\n"])
def test_a_property_of_a_namespace(sick: Sick, name: str) -> None:
    base = sick.document["location"]
    # No engine follows what a namespace says: text of any kind is taken as it is, if the catalog can be told it.
    for value in (*bad_paths(base), *(f"{base}/{odd}x" for odd in ESCAPES), "x" * 1_000_000):
        sick.check_key("other", namespace_content(("other",), {name: value}), held="\ud800" in value)
    for odd in (5, None, True, [], {}, [[]], 2**70):
        properties: Any = {name: odd}
        sick.check_key("other", namespace_content(("other",), properties), held=False)


def test_properties_of_a_namespace_of_another_form(sick: Sick) -> None:
    for odd in (5, "x", [5], [[]], True, {"x" * 100_000: "y"}, {f"p{number}": "x" for number in range(10_000)}):
        content = Content.of({"type": "NAMESPACE", "elements": ["other"], "properties": odd})
        sick.check_key("other", content, held=False)
