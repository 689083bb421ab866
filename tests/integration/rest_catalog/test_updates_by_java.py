"""Update actions, new tables, views and requirements: Iceberg's Java code makes the same metadata of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sterna.errors import BadUpdate, StaleBase
from sterna.serving.rest_catalog.metadata_updates import apply_table_updates, new_table_metadata
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


def require_agreement(java: JavaMetadata, metadata: dict[str, Any], updates: list[dict[str, Any]]) -> dict[str, Any]:
    before = copy.deepcopy((metadata, updates))
    ours = outcome(lambda: apply_table_updates(metadata, updates, NOW_MS))
    assert (metadata, updates) == before
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


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(version=st.sampled_from((1, 2, 3)), history=commits.COMMITS)
def test_histories_of_commits(java: JavaMetadata, version: int, history: list[list[dict[str, Any]]]) -> None:
    metadata = new_table_metadata(create_updates(version), NOW_MS)
    for commit in history:
        metadata = require_agreement(java, metadata, resolved(metadata, commit))
