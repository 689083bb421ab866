"""The three ways through a manifest, held against each other on generated files: plain walk, compiled walk, whole records."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.iceberg import avro, locate, manifest_general, manifest_walk
from sterna.iceberg.avro import open_container
from sterna.iceberg.entry import DATA_FILE, ENTRY_WANTS, UriMapping
from sterna.iceberg.files import Written
from sterna.iceberg.program import compile_schema
from tests.unit.iceberg.avro_files import CODECS, PATH_COLUMN, avro_file, decode, entry, manifest_schema

URIS = st.sampled_from(["s3://us/a", "s3://us/b", "s3://eu/é" * 30, "s3://apac/" + "x" * 200])
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
COUNTS = st.none() | st.lists(st.fixed_dictionaries({"key": INTS, "value": LONGS}), max_size=4)
OTHER_BOUNDS = st.lists(st.fixed_dictionaries({"key": st.integers(1, 9), "value": st.binary(max_size=200)}), max_size=4)
DELETES = {
    uri: Written(uri.replace("us", "eu/r"), len(uri)) for uri in ("s3://us/a", "s3://us/b", "s3://eu/é" * 30, "s3://apac/" + "x" * 200)
}
MAPPING = UriMapping(lambda uri: uri.replace("s3://us", "s3://eu/r/us"), DELETES, lambda uri: "s3://eu/r" + uri[4:])


@st.composite
def bounds(draw: Callable[..., Any]) -> dict[str, Any]:
    path = draw(URIS)
    found: dict[str, Any] = {}
    for name in ("lower_bounds", "upper_bounds"):
        items = draw(st.none() | OTHER_BOUNDS)
        if items is not None and draw(st.booleans()):
            value = draw(st.sampled_from([path, path, "s3://us/z"])).encode()
            items.insert(draw(st.integers(0, len(items))), {"key": PATH_COLUMN, "value": value})
        found[name] = items
    return found


@st.composite
def entries(draw: Callable[..., Any], version: int) -> dict[str, Any]:
    partition = {
        "day": draw(st.none() | INTS),
        "price": draw(st.none() | st.binary(min_size=4, max_size=4)),
        "at": draw(st.none() | LONGS),
        "name": draw(st.none() | st.text(max_size=5)),
    }
    extra: dict[str, Any] = {} if version == 1 else {"referenced_data_file": draw(st.none() | URIS)}
    return entry(
        draw(URIS),
        status=draw(st.integers(0, 2)),
        content=draw(st.integers(0, 2)),
        size=draw(st.integers(0, 2**63 - 1)),
        version=version,
        partition=partition,
        column_sizes=draw(COUNTS),
        value_counts=draw(COUNTS),
        split_offsets=draw(st.none() | st.lists(LONGS, max_size=3)),
        a_later_field=draw(st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.floats(allow_nan=False) | st.text(max_size=3))),
        **draw(bounds()),
        **extra,
    )


@st.composite
def manifests(draw: Callable[..., Any]) -> bytes:
    version = draw(st.sampled_from([1, 2]))
    records = draw(st.lists(entries(version), max_size=5))
    codec, block, seed = draw(st.sampled_from(CODECS)), draw(st.integers(1, 3)), draw(st.integers(0, 99))
    return avro_file(manifest_schema(version), records, codec, block, seed, format_version=str(version))


@pytest.fixture(scope="module", params=["plain", "compiled"])
def walked(request: pytest.FixtureRequest):
    """The walk, run as plain Python or compiled, one block group at a time so that groups are crossed too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "_compiling_pays", lambda _: request.param == "compiled")
        patch.setattr(avro, "_GROUP_BYTES", 600)
        yield


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(manifests())
def test_the_walk_and_the_general_path_agree(walked: None, data: bytes):
    container = open_container(data, "uri")
    fast, slow = manifest_walk.localize(container, MAPPING), manifest_general.localize(container, MAPPING)
    assert (fast is None) == (slow is None)
    if fast is not None and slow is not None:
        assert decode(fast) == decode(slow)
        assert decode(fast)[0] == decode(data)[0]
    quick = [row for columns in manifest_walk.columns(container) for row in rows(columns)]
    assert quick == [row for columns in manifest_general.columns(container) for row in rows(columns)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(manifests(), st.integers(0, 2**32))
def test_both_walks_see_the_same_in_damaged_records(data: bytes, seed: int):
    container = open_container(data, "uri")
    program = compile_schema(
        container.schema, {None: ENTRY_WANTS, DATA_FILE: manifest_walk.ids.FILE_WANTS}, {DATA_FILE: "data_file"}, "uri"
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
