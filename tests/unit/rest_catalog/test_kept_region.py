"""A region that is kept open finds the primary of a failover."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.config.registry.model import Region
from sterna.postgres import term
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.kept_region import KeptRegion
from tests.support.small_world import make_world, no_secrets, with_registry


def test_the_primary_is_looked_up_again_once_the_region_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    regions = [
        {
            **region.model_dump(mode="json"),
            "catalog": {
                "read": f"http://127.0.0.1:1/{region.name}",
                "write": f"http://127.0.0.1:1/{region.name}",
                "database": {"hosts": ["127.0.0.1:1"], "credential_id": "pg"},
            },
        }
        for region in world.registry.regions
    ]
    registry = with_registry(world, regions=regions).registry
    primaries = ["us", "eu"]

    def find_primary(*_: object) -> Region:
        return registry.region(primaries[0])

    monkeypatch.setattr(term, "find_primary", find_primary)
    kept = KeptRegion(RegionContext.of(registry, registry.region("eu"), no_secrets))
    before = kept()
    assert not before.ports.reads_primary
    primaries.reverse()
    assert kept() is before and not kept().ports.reads_primary
    kept.renew()
    assert kept().ports.reads_primary
    assert kept().mapping is before.mapping
