"""Update actions on a view's JSON, and the metadata of a new view.

That the metadata is Java's, whatever the updates, is tested in tests/integration/rest_catalog.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import BadUpdate, BrokenMetadata
from sterna.serving.rest_catalog.view_updates import apply_view_updates, create_view_metadata
from tests.support import metadata_commits as commits
from tests.support.metadata_commits import START_MS, view, view_version
from tests.unit.rest_catalog.test_metadata_updates import ODD, places, replaced

NOW_MS = START_MS + 1000
Document = dict[str, Any]
SET_LAST = {"action": "set-current-view-version", "view-version-id": -1}


def added(*arguments: Any, **more: Any) -> Document:
    return {"action": "add-view-version", "view-version": view_version(*arguments, **more)}


def applied(metadata: Document, *updates: Document) -> Document:
    before = copy.deepcopy((metadata, updates))
    try:
        return apply_view_updates(metadata, updates, NOW_MS)
    finally:
        assert (metadata, updates) == before, "the input is mutated"


def refusal(metadata: Document, *updates: Document) -> str:
    with pytest.raises(BadUpdate) as caught:
        applied(metadata, *updates)
    return caught.value.message


def test_what_changes_nothing_leaves_the_metadata_as_it_is() -> None:
    assert applied(view()) == view()
    assert applied(view(), added(7)) == view()
    assert applied(view(), {"action": "add-schema", "schema": {**commits.BASE_SCHEMA, "schema-id": 3}}) == view()


def test_a_view_is_replaced() -> None:
    more = commits.SCHEMAS[3]
    after = applied(
        {**view(), "tomorrow": 1},
        {"action": "add-schema", "schema": more},
        added(1, -1, ("spark", "SELECT 2")),
        SET_LAST,
    )
    assert after["tomorrow"] == 1
    assert after["schemas"] == [commits.BASE_SCHEMA, {**more, "schema-id": 1}]
    assert after["versions"][1] == {**view_version(1, 1, ("spark", "SELECT 2")), "version-id": 2}
    assert after["current-version-id"] == 2
    assert after["version-log"][1:] == [{"timestamp-ms": START_MS + 1, "version-id": 2}]


def test_a_version_that_is_made_current_again_is_logged_as_of_now() -> None:
    two = applied(view(), added(2, 0, ("spark", "SELECT 2")), SET_LAST)
    after = applied(two, {"action": "set-current-view-version", "view-version-id": 1})
    assert after["version-log"][-1] == {"timestamp-ms": NOW_MS, "version-id": 1}


def test_older_versions_go_and_the_log_with_them() -> None:
    metadata = {**view(), "properties": {"version.history.num-entries": "2"}}
    for at in (2, 3, 4):
        metadata = applied(metadata, added(at, 0, ("spark", f"SELECT {at}")), SET_LAST)
    assert [version["version-id"] for version in metadata["versions"]] == [4, 3]
    assert [line["version-id"] for line in metadata["version-log"]] == [3, 4]


def test_a_query_is_not_lost_with_its_dialect() -> None:
    other = added(2, 0, ("trino", "SELECT 1"))
    assert "lose its query in spark" in refusal(view(), other, SET_LAST)
    allowed = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    assert applied(view(), allowed, other, SET_LAST)["current-version-id"] == 2


def test_location_properties_and_uuid() -> None:
    after = applied(view(), {"action": "set-location", "location": "s3://b/v/"})
    assert after["location"] == "s3://b/v"
    assert applied(view(), {"action": "set-properties", "updates": {"a": "b"}})["properties"]["a"] == "b"
    assert "properties" not in applied(view(), {"action": "remove-properties", "removals": ["comment"]})
    assert applied(view(), {"action": "assign-uuid", "uuid": commits.VIEW_UUID}) == view()
    assert "another" in refusal(view(), {"action": "assign-uuid", "uuid": commits.UUID})
    assert applied(view(), {"action": "upgrade-format-version", "format-version": 1}) == view()
    assert "no 2" in refusal(view(), {"action": "upgrade-format-version", "format-version": 2})


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (added(2, 9, ("spark", "SELECT 2")), "no schema 9"),
        (added(2, -1, ("spark", "SELECT 2")), "schema-id -1 is what was added last, and nothing was"),
        (added(2, 0, ("spark", "SELECT 2"), ("SPARK", "SELECT 3")), "two queries of one dialect"),
        (added(2, representations=[{"type": "plan"}]), "none of type plan"),
        (SET_LAST, "view-version-id -1 is what was added last, and nothing was"),
        ({"action": "set-current-view-version", "view-version-id": 9}, "no version 9"),
        ({"action": "add-spec", "spec": commits.SPECS[0]}, "a view has no update action add-spec"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "0"}}, "an integer above 0: 0"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "9" * 5000}}, "an integer above 0: 9"),
    ],
)
def test_what_does_not_fit(update: Document, message: str) -> None:
    assert message in refusal(view(), update)


def test_metadata_of_mains_that_is_broken() -> None:
    for broken in ({**view(), "versions": None}, {**view(), "current-version-id": 9}):
        with pytest.raises(BrokenMetadata):
            applied(broken, SET_LAST)


def test_a_new_view() -> None:
    request = {
        "name": "recent",
        "schema": {**commits.BASE_SCHEMA, "schema-id": 7},
        "view-version": view_version(5, 7),
        "properties": {"comment": "x"},
    }
    metadata = create_view_metadata(request, "s3://b/v/", NOW_MS)
    assert len(metadata.pop("view-uuid")) == len(commits.UUID)
    assert metadata == {
        "format-version": 1,
        "location": "s3://b/v",
        "properties": {"comment": "x"},
        "schemas": [commits.BASE_SCHEMA],
        "current-version-id": 1,
        "versions": [{**view_version(5, 0), "version-id": 1}],
        "version-log": [{"timestamp-ms": START_MS + 5, "version-id": 1}],
    }
    with pytest.raises(BadUpdate, match="no query"):
        create_view_metadata({**request, "view-version": view_version(1, representations=[])}, "s3://b/v", NOW_MS)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(updates=st.lists(commits.VIEW_UPDATES, min_size=1, max_size=3), choice=st.data())
def test_whatever_a_client_sends_is_applied_or_refused(updates: Any, choice: st.DataObject) -> None:
    path = choice.draw(st.sampled_from([path for path in places(updates) if path]))
    with suppress(BadUpdate):
        applied(view(), *replaced(updates, path, choice.draw(ODD)))
