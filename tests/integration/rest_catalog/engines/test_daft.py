"""Daft, unmodified, writes by eu's address through PyIceberg: to tables of us and of eu. It reads replicas."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rest_catalog.comparison import make
from tests.integration.rest_catalog.conftest import Address
from tests.integration.rest_catalog.engines.answers import assert_replicas_are_read, compare
from tests.support import daft_statements
from tests.support.foreign_readers import engines_python
from tests.support.strangers import NAMESPACE as OTHERS
from tests.support.world import World, pyiceberg_properties

NAMESPACE = "rest_daft"
Run = Callable[..., list[list[Any]]]


@pytest.fixture(scope="module")
def daft(address: Address) -> Run:
    """Runs a request in a Daft of its own, and returns the table's rows."""
    store = pyiceberg_properties(address.world.stage.endpoints["eu"])
    program = Path(daft_statements.__file__)
    # It asks where no one answers, otherwise.
    environment = {**os.environ, "DAFT_ANALYTICS_ENABLED": "0", "DO_NOT_TRACK": "true"}

    def run(**request: Any) -> list[list[Any]]:
        text = json.dumps({"uri": address.url, "store": store, **request})
        command = [engines_python(program.with_name("daft.lock")), program]
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    return run


def some_rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": "daft"} for number in ids]


@pytest.mark.parametrize("region", ["us", "eu"])
def test_daft_writes_rows(address: Address, ns: str, daft: Run, region: str) -> None:
    world = address.world
    table = make(world, f"of_{region}", 2, region, ns)
    assert len(daft(table=table)) == 30
    assert len(daft(table=table, rows=some_rows(100, 101), mode="append")) == 32
    assert len(compare(world, table, region)) == 32
    assert daft(table=table, rows=some_rows(7), mode="overwrite") == [[7, "daft"]]
    assert compare(world, table, region) == [(7, "daft")]


def test_daft_reads_a_table_of_version_3_and_refuses_to_write_it(address: Address, ns: str, daft: Run) -> None:
    table = make(address.world, "v3", 3, namespace=ns)
    assert len(daft(table=table)) == 30
    with pytest.raises(RuntimeError, match="Cannot write manifest for table version: 3"):
        daft(table=table, rows=some_rows(100), mode="append")
    assert len(compare(address.world, table)) == 30


_NO_EQUALITY = "PyIceberg does not yet support equality deletes"  # Daft asks PyIceberg for the plan
_REFUSED = {
    "flink_upsert": _NO_EQUALITY,
    "go_equality": _NO_EQUALITY,
    # It takes a deletion vector's file for one of Parquet.
    "spark_vectors": "is not a valid parquet file",
}


def test_daft_reads_replicas(replicated: World, daft: Run) -> None:
    entries = replicated.replica()

    def read_file(table: str) -> list[list[Any]]:
        return daft(location=entries[f"{OTHERS}.{table}"].metadata_location)

    assert_replicas_are_read(replicated, read_file, _REFUSED)


def test_daft_reads_replicas_by_the_address(replicated: World, daft: Run) -> None:
    assert_replicas_are_read(replicated, lambda table: daft(table=f"{OTHERS}.{table}"), _REFUSED)
