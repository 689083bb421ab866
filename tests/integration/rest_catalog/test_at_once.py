"""Writers by the addresses of two regions and natively, all at once: what was acknowledged is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import pyarrow as pa
import pytest

from tests.integration.rest_catalog.conftest import SPARK_CATALOG, US_CATALOG, Address
from tests.support.world import World, merge_on_read

_ROUNDS = 8  # of each writer


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("rest_at_once") as name:
        yield name


class Writer:
    """Changes rows of its own ids, and keeps what was acknowledged.

    Args:
        number: its ids have this remainder.
        writers: how many there are.
        write: carries out a change, which it gets as its kind and the ids.
    """

    def __init__(self, number: int, writers: int, write: Callable[[str, list[int]], None]) -> None:
        self.rows: set[int] = set()
        self.uncertain: set[int] = set()
        self._rng = Random(number)
        self._ids = count(number, writers)
        self._write = write

    def work(self) -> None:
        """Append and delete, some rows at a time."""
        for _ in range(_ROUNDS):
            certain = sorted(self.rows - self.uncertain)
            kind = "delete" if len(certain) > 4 and self._rng.random() < 0.4 else "append"
            ids = self._rng.sample(certain, 2) if kind == "delete" else [next(self._ids) for _ in range(3)]
            try:
                self._write(kind, ids)
            except Exception as error:  # noqa: BLE001 - Iceberg gives up where others are in the way too often
                print(f"{kind} {ids}: {type(error).__name__}: {str(error)[:300]}")
                self.uncertain |= set(ids)
                continue
            self.rows = self.rows - set(ids) if kind == "delete" else self.rows | set(ids)


def by_spark(world: World, table: str) -> Callable[[str, list[int]], None]:
    def write(kind: str, ids: list[int]) -> None:
        if kind == "delete":
            world.sql(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})")
        else:
            world.sql(f"INSERT INTO {table} VALUES {', '.join(f'({number})' for number in ids)}")

    return write


def by_pyiceberg(address: Address, table: str) -> Callable[[str, list[int]], None]:
    def write(kind: str, ids: list[int]) -> None:
        loaded = address.pyiceberg().load_table(table)
        if kind == "delete":
            loaded.delete(f"id in ({', '.join(map(str, ids))})")
        else:
            loaded.append(pa.table({"id": pa.array(ids, pa.int64())}))

    return write


@pytest.mark.rare
@pytest.mark.parametrize("version", [2, 3])
def test_writers_by_addresses_and_natively_at_once(
    address: Address, address_us: Address, ns: str, version: int
) -> None:
    """What was acknowledged is there once, whoever else wrote at that moment."""
    world, table = address.world, f"{ns}.v{version}"
    world.sql(f"CREATE TABLE main_us.{table} (id BIGINT) USING iceberg {merge_on_read(version)}")
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ('commit.retry.num-retries'='20')")
    for region in world.stage.regions:
        world.sync(region)
    writes = [by_spark(world, f"{catalog}.{table}") for catalog in ("main_us", SPARK_CATALOG, US_CATALOG)]
    writes += [by_pyiceberg(address, table)] if version == 2 else []
    writers = [Writer(number, len(writes), write) for number, write in enumerate(writes)]
    with ThreadPoolExecutor(len(writers)) as pool:
        for future in [pool.submit(writer.work) for writer in writers]:
            future.result()
    wanted = Counter(id for writer in writers for id in writer.rows - writer.uncertain)
    uncertain = {id for writer in writers for id in writer.uncertain}
    print(f"v{version}: {len(wanted)} rows, {len(uncertain)} uncertain")
    assert all(writer.rows for writer in writers)
    for region in world.stage.regions:
        assert world.sync(region).held == ()
    for catalog in ("main_us", SPARK_CATALOG, US_CATALOG, "replica_eu", "replica_us"):
        rows = Counter(row[0] for row in world.sql(f"SELECT id FROM {catalog}.{table}"))
        assert max(rows.values()) == 1
        assert Counter(id for id in rows.elements() if id not in uncertain) == wanted, catalog
    world.assert_equal(table, pyiceberg=version == 2)
