"""Update actions on a table's JSON: one test an action, and what a client that lies or errs gets.

That the metadata is Java's, whatever the updates, is tested in tests/integration/rest_catalog.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import BadUpdate, BrokenMetadata, StaleBase
from sterna.serving.rest_catalog.metadata_updates import apply_table_updates, new_table_metadata
from sterna.serving.rest_catalog.new_tables import create_table_metadata
from tests.support import metadata_commits as commits
from tests.support.metadata_commits import START_MS, append_updates, create_updates, resolved, snapshot, table

NOW_MS = START_MS + 1000
Document = dict[str, Any]


def applied(metadata: Document, *updates: Document) -> Document:
    before = copy.deepcopy((metadata, updates))
    try:
        return apply_table_updates(metadata, updates, NOW_MS)
    finally:
        assert (metadata, updates) == before, "the input is mutated"


def changed(metadata: Document, *updates: Document) -> Document:
    """Return the fields that updates changed, beside the clock."""
    after = applied(metadata, *updates)
    assert after["last-updated-ms"] == NOW_MS
    names = sorted((metadata.keys() | after.keys()) - {"last-updated-ms"})
    return {name: after.get(name) for name in names if metadata.get(name) != after.get(name)}


def refusal(metadata: Document, *updates: Document) -> str:
    with pytest.raises(BadUpdate) as caught:
        applied(metadata, *updates)
    return caught.value.message


def test_what_changes_nothing_leaves_the_metadata_as_it_is() -> None:
    for metadata in (table(2), {**table(1), "refs": None}):
        assert applied(metadata) == metadata
        assert applied(metadata, {"action": "set-location", "location": commits.LOCATION}) == metadata
        assert applied(metadata, {"action": "remove-snapshot-ref", "ref-name": "gone"}) == metadata


def test_fields_that_nobody_heard_of_are_kept() -> None:
    metadata = {**table(3), "tomorrow": {"a": [1]}}
    metadata["schemas"] = [{**commits.BASE_SCHEMA, "tomorrow": 1}]
    after = applied(metadata, *append_updates(metadata, 3), {"action": "add-schema", "schema": commits.SCHEMAS[3]})
    assert after["tomorrow"] == {"a": [1]}
    assert after["schemas"][0]["tomorrow"] == 1
    sent = {**snapshot(4, 3, 2, **{"first-row-id": 15, "added-rows": 1}), "tomorrow": 2}
    assert (
        applied(after, {"action": "add-snapshot", "snapshot": {**sent, "sequence-number": 4}})["snapshots"][-1][
            "tomorrow"
        ]
        == 2
    )


def test_the_clock_of_what_is_written_never_goes_back() -> None:
    metadata = {**table(2), "last-updated-ms": NOW_MS + 50}
    after = applied(metadata, {"action": "set-properties", "updates": {"a": "b"}})
    assert after["last-updated-ms"] == NOW_MS + 50


def test_assign_uuid() -> None:
    without = {name: part for name, part in table(1).items() if name != "table-uuid"}
    assert changed(without, {"action": "assign-uuid", "uuid": commits.UUID}) == {"table-uuid": commits.UUID}
    assert applied(table(2), {"action": "assign-uuid", "uuid": commits.UUID.upper()}) == table(2)
    assert "another" in refusal(table(2), {"action": "assign-uuid", "uuid": commits.VIEW_UUID})
    assert "uuid is none" in refusal(without, {"action": "assign-uuid", "uuid": "../x"})


def test_upgrade_format_version() -> None:
    assert changed(table(2), {"action": "upgrade-format-version", "format-version": 3}) == {
        "format-version": 3,
        "next-row-id": 0,
    }
    after = changed(table(1), {"action": "upgrade-format-version", "format-version": 2})
    assert after == {"format-version": 2, "last-sequence-number": 0, "schema": None, "partition-spec": None}
    for version in (1, 4):
        assert "can't become" in refusal(table(2), {"action": "upgrade-format-version", "format-version": version})


def test_add_schema() -> None:
    more = commits.SCHEMAS[3]
    after = changed(table(2), {"action": "add-schema", "schema": more})
    assert after == {"last-column-id": 13, "schemas": [commits.BASE_SCHEMA, {**more, "schema-id": 1}]}
    equal = {**commits.BASE_SCHEMA, "schema-id": 5}
    assert applied(table(2), {"action": "add-schema", "schema": equal}) == table(2)


@pytest.mark.parametrize(
    ("column", "version", "message"),
    [
        (commits.NANOS, 2, "timestamp_ns is a type of v3 and later"),
        (commits.SHAPE, 2, "variant is a type of v3 and later"),
        (commits.COUNT, 2, "initial defaults from v3 on"),
        (commits.column(4, "a", "strin"), 3, "there is no type strin"),
        (commits.column(4, "a", "decimal(39, 2)"), 3, "no decimal has"),
        (commits.column(4, "a", "unknown", True), 3, "can't be required"),
        (commits.column(4, "a", {"type": "set"}), 3, "the type of a is none: set"),
        (commits.column(4, "a", None), 3, "the type of a is null"),
        (commits.column(3, "a", "int"), 3, "two columns of id 3"),
        (commits.column(4, "name", "int"), 3, "two columns of name name"),
        (
            commits.column(4, "a", "int", **{"write-default": "4"}),
            3,
            "the write-default of column a is no value of type int",
        ),
        (commits.column(4, "a", "double", **{"write-default": 4}), 3, "no value of type double"),
        (commits.column(4, "a", "date", **{"write-default": "2026-13-01"}), 3, "no value of type date"),
        (
            commits.column(4, "a", "timestamptz", **{"write-default": "2026-01-01T00:00:00"}),
            3,
            "no value of type timestamptz",
        ),
        (commits.column(4, "a", "fixed[2]", **{"write-default": "00"}), 3, "no value of type fixed[2]"),
        (
            commits.column(4, "a", commits.TAGS["type"] | {"element-id": 5}, **{"write-default": []}),
            3,
            "null as its default",
        ),
    ],
)
def test_a_column_that_no_table_can_have(column: Document, version: int, message: str) -> None:
    columns = (commits.ID, commits.TS, commits.column(3, "name", "string"), column)
    assert message in refusal(table(version), {"action": "add-schema", "schema": commits.schema(*columns)})


@pytest.mark.parametrize(
    ("column_type", "default"),
    [
        ("boolean", True),
        ("int", -1),
        ("long", 1 << 40),
        ("float", 1.5),
        ("decimal(10,2)", "-1.50"),
        ("string", ""),
        ("uuid", commits.UUID),
        ("date", "2026-02-28"),
        ("time", "12:30:00.123456"),
        ("timestamp", "2026-02-28T12:30:00"),
        ("timestamptz", "2026-02-28T12:30:00.1+00:00"),
        ("timestamp_ns", "2026-02-28T12:30:00.123456789"),
        ("timestamptz_ns", "2026-02-28T12:30:00.123456789+00:00"),
        ("fixed[ 2 ]", "00fF"),
        ("binary", "00ff01"),
    ],
)
def test_defaults_of_each_type(column_type: str, default: object) -> None:
    column = commits.column(4, "a", column_type, **{"initial-default": default, "write-default": default})
    after = applied(table(3), {"action": "add-schema", "schema": commits.schema(commits.ID, commits.TS, column)})
    assert after["schemas"][1]["fields"][2]["initial-default"] == default


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    nested: Any = "int"
    for at in range(150):
        nested = {"type": "list", "element-id": 100 + at, "element-required": False, "element": nested}
    schema = commits.schema(commits.ID, commits.column(4, "a", nested))
    assert "nested deeper" in refusal(table(2), {"action": "add-schema", "schema": schema})


def test_set_current_schema() -> None:
    more = {"action": "add-schema", "schema": commits.SCHEMAS[3]}
    assert applied(table(2), more, {"action": "set-current-schema", "schema-id": -1})["current-schema-id"] == 1
    assert applied(table(1), more, {"action": "set-current-schema", "schema-id": 1})["schema"]["schema-id"] == 1
    assert "nothing was" in refusal(table(2), {"action": "set-current-schema", "schema-id": -1})
    assert "no schema 9" in refusal(table(2), {"action": "set-current-schema", "schema-id": 9})


def test_a_column_with_the_name_of_a_partition_field_would_make_the_table_unreadable() -> None:
    updates = (
        {"action": "add-schema", "schema": commits.SCHEMAS[5]},
        {"action": "set-current-schema", "schema-id": -1},
    )
    assert "the name of a column that isn't its source" in refusal(table(2), *updates)


def test_a_column_that_the_table_is_partitioned_by_stays() -> None:
    dropped = commits.schema(commits.ID, commits.PRICE)
    updates = ({"action": "add-schema", "schema": dropped}, {"action": "set-current-schema", "schema-id": -1})
    assert "no column is 2" in refusal(table(2), *updates)


def test_remove_schemas() -> None:
    two = applied(table(2), {"action": "add-schema", "schema": commits.SCHEMAS[3]})
    assert changed(two, {"action": "remove-schemas", "schema-ids": [1, 7]}) == {"schemas": [commits.BASE_SCHEMA]}
    assert "can't be removed" in refusal(two, {"action": "remove-schemas", "schema-ids": [0]})


def test_add_spec_and_set_default_spec() -> None:
    updates = ({"action": "add-spec", "spec": commits.SPECS[2]}, {"action": "set-default-spec", "spec-id": -1})
    added = {**commits.SPECS[2], "spec-id": 1}
    assert changed(table(2), *updates) == {
        "default-spec-id": 1,
        "last-partition-id": 1001,
        "partition-specs": [commits.SPECS[1], added],
    }
    assert applied(table(1), *updates)["partition-spec"] == added["fields"]
    assert applied(table(2), {"action": "add-spec", "spec": {**commits.SPECS[1], "spec-id": 4}}) == table(2)
    assert "nothing was" in refusal(table(2), updates[1])
    assert "the default-spec-id is 9" in refusal(table(2), {"action": "set-default-spec", "spec-id": 9})


def test_a_spec_without_field_ids_gets_those_of_equal_fields_and_new_ones() -> None:
    """Java counts from 1000 again: two fields of different meaning would share an id."""
    sent = commits.spec(("hour", "hour", 2, None), ("day", "day", 2, None))
    after = applied(table(2), {"action": "add-spec", "spec": sent})
    assert [field["field-id"] for field in after["partition-specs"][1]["fields"]] == [1001, 1000]
    assert after["last-partition-id"] == 1001
    mixed = commits.spec(("hour", "hour", 2, None), ("day", "day", 2, 1000))
    assert "without a field-id: 1 of 2" in refusal(table(2), {"action": "add-spec", "spec": mixed})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("a", "day", 1, 1001)], "has no transform day"),
        ([("a", "bucket[0]", 1, 1001)], "no width above 0"),
        ([("a", "identity", 9, 1001)], "no column is 9"),
        ([("name", "bucket[2]", 1, 1001)], "the name of a column"),
        ([("", "identity", 1, 1001)], "no name of its own"),
        ([("a", "identity", 1, 1001), ("a", "identity", 3, 1002)], "no name of its own"),
    ],
)
def test_a_spec_that_does_not_fit(fields: list[Any], message: str) -> None:
    assert message in refusal(table(2), {"action": "add-spec", "spec": commits.spec(*fields)})


def test_a_spec_of_version_1_counts_up_from_1000() -> None:
    assert "count up from 1000" in refusal(table(1), {"action": "add-spec", "spec": commits.SPECS[4]})


def test_remove_partition_specs() -> None:
    two = applied(table(2), {"action": "add-spec", "spec": commits.SPECS[2]})
    assert changed(two, {"action": "remove-partition-specs", "spec-ids": [1]}) == {
        "partition-specs": [commits.SPECS[1]]
    }
    assert "can't be removed" in refusal(two, {"action": "remove-partition-specs", "spec-ids": [0]})


def test_add_sort_order_and_set_default_sort_order() -> None:
    updates = (
        {"action": "add-sort-order", "sort-order": commits.ORDERS[2]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    assert changed(table(2), *updates) == {
        "default-sort-order-id": 1,
        "sort-orders": [commits.ORDERS[0], {**commits.ORDERS[2], "order-id": 1}],
    }
    assert applied(table(2), {"action": "add-sort-order", "sort-order": commits.ORDERS[0]}) == table(2)
    assert "nothing was" in refusal(table(2), updates[1])
    assert "the default-sort-order-id is 9" in refusal(
        table(2), {"action": "set-default-sort-order", "sort-order-id": 9}
    )
    for order, message in (
        (4, "has the id 4"),
        (6, "direction is none of asc, desc"),
        (7, "isn't sorted"),
        (8, "isn't sorted"),
    ):
        assert message in refusal(table(2), {"action": "add-sort-order", "sort-order": commits.ORDERS[order]})


def test_add_snapshot_and_set_snapshot_ref() -> None:
    metadata = table(3)
    after = changed(metadata, *append_updates(metadata, 3, rows=4))
    assert after.pop("snapshots") == [*metadata["snapshots"], append_updates(metadata, 3, rows=4)[0]["snapshot"]]
    assert after.pop("snapshot-log")[-1] == {"timestamp-ms": START_MS + 3, "snapshot-id": 3}
    assert after == {
        "current-snapshot-id": 3,
        "last-sequence-number": 3,
        "next-row-id": 14,
        "refs": {**metadata["refs"], "main": {"snapshot-id": 3, "type": "branch"}},
    }


def test_a_snapshot_that_another_commit_overtook_is_stale() -> None:
    for version, more, message in (
        (2, {}, "sequence number is 2, and the table's last one is 2"),
        (3, {"first-row-id": 9, "added-rows": 1, "sequence-number": 3}, "next-row-id is 10"),
    ):
        for parent in (None, 1, 2):
            sent = {**snapshot(3, 2, parent), **more}
            with pytest.raises(StaleBase, match=message) as caught:
                applied(table(version), {"action": "add-snapshot", "snapshot": sent})
            assert caught.value.message.startswith("update 1, add-snapshot: ")


def test_row_ids_after_a_gap_are_not_given_out_twice() -> None:
    sent = snapshot(3, 3, 2, **{"first-row-id": 100, "added-rows": 7})
    assert applied(table(3), {"action": "add-snapshot", "snapshot": sent})["next-row-id"] == 107


@pytest.mark.parametrize(
    ("version", "more", "message"),
    [
        (2, {"snapshot-id": 2}, "has the snapshot 2 already"),
        (2, {"manifest-list": None, "manifests": ["a"]}, "manifest-list is missing"),
        (1, {"sequence-number": 4}, "no sequence number"),
        (3, {}, "no first-row-id"),
        (3, {"first-row-id": 10}, "no added-rows"),
        (3, {"first-row-id": 10, "added-rows": -1}, "below 0"),
        (2, {"summary": {"operation": 1}}, "summary.operation is an integer"),
        (2, {"timestamp-ms": START_MS - 120_000}, "is the client's clock right?"),
        (2, {"timestamp-ms": NOW_MS + 61_000}, "is the client's clock right?"),
    ],
)
def test_a_snapshot_that_does_not_fit(version: int, more: Document, message: str) -> None:
    sent = {**snapshot(3, 3 if version > 1 else 0, 2), **more}
    pointed = {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": sent["snapshot-id"], "type": "branch"}
    assert message in refusal(table(version), {"action": "add-snapshot", "snapshot": sent}, pointed)


def test_refs() -> None:
    branch = {"action": "set-snapshot-ref", "ref-name": "audit", "snapshot-id": 1, "type": "BRANCH"}
    kept = {"min-snapshots-to-keep": 2, "max-snapshot-age-ms": 3, "max-ref-age-ms": 4}
    after = changed(table(2), {**branch, **kept})
    assert after == {"refs": {**table(2)["refs"], "audit": {"snapshot-id": 1, "type": "branch", **kept}}}
    assert changed(table(2), {"action": "remove-snapshot-ref", "ref-name": "v1"}) == {
        "refs": {"main": table(2)["refs"]["main"]}
    }
    for wrong, message in (
        ({"snapshot-id": 9}, "which the table has not"),
        ({"type": "tag", "ref-name": "main"}, "can't be a tag"),
        ({"type": "tag", "min-snapshots-to-keep": 1}, "a tag has no min-snapshots-to-keep"),
        ({"max-ref-age-ms": 0}, "above 0"),
        ({"type": "twig"}, "a branch or a tag"),
    ):
        assert message in refusal(table(2), {**branch, **wrong})


def test_going_back_to_an_older_snapshot_is_logged_as_of_now() -> None:
    back = {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch"}
    assert applied(table(2), back)["snapshot-log"][-1] == {"timestamp-ms": NOW_MS, "snapshot-id": 1}


def test_a_snapshot_that_was_current_within_a_commit_only_is_in_no_log() -> None:
    metadata = table(2)
    first = append_updates(metadata, 3)
    updates = [*first, *append_updates(applied(metadata, *first), 4)]
    assert [line["snapshot-id"] for line in applied(metadata, *updates)["snapshot-log"]] == [1, 2, 4]


def test_remove_snapshots() -> None:
    statistics = {"snapshot-id": 1, "statistics-path": "s", "file-size-in-bytes": 1}
    metadata = {**table(2), "partition-statistics": [statistics]}
    assert changed(metadata, {"action": "remove-snapshots", "snapshot-ids": [1, 77]}) == {
        "snapshots": metadata["snapshots"][1:],
        "partition-statistics": [],
        "refs": {"main": metadata["refs"]["main"]},
        "snapshot-log": metadata["snapshot-log"][1:],
    }
    after = changed(table(3), {"action": "remove-snapshots", "snapshot-ids": [2]})
    assert after["current-snapshot-id"] is None
    assert after["snapshot-log"] == []


def test_set_location_and_properties() -> None:
    assert changed(table(2), {"action": "set-location", "location": "s3://b/t//"}) == {"location": "s3://b/t"}
    assert "empty" in refusal(table(2), {"action": "set-location", "location": ""})
    assert changed(table(2), {"action": "set-properties", "updates": {"a": "b"}})["properties"] == {
        "owner": "shop",
        "a": "b",
    }
    assert changed(table(2), {"action": "remove-properties", "removals": ["owner", "a"]}) == {"properties": {}}
    assert "updates.a is an integer" in refusal(table(2), {"action": "set-properties", "updates": {"a": 1}})


def test_statistics() -> None:
    statistics = {
        "snapshot-id": 2,
        "statistics-path": "s3://us-lake/s.puffin",
        "file-size-in-bytes": 9,
        "file-footer-size-in-bytes": 4,
        "blob-metadata": [{"type": "ndv", "snapshot-id": 2, "sequence-number": 2, "fields": [1]}],
    }
    first = applied(table(2), {"action": "set-statistics", "snapshot-id": 2, "statistics": statistics})
    assert first["statistics"] == [statistics]
    second = {**statistics, "statistics-path": "s3://us-lake/2.puffin"}
    assert changed(first, {"action": "set-statistics", "statistics": second}) == {"statistics": [second]}
    assert changed(first, {"action": "remove-statistics", "snapshot-id": 2}) == {"statistics": []}
    assert applied(first, {"action": "remove-statistics", "snapshot-id": 1}) == first
    wrong = {**statistics, "blob-metadata": [{"type": "ndv"}]}
    assert "snapshot-id is missing" in refusal(table(2), {"action": "set-statistics", "statistics": wrong})


def test_partition_statistics() -> None:
    statistics = {"snapshot-id": 2, "statistics-path": "s3://us-lake/p.parquet", "file-size-in-bytes": 9}
    update = {"action": "set-partition-statistics", "partition-statistics": statistics}
    first = applied(table(2), update)
    assert first["partition-statistics"] == [statistics]
    assert changed(first, {"action": "remove-partition-statistics", "snapshot-id": 2}) == {"partition-statistics": []}


def test_encryption_keys() -> None:
    key = {"key-id": "k", "encrypted-key-metadata": "c2VjcmV0", "encrypted-by-id": "kms"}
    first = applied(table(3), {"action": "add-encryption-key", "encryption-key": key})
    assert first["encryption-keys"] == [key]
    assert applied(first, {"action": "add-encryption-key", "encryption-key": key}) == first
    assert changed(first, {"action": "remove-encryption-key", "key-id": "k"}) == {"encryption-keys": None}
    assert applied(table(3), {"action": "remove-encryption-key", "key-id": "k"}) == table(3)
    wrong = {**key, "encrypted-key-metadata": "%"}
    assert "no base64" in refusal(table(3), {"action": "add-encryption-key", "encryption-key": wrong})


def test_an_unknown_action_is_refused_by_its_number_and_name() -> None:
    updates = ({"action": "set-properties", "updates": {"a": "b"}}, {"action": "set-fire"})
    assert refusal(table(2), *updates) == "update 2: a table has no update action set-fire"
    assert (
        refusal(table(2), {"action": "add-view-version"}) == "update 1: a table has no update action add-view-version"
    )
    assert refusal(table(2), {}) == "update 1: action is missing"
    assert refusal(table(2), []) == "update 1: it is an array, and has to be an object"  # type: ignore[arg-type]


def test_a_table_that_is_staged_has_to_be_whole() -> None:
    whole = create_updates(2)
    assert new_table_metadata(whole, NOW_MS)["table-uuid"] == commits.UUID
    for missing, message in (
        (2, "set-current-schema"),
        (4, "set-default-spec"),
        (6, "set-default-sort-order"),
        (8, "no location"),
    ):
        with pytest.raises(BadUpdate, match=message):
            new_table_metadata([update for at, update in enumerate(whole) if at != missing], NOW_MS)
    with pytest.raises(BadUpdate, match="no current schema"):
        new_table_metadata([], NOW_MS)


def test_a_table_that_is_made_has_new_ids() -> None:
    schema = commits.schema(commits.NOTES, commits.ID, **{"identifier-field-ids": [1]})
    request = {
        "name": "t",
        "schema": schema,
        "partition-spec": commits.spec(("id_bucket", "bucket[4]", 1, 1007)),
        "write-order": commits.order((1, "identity", "asc", "nulls-first"), order_id=9),
        "properties": {"format-version": "3", "owner": "shop"},
    }
    metadata = create_table_metadata(request, "s3://b/t/", NOW_MS)
    assert [column["id"] for column in metadata["schemas"][0]["fields"]] == [1, 2]
    assert metadata["schemas"][0]["fields"][0]["type"]["value"]["fields"][0]["id"] == 5
    assert metadata["schemas"][0]["identifier-field-ids"] == [2]
    assert metadata["partition-specs"][0] == commits.spec(("id_bucket", "bucket[4]", 2, 1000))
    assert metadata["sort-orders"][0] == commits.order((2, "identity", "asc", "nulls-first"))
    assert (metadata["last-column-id"], metadata["format-version"], metadata["next-row-id"]) == (5, 3, 0)
    assert metadata["properties"] == {"owner": "shop", "write.parquet.compression-codec": "zstd"}
    assert metadata["location"] == "s3://b/t"


@pytest.mark.parametrize(
    "missing", ["schemas", "last-column-id", "current-schema-id", "last-sequence-number", "partition-specs"]
)
def test_metadata_of_mains_that_lacks_something_is_broken(missing: str) -> None:
    metadata = {name: part for name, part in table(2).items() if name != missing}
    with pytest.raises((BrokenMetadata, BadUpdate)):
        applied(metadata, {"action": "set-properties", "updates": {"a": "b"}})


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a JSON document."""
    yield path
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def replaced(content: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    """Return a JSON document with something else at a path."""
    if not path:
        return replacement
    copied = dict(content) if isinstance(content, dict) else list(content)
    copied[path[0]] = replaced(content[path[0]], path[1:], replacement)
    return copied


ODD = st.sampled_from(
    (None, True, 0, -1, 1 << 40, 1 << 70, 1.5, "", "x", "\x00", [], [None], [1], {}, {"type": []}, {"a": 1})
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(version=st.sampled_from((1, 2, 3)), commit=st.lists(commits.UPDATES, min_size=1, max_size=3), choice=st.data())
def test_whatever_a_client_sends_is_applied_or_refused(
    version: int, commit: list[Document], choice: st.DataObject
) -> None:
    metadata = table(version)
    updates: Any = resolved(metadata, commit)
    path = choice.draw(st.sampled_from([path for path in places(updates) if path]))
    with contextlib.suppress(BadUpdate, StaleBase):
        applied(metadata, *replaced(updates, path, choice.draw(ODD)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(choice=st.data())
def test_whatever_a_request_for_a_table_is_it_is_fulfilled_or_refused(choice: st.DataObject) -> None:
    request = {
        "name": "t",
        "schema": commits.SCHEMAS[2],
        "partition-spec": commits.SPECS[2],
        "write-order": commits.ORDERS[2],
        "properties": {"format-version": "2"},
    }
    path = choice.draw(st.sampled_from([path for path in places(request) if path]))
    with contextlib.suppress(BadUpdate):
        create_table_metadata(replaced(request, path, choice.draw(ODD)), "s3://b/t", NOW_MS)
