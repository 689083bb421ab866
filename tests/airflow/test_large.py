"""A large copy in a real Airflow: the DAG of its own brings it, and meanwhile other tables are published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from sterna.replication.replica.head import read_head
from tests.airflow.conftest import World

LARGE = "sterna_large"
_BYTES = 100_000


@pytest.fixture
def lanes(world: World) -> Iterator[None]:
    """Eu leaves to the large lane what is larger than some kilobytes."""
    world.wait_until_idle()
    before = world.stage.registry.read_text()
    document = yaml.safe_load(before)
    for region in document["regions"]:
        region["bulk_copy_threshold"] = _BYTES
    world.stage.registry.write_text(yaml.safe_dump(document))
    yield
    world.stage.registry.write_text(before)


def published(world: World) -> bool:
    head, main = read_head(world.context.catalog, "main_replica_eu"), world.context.catalog.reference("main").hash
    return head.watermark == main


def in_transit(world: World) -> list[str]:
    return [item.key for item in read_head(world.context.catalog, "main_replica_eu").held if item.in_transit]


def copying(world: World) -> bool:
    return [run["state"] for run in world.runs(LARGE)][:1] == ["running"]


def test_a_large_copy_is_brought_by_its_own_dag_and_holds_up_nobody(world: World, lanes: None) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS dag_eu.home")
    world.sql("CREATE TABLE dag_eu.home.small USING iceberg AS SELECT id FROM range(10)")
    world.wait_until("the small table", lambda: published(world))
    hangs = world.folder / "hangs"
    (world.folder / "hung").unlink(missing_ok=True)
    hangs.touch()
    try:
        world.sql("CREATE TABLE dag_us.shop.large USING iceberg AS SELECT id, uuid() AS name FROM range(20000)")
        world.wait_until("a copy that hangs", (world.folder / "hung").exists)
        world.wait_until("a table in transit", lambda: in_transit(world) == ["shop.large"])
        # This table's files lie in eu: whatever hangs in rclone is the large copy.
        world.sql("INSERT INTO dag_eu.home.small SELECT id FROM range(10, 20)")
        world.wait_until("the small table", lambda: published(world))
        assert world.sql("SELECT count(*) FROM dag_replica.home.small") == [(20,)]
        assert copying(world) and in_transit(world) == ["shop.large"]
    finally:
        hangs.unlink()
        (world.folder / "hung").unlink(missing_ok=True)
    world.wait_until("the large table", lambda: not in_transit(world) and published(world))
    assert world.sql("SELECT count(*), count(DISTINCT name) FROM dag_replica.shop.large") == [(20_000, 20_000)]
    assert [run["state"] for run in world.runs(LARGE) if run["state"] == "failed"] == []
    for table in ("dag_us.shop.large", "dag_eu.home.small"):
        world.sql(f"DROP TABLE {table}")
    world.wait_until("their end", lambda: published(world))
