"""What becomes of a metadata.json on its way to a client."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sterna.config.sections.model import Services
from sterna.errors import BrokenMetadata
from sterna.serving.rest_catalog.reader import (
    ReplicaCatalog,
    open_replica_catalog,
    served_body,
    with_referenced_snapshots,
)
from tests.support.small_world import World, make_world


@pytest.fixture
def catalog(tmp_path: Path) -> ReplicaCatalog:
    world = make_world(tmp_path)
    return open_replica_catalog(world.context(), services(world))


def services(world: World) -> Services:
    return Services.model_validate({"catalog": {"regions": {"eu": {"location": f"file://{world.folder}/eu/lake"}}}})


def put(catalog: ReplicaCatalog, text: str, name: str = "0.metadata.json") -> str:
    folder = Path(catalog.settings.location.removeprefix("file://"))
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if ".gz." in name else content)
    return f"file://{folder}/{name}"


@pytest.mark.parametrize("name", ["0.metadata.json", "0.gz.metadata.json"])
def test_numbers_and_texts_are_carried_exactly(catalog: ReplicaCatalog, name: str) -> None:
    text = (
        f'{{"location":"{catalog.settings.location}/t","last-updated-ms":9223372036854775807,'
        r'"properties":{"a":"\ud800 木 \u0000"},"odd":[1.5e300,-0.0,null]}'
    )
    body = served_body(catalog.read_table(put(catalog, text, name)).body())
    metadata = json.loads(body.content)["metadata"]
    expected = json.loads(text)
    assert metadata == {**expected, "properties": {**expected["properties"], "gc.enabled": "false"}}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a":1,"a":2}', '{"a":NaN}', '"x"', "[" * 100_000])
def test_what_is_no_metadata_is_refused_with_its_name(catalog: ReplicaCatalog, text: str) -> None:
    uri = put(catalog, text)
    with pytest.raises(BrokenMetadata) as raised:
        catalog.read_table(uri)
    assert raised.value.file == uri


def test_snapshots_that_a_ref_names_or_that_are_current() -> None:
    snapshots = [{"snapshot-id": number} for number in range(5)]
    metadata = {"snapshots": snapshots, "refs": {"main": {"snapshot-id": 3}, "tag": {"snapshot-id": 1}}, "x": 1}
    assert with_referenced_snapshots({**metadata, "current-snapshot-id": 4}) == {
        **metadata,
        "current-snapshot-id": 4,
        "snapshots": [snapshots[1], snapshots[3], snapshots[4]],
    }
    assert with_referenced_snapshots({"format-version": 1}) == {"format-version": 1, "snapshots": []}


def test_an_etag_is_that_of_all_bytes() -> None:
    first, second = served_body({"a": 1}), served_body({"a": 2})
    assert first.etag != second.etag and first.etag == served_body({"a": 1}).etag
    assert first.etag.startswith('"') and first.etag.endswith('"')
