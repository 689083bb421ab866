"""Update actions, new tables, views and requirements: Iceberg's Java code makes the same metadata of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sterna.errors import BadUpdate, RequirementFailed, StaleBase
from sterna.serving.rest_catalog.metadata_updates import apply_table_updates, new_table_metadata
from sterna.serving.rest_catalog.new_tables import create_table_metadata
from sterna.serving.rest_catalog.requirements import check_requirements
from sterna.serving.rest_catalog.view_updates import apply_view_updates
from tests.support import metadata_commits as commits
from tests.support.java_metadata import JavaMetadata, Refused, comparable
from tests.support.metadata_commits import START_MS, append_updates, create_updates, resolved

NOW_MS = START_MS + 1000
JAVA_FAULTS = ("arraySize cannot be negative",)
"""What Java throws by mistake: for more snapshots to remove than there are."""


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> JavaMetadata:
    return JavaMetadata(spark)


def outcome(run: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """Return the metadata that one of the two made, or that it refused."""
    try:
        return comparable(run())
    except (BadUpdate, StaleBase, Refused) as error:
        return f"refused: {error}"


def is_lost_by_java(updates: list[dict[str, Any]]) -> bool:
    """Return whether schemas or specs are added or made current after others were removed.

    Java's builder leaves those that it removed in its index, and then takes them for present.
    """
    actions = [update["action"] for update in updates]
    removed = [at for at, action in enumerate(actions) if action in ("remove-schemas", "remove-partition-specs")]
    return bool(removed) and any("schema" in action or "spec" in action for action in actions[removed[0] + 1 :])


Document = dict[str, Any]


def require_agreement(java: JavaMetadata, metadata: Document, updates: list[Document]) -> Document:
    before = copy.deepcopy((metadata, updates))
    ours = outcome(lambda: apply_table_updates(metadata, updates, NOW_MS))
    assert (metadata, updates) == before
    if is_lost_by_java(updates):
        return metadata
    javas = outcome(lambda: java.table(metadata, updates))
    if isinstance(javas, str) and any(fault in javas for fault in JAVA_FAULTS) and not isinstance(ours, str):
        return apply_table_updates(metadata, updates, NOW_MS)
    if isinstance(ours, str) or isinstance(javas, str):
        assert isinstance(ours, str) and isinstance(javas, str), f"ours: {ours}\n java: {javas}\n {updates}"
        return metadata
    assert ours == javas
    return apply_table_updates(metadata, updates, NOW_MS)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("table_order", commits.ORDERS[:4])
@pytest.mark.parametrize("table_spec", [commits.SPECS[at] for at in (0, 1, 5, 8)])
def test_a_table_is_made_as_engines_stage_it(
    java: JavaMetadata, version: int, table_spec: dict[str, Any], table_order: dict[str, Any]
) -> None:
    updates = create_updates(version, table_spec=table_spec, table_order=table_order)
    ours = new_table_metadata(updates, NOW_MS)
    assert comparable(ours) == comparable(java.new_table(updates, version))
    with_rows = [*updates, *append_updates(ours, 1)]
    assert outcome(lambda: new_table_metadata(with_rows, NOW_MS)) == outcome(lambda: java.new_table(with_rows, version))


HISTORIES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@HISTORIES
@given(version=st.sampled_from((1, 2, 3)), history=commits.COMMITS)
def test_histories_of_commits(java: JavaMetadata, version: int, history: list[list[dict[str, Any]]]) -> None:
    metadata = new_table_metadata(create_updates(version), NOW_MS)
    for commit in history:
        metadata = require_agreement(java, metadata, resolved(metadata, commit))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "updates",
    [
        [{"action": "upgrade-format-version", "format-version": 3}],
        [{"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch"}],  # rolled back
        [{"action": "remove-snapshots", "snapshot-ids": [1]}],
        [{"action": "remove-snapshots", "snapshot-ids": [2]}],
        [{"action": "remove-snapshots", "snapshot-ids": [1, 2]}],
        [{"action": "remove-snapshot-ref", "ref-name": "main"}],
        [{"action": "set-properties", "updated": {"a": "b"}}, {"action": "remove-properties", "removed": ["owner"]}],
        [{"action": "SET-PROPERTIES", "updates": {"a": "b"}, "updated": {"c": "d"}}],
        [{"action": "add-spec", "spec": commits.spec(("ts_hour", "HOUR", 2, 1001))}],
        [
            {"action": "add-schema", "schema": commits.schema(commits.ID, {**commits.TS, "doc": None}, commits.PRICE)},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    ],
)
def test_a_table_that_has_a_history(java: JavaMetadata, version: int, updates: list[Document]) -> None:
    require_agreement(java, commits.table(version), updates)


def test_version_1_as_its_first_writers_left_it(java: JavaMetadata) -> None:
    metadata = commits.table(1)
    for name in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "refs"):
        del metadata[name]
    for name in ("sort-orders", "default-sort-order-id", "table-uuid", "statistics", "partition-statistics"):
        del metadata[name]
    metadata["schema"] = {name: part for name, part in commits.BASE_SCHEMA.items() if name != "schema-id"}
    metadata["partition-spec"] = commits.spec(("ts_day", "day", 2, None))["fields"]
    require_agreement(java, metadata, [{"action": "set-properties", "updates": {"a": "b"}}])
    assigned = [
        {"action": "assign-uuid", "uuid": commits.UUID},
        {"action": "upgrade-format-version", "format-version": 2},
    ]
    require_agreement(java, metadata, assigned)
    require_agreement(java, metadata, assigned[1:])


@pytest.mark.parametrize("version", ["1", "2", "3", "4", "x"])
@pytest.mark.parametrize(
    ("table_schema", "table_spec", "table_order"),
    [
        (commits.BASE_SCHEMA, None, None),
        (commits.SCHEMAS[1], commits.SPECS[2], commits.ORDERS[2]),
        (
            commits.schema(commits.NOTES, commits.TAGS, commits.PLACE, commits.ID, **{"identifier-field-ids": [1]}),
            None,
            None,
        ),
        (commits.SCHEMAS[2], commits.SPECS[6], commits.ORDERS[3]),
        (commits.SCHEMAS[7], commits.SPECS[4], None),
        (commits.BASE_SCHEMA, commits.SPECS[6], None),
    ],
)
def test_a_table_is_made_by_one_request(
    java: JavaMetadata, version: str, table_schema: Document, table_spec: Document | None, table_order: Document | None
) -> None:
    request: Document = {
        "name": "orders",
        "schema": table_schema,
        "properties": {"format-version": version, "uuid": "x", "owner": "shop"},
    }
    request |= {"partition-spec": table_spec} if table_spec else {}
    request |= {"write-order": table_order} if table_order else {}
    before = copy.deepcopy(request)
    ours = outcome(lambda: create_table_metadata(request, f"{commits.LOCATION}/", NOW_MS))
    assert request == before
    if version == "4":  # Java's next version has it
        assert isinstance(ours, str)
        return
    javas = outcome(lambda: java.created_table(request, f"{commits.LOCATION}/"))
    if isinstance(ours, str) or isinstance(javas, str):
        assert isinstance(ours, str) and isinstance(javas, str), (ours, javas)
        return
    assert len(ours.pop("table-uuid")) == len(javas.pop("table-uuid"))
    assert ours == javas


@HISTORIES
@given(history=commits.VIEW_COMMITS)
def test_histories_of_views(java: JavaMetadata, history: list[list[Document]]) -> None:
    metadata = commits.view()
    for updates in history:
        before = copy.deepcopy((metadata, updates))
        base = metadata
        ours = outcome(lambda: apply_view_updates(base, updates, NOW_MS))  # noqa: B023
        javas = outcome(lambda: java.view(base, updates))  # noqa: B023
        assert (metadata, updates) == before
        if isinstance(ours, str) or isinstance(javas, str):
            assert isinstance(ours, str) and isinstance(javas, str), f"ours: {ours}\n java: {javas}\n {updates}"
            continue
        assert ours == javas
        metadata = apply_view_updates(base, updates, NOW_MS)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "requirement",
    [
        *(
            {"type": "assert-table-uuid", "uuid": text}
            for text in (commits.UUID, commits.UUID.upper(), commits.VIEW_UUID)
        ),
        *(
            {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}
            for ref in ("main", "v1", "audit")
            for snapshot_id in (None, 1, 2)
        ),
        *({"type": "assert-last-assigned-field-id", "last-assigned-field-id": number} for number in (3, 4)),
        *({"type": "assert-current-schema-id", "current-schema-id": number} for number in (0, 1)),
        *(
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": number}
            for number in (1000, 999)
        ),
        *({"type": "assert-default-spec-id", "default-spec-id": number} for number in (0, 1)),
        *({"type": "Assert-Default-Sort-Order-Id", "default-sort-order-id": number} for number in (0, 1)),
        {"type": "assert-create"},
    ],
)
def test_requirements(java: JavaMetadata, version: int, requirement: Document) -> None:
    metadata = commits.table(version)
    try:
        check_requirements(metadata, [requirement])
        ours = True
    except RequirementFailed:
        ours = False
    assert ours is java.fulfils(metadata, requirement)
