"""What a client demands of a table or view: one test a requirement, and what malformed ones get."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import BadUpdate, BrokenMetadata, RequirementFailed
from sterna.serving.rest_catalog.requirements import check_requirements
from tests.support import metadata_commits as commits
from tests.support.metadata_commits import table, view

Document = dict[str, Any]
FULFILLED: tuple[Document, ...] = (
    {"type": "assert-table-uuid", "uuid": commits.UUID.upper()},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
    {"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": 1},
    {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "audit"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "ASSERT-DEFAULT-SORT-ORDER-ID", "default-sort-order-id": 0},
)
FAILED: tuple[tuple[Document, str], ...] = (
    ({"type": "assert-create"}, "^Requirement failed: table already exists"),
    ({"type": "assert-table-uuid", "uuid": commits.VIEW_UUID}, "UUID does not match: .* it is 9c12d441"),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        "branch main has changed: expected id 1, and it is 2",
    ),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, "branch main was created concurrently"),
    (
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 1},
        "branch or tag audit is missing, expected 1",
    ),
    (
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 4},
        "last assigned field id changed: expected id 4, and it is 3",
    ),
    (
        {"type": "assert-current-schema-id", "current-schema-id": 1},
        "current schema changed: expected id 1, and it is 0",
    ),
    (
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
        "last assigned partition id changed",
    ),
    ({"type": "assert-default-spec-id", "default-spec-id": 1}, "default partition spec changed"),
    ({"type": "assert-default-sort-order-id", "default-sort-order-id": 1}, "default sort order changed"),
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_fulfilled(version: int) -> None:
    metadata, requirements = table(version), list(FULFILLED)
    before = copy.deepcopy((metadata, requirements))
    check_requirements(metadata, requirements)
    assert (metadata, requirements) == before


@pytest.mark.parametrize(("requirement", "message"), FAILED)
def test_what_is_not(requirement: Document, message: str) -> None:
    with pytest.raises(RequirementFailed, match=message):
        check_requirements(
            table(2), [FULFILLED[0], requirement] if requirement["type"] != "assert-create" else [requirement]
        )


def test_version_1_has_what_its_first_writers_left_out() -> None:
    metadata = table(1)
    for name in ("refs", "last-partition-id", "sort-orders", "default-sort-order-id", "schemas", "current-schema-id"):
        del metadata[name]
    check_requirements(metadata, [FULFILLED[1], *FULFILLED[6:]])


def test_a_table_that_is_not_there() -> None:
    check_requirements(None, [{"type": "assert-create"}])
    check_requirements(None, [])
    with pytest.raises(RequirementFailed, match="none of that name"):
        check_requirements(None, [FULFILLED[0]])


def test_a_table_that_is_made_has_no_other_requirement() -> None:
    with pytest.raises(BadUpdate, match="the only requirement"):
        check_requirements(None, [{"type": "assert-create"}, FULFILLED[0]])


def test_views() -> None:
    check_requirements(view(), [{"type": "assert-view-uuid", "uuid": commits.VIEW_UUID.upper()}])
    with pytest.raises(RequirementFailed, match=r"^Requirement failed: UUID does not match"):
        check_requirements(view(), [{"type": "assert-view-uuid", "uuid": commits.UUID}])
    with pytest.raises(BadUpdate, match="no requirement of a view"):
        check_requirements(view(), [FULFILLED[0]])
    with pytest.raises(BadUpdate, match="no requirement of a table"):
        check_requirements(table(2), [{"type": "assert-view-uuid", "uuid": commits.UUID}])


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"type": "assert-weather"}, "requirement 1: there is none of type assert-weather"),
        ({}, "requirement 1: type is missing"),
        ("assert-create", "requirement 1: it is a string"),
        ({"type": "assert-table-uuid"}, "assert-table-uuid: uuid is missing"),
        ({"type": "assert-default-spec-id", "default-spec-id": "0"}, "default-spec-id is a string"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": True}, "snapshot-id is a boolean"),
    ],
)
def test_what_is_malformed_or_unknown(requirement: Any, message: str) -> None:
    with pytest.raises(BadUpdate, match=message):
        check_requirements(table(2), [requirement])


def test_requirements_that_are_no_array() -> None:
    with pytest.raises(BadUpdate, match="requirements is null"):
        check_requirements(table(2), None)  # type: ignore[arg-type]


def test_metadata_of_mains_that_is_broken() -> None:
    with pytest.raises(BrokenMetadata, match="last-column-id"):
        check_requirements({**table(2), "last-column-id": None}, [FULFILLED[0]])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    requirement=st.sampled_from(FULFILLED),
    odd=st.sampled_from((None, True, 1.5, "x", [], {}, 1 << 70)),
    choice=st.data(),
)
def test_whatever_a_client_demands_is_answered(requirement: Document, odd: object, choice: st.DataObject) -> None:
    name = choice.draw(st.sampled_from(sorted(requirement)))
    try:
        check_requirements(table(2), [{**requirement, name: odd}])
    except (BadUpdate, RequirementFailed) as error:
        assert error.message
