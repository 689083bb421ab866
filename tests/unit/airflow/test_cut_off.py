"""A region whose primary is dark: the watcher does not need it, and a failing run is repeated with growing pauses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import RetryAction

from sterna.airflow import triggers
from sterna.airflow.retry import RemedyRetryPolicy
from sterna.catalog.model import Unchanged
from sterna.errors import CatalogUnreachable, SternaError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.planner import make_plan
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import with_ports

# Nobody listens at port 1.
_REGION = """
  - name: {name}
    replica_root: s3://{name}/replica
    catalog:
      read: http://127.0.0.1:1/api/v2
      database: {{hosts: ["127.0.0.1:1"], credential_id: catalog}}
"""
_LOCATION = """
  - {{id: {name}, prefix: "s3://{name}", region: {name}, remote: {{type: s3}}}}
"""


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> triggers.RegionPoller:
    """The watcher of eu: its own copy answers, and no Postgres does."""
    monkeypatch.setenv("AIRFLOW_CONN_CATALOG", '{"conn_type": "postgres", "login": "a", "password": "b"}')
    parts = ["".join(part.format(name=name) for name in ("us", "eu")) for part in (_REGION, _LOCATION)]
    registry = tmp_path / "registry.yaml"
    registry.write_text(f"version: 1\nregions:{parts[0]}locations:{parts[1]}")
    watch = triggers.RegionPoller("eu", str(registry))
    watch.context = with_ports(watch.context, catalog=InMemoryCatalog())
    return watch


def test_the_watcher_looks_at_the_regions_own_copy_alone(watch: triggers.RegionPoller) -> None:
    copy = watch.context.catalog
    assert (watch.head(), watch.watermark()) == (copy.no_ancestor(), "")
    head = copy.commit("main", copy.no_ancestor(), [Unchanged(("x",))], "from the primary", {})
    assert watch.head() == head


def test_a_plan_without_the_primary_is_repeated_with_growing_pauses(watch: triggers.RegionPoller) -> None:
    policy, failures = RemedyRetryPolicy(), []
    for number in (1, 2, 3):
        with pytest.raises(SternaError) as caught:
            make_plan(watch.context, SyncOptions(), lambda line: None)
        failures.append(policy.evaluate(caught.value, number, 5))
        assert isinstance(caught.value, CatalogUnreachable)
    assert [failure.action for failure in failures] == [RetryAction.RETRY] * 3
    assert [failure.retry_delay for failure in failures] == [timedelta(seconds=seconds) for seconds in (5, 10, 20)]
