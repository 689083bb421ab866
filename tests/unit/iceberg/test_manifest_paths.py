"""The three ways through a manifest, held against each other on generated files.

Plain walk, compiled walk, whole records.
"""

import random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.iceberg.avro import container as avro
from sterna.iceberg.avro import locate
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.avro.program import NotWalkable, compile_schema
from sterna.iceberg.manifests import records as manifest_records
from sterna.iceberg.manifests import spans as manifest_spans
from sterna.iceberg.manifests.entry import over_columns
from sterna.iceberg.manifests.fields import DATA_FILE, ENTRY_FIELDS
from sterna.iceberg.manifests.manifest import localize_manifest, read_entries, scan_manifest
from tests.unit.iceberg.avro_files import CODECS, decode
from tests.unit.iceberg.manifest_cases import MAPPING, data_manifests, manifests

DATA_FILES = st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(CODECS)).flatmap(lambda kind: data_manifests(*kind))
FILES = (
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(CODECS))
    .flatmap(lambda kind: manifests(*kind))
    .map(lambda files: files[0])
)


@pytest.fixture(scope="module", params=["plain", "compiled"])
def walked(request: pytest.FixtureRequest):
    """The walk, run as plain Python or compiled, one block group at a time so that groups are crossed too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "should_compile", lambda *_: request.param == "compiled")
        patch.setattr(avro, "GROUP_BYTES", 600)
        yield


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(FILES)
def test_the_walk_and_the_general_path_agree(walked: None, data: bytes):
    container = open_container(data, "uri")
    fast, slow = manifest_spans.localize(container, MAPPING), manifest_records.localize(container, MAPPING)
    assert (fast is None) == (slow is None)
    if fast is not None and slow is not None:
        assert decode(fast) == decode(slow)
        assert decode(fast)[0] == decode(data)[0]
    quick = [row for columns in manifest_spans.read_columns(container) for row in rows(columns)]
    assert quick == [row for columns in manifest_records.read_columns(container) for row in rows(columns)]


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(FILES | DATA_FILES)
def test_one_walk_gives_what_reading_and_localizing_give(walked: None, data: bytes):
    scanned = scan_manifest(data, "uri", map_content=over_columns(MAPPING.map_content))
    entries = read_entries(data, "uri")
    if scanned is None:
        spans = [row for columns in manifest_spans.read_columns(open_container(data, "uri")) for row in rows(columns)]
        assert any(content.as_py() == 1 or refers.as_py() for _, content, *_, refers in spans)
        return
    paths = entries.column("file_path").to_pylist()
    assert scanned.entries.select(entries.column_names).to_pylist() == entries.to_pylist()
    assert scanned.entries.column("target").to_pylist() == [MAPPING.map_content(path) for path in paths]
    mapping = {"map_content": MAPPING.map_content, "deletes": {}, "map_deleted_deletes": MAPPING.map_deleted_deletes}
    assert scanned.localized == localize_manifest(data, "uri", **mapping)
    with patch.object(manifest_spans, "compile_walk", side_effect=NotWalkable):
        general = scan_manifest(data, "uri", map_content=over_columns(MAPPING.map_content))
    assert general is not None
    assert general.entries.to_pylist() == scanned.entries.to_pylist()
    assert (general.localized is None) == (scanned.localized is None)
    if general.localized is not None and scanned.localized is not None:
        assert decode(general.localized) == decode(scanned.localized)


@pytest.mark.long
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(FILES, st.integers(0, 2**32))
def test_both_walks_see_the_same_in_damaged_records(data: bytes, seed: int):
    container = open_container(data, "uri")
    program = compile_schema(
        container.schema,
        {None: ENTRY_FIELDS, DATA_FILE: manifest_spans.ids.FILE_FIELDS},
        {DATA_FILE: "data_file"},
        "uri",
    )
    rng = random.Random(seed)
    for group in container.groups():
        damaged = bytearray(group.data)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        group = avro.Group(group.blocks, bytes(damaged), group.bounds)
        blocks = [
            word
            for block, ends in zip(group.blocks, zip(group.bounds, group.bounds[1:], strict=False), strict=True)
            for word in (block.count, *ends)
        ]
        plain = [-1] * program.width * group.records
        wrong = locate.walk(group.data, program.code, blocks, [0] * 40, group.records, plain)
        cells, compiled_wrong = locate.run_compiled(program, group, blocks, len(plain))
        assert (wrong, plain) == (compiled_wrong, cells.tolist())


def rows(columns: Any) -> list[tuple[Any, ...]]:
    return list(zip(*vars(columns).values(), strict=True))
