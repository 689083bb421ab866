"""The three ways through a manifest, held against each other on generated files.

Plain walk, compiled walk, whole records.
"""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.iceberg.avro import container as avro
from sterna.iceberg.avro import locate
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.avro.program import compile_schema
from sterna.iceberg.manifests import records as manifest_records
from sterna.iceberg.manifests import spans as manifest_spans
from sterna.iceberg.manifests.fields import DATA_FILE, ENTRY_WANTS
from tests.unit.iceberg.avro_files import CODECS, decode
from tests.unit.iceberg.manifest_cases import MAPPING, manifests

FILES = (
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(CODECS))
    .flatmap(lambda kind: manifests(*kind))
    .map(lambda files: files[0])
)


@pytest.fixture(scope="module", params=["plain", "compiled"])
def walked(request: pytest.FixtureRequest):
    """The walk, run as plain Python or compiled, one block group at a time so that groups are crossed too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "_compiling_pays", lambda *_: request.param == "compiled")
        patch.setattr(avro, "_GROUP_BYTES", 600)
        yield


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(FILES)
def test_the_walk_and_the_general_path_agree(walked: None, data: bytes):
    container = open_container(data, "uri")
    fast, slow = manifest_spans.localize(container, MAPPING), manifest_records.localize(container, MAPPING)
    assert (fast is None) == (slow is None)
    if fast is not None and slow is not None:
        assert decode(fast) == decode(slow)
        assert decode(fast)[0] == decode(data)[0]
    quick = [row for columns in manifest_spans.columns(container) for row in rows(columns)]
    assert quick == [row for columns in manifest_records.columns(container) for row in rows(columns)]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(FILES, st.integers(0, 2**32))
def test_both_walks_see_the_same_in_damaged_records(data: bytes, seed: int):
    container = open_container(data, "uri")
    program = compile_schema(
        container.schema, {None: ENTRY_WANTS, DATA_FILE: manifest_spans.ids.FILE_WANTS}, {DATA_FILE: "data_file"}, "uri"
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
        cells, compiled_wrong = locate._run_compiled(program, group, blocks, len(plain))
        assert (wrong, plain) == (compiled_wrong, cells.tolist())


def rows(columns: Any) -> list[tuple[Any, ...]]:
    return list(zip(*vars(columns).values(), strict=True))
