"""A table that names files below a replica root while its own metadata lies elsewhere (after a promotion with
tables).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from sterna.errors import Unsupported
from sterna.replication.plan.manifests import require_outside_replicas
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT
from sterna.replication.replica.region import RegionContext
from tests.unit.config import samples

CONTEXT = cast(RegionContext, SimpleNamespace(registry=samples.registry()))
EU, US = "s3://eu-bucket/replica", "s3://us-bucket/replica"


def check(metadata: str, *sources: str, local: tuple[str, ...] = ()) -> None:
    require_outside_replicas(
        CONTEXT, metadata, listing.rows("t", CONTENT, [(source, "s3://somewhere/x", 1) for source in sources], 0), local
    )


@pytest.mark.parametrize("below", [f"{EU}/us/t/x", f"{US}/eu/t/x"])
def test_one_that_lies_in_a_location_may_name_nothing_below_any_root(below: str) -> None:
    """Here it would be one with its origin, and the region whose root it is could delete it."""
    check("s3://us-bucket/t/m.json", "s3://us-bucket/t/x", f"{EU}2/x")
    with pytest.raises(Unsupported, match="rewrite it"):
        check("s3://us-bucket/t/m.json", "s3://us-bucket/t/x", below)
    with pytest.raises(Unsupported) as held:
        check("s3://us-bucket/t/m.json", local=("s3://us-bucket/t/x", below))
    assert held.value.file == below


def test_one_that_lies_below_a_root_may_name_what_is_below_the_same() -> None:
    check(f"{EU}/us/t/m.json", f"{EU}/us/t/x", "s3://us-bucket/t/x")
    with pytest.raises(Unsupported):
        check(f"{EU}/us/t/m.json", f"{US}/us/t/x")
