"""The log of earlier metadata.json that clients see: of this region, and with what a clean-up of theirs must keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from tests.support.rest_address import read_json
from tests.support.small_world import World, run

PROPERTIES = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}


def served(address: httpx.Client, name: str) -> list[str]:
    metadata = address.get(f"/v1/namespaces/ns/tables/{name}").json()["metadata"]
    return [entry["metadata-file"] for entry in metadata["metadata-log"]]


def on_main(world: World, name: str) -> tuple[str, list[str]]:
    """Return the URI of the metadata.json, and its log."""
    key = ("ns", name)
    uri = world.catalog.contents("main", world.catalog.reference("main").hash, [key])[key].metadata_location or ""
    return uri, [entry["metadata-file"] for entry in read_json(uri)["metadata-log"]]


def test_a_table_of_this_region_shows_the_log_of_main_and_the_file_of_another_writer(
    world: World, address: httpx.Client
) -> None:
    columns = pa.schema([("id", pa.int64())])
    table = world.writer.create_table(("ns", "own"), columns, location=f"file://{world.folder}/eu/lake/own")
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    world.commit(own=table.metadata_location)
    run(world)
    uri, log = on_main(world, "own")
    assert len(log) == 1
    # Trino's and iceberg-go's clean-up take what stands nowhere in the metadata for garbage.
    assert served(address, "own") == [*log, uri]
    assert read_json(world.replica()["ns.own"].metadata_location or "")["metadata-log"] == []
    assert address.post("/v1/namespaces/ns/tables/own", json=PROPERTIES).status_code == 200
    later, log = on_main(world, "own")
    assert log[-1] == uri and "/_sterna/rest/" in later
    assert served(address, "own") == log


def test_a_table_of_another_region_shows_no_file_of_that_region(world: World, address: httpx.Client) -> None:
    world.commit(t=world.write("t"))
    run(world)
    assert served(address, "t") == []
    for value in ("1", "2"):
        change: dict[str, Any] = {"action": "set-properties", "updates": {"a": value}}
        assert address.post("/v1/namespaces/ns/tables/t", json={**PROPERTIES, "updates": [change]}).status_code == 200
    log = on_main(world, "t")[1]
    assert len(log) == 3
    assert served(address, "t") == log[-1:] and "/eu/lake/_sterna/rest/" in log[-1]


def test_a_metadata_file_that_is_gone_leaves_the_table_readable(world: World, address: httpx.Client) -> None:
    columns = pa.schema([("id", pa.int64())])
    table = world.writer.create_table(("ns", "own"), columns, location=f"file://{world.folder}/eu/lake/own")
    world.commit(own=table.metadata_location)
    run(world)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    assert served(address, "own") == []
