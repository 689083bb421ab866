"""Byte fidelity: of a localized manifest or list everything but the mapped values is the source's, byte for byte."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.iceberg.avro.binary import encode_bytes
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.manifest import localize_manifest
from sterna.iceberg.manifests.manifest_list import localize_manifest_list
from tests.unit.iceberg.avro_files import CODECS, avro_file, manifest_list_schema, manifest_row, parts
from tests.unit.iceberg.manifest_cases import INTS, LONGS, MAPPING, PATHS, URI, manifests

# As it stands in the header of every file here: a key that no version knows, with a value that is not even text.
LATER_KEY = encode_bytes(b"a-later-key") + encode_bytes(b"s3://us/\xff\x00")
_EXAMPLES = 25


def files() -> settings:
    """How many files are tried: a test in a test isn't among those that `--quick` reaches by itself."""
    return settings(
        max_examples=min(_EXAMPLES, settings().max_examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def check(done: bytes | None, source: bytes, expected: bytes, codec: str) -> None:
    if parts(source) == parts(expected):
        assert done is None
        return
    assert done is not None
    assert parts(done) == parts(expected)
    assert LATER_KEY in parts(done)[0]
    if codec == "null":
        assert done == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifests(version: int, codec: str):
    @files()
    @given(manifests(version, codec))
    def every(files: tuple[bytes, bytes]) -> None:
        source, expected = files
        done = localize_manifest(
            source,
            URI,
            map_content=MAPPING.map_content,
            deletes=MAPPING.deletes,
            map_deleted_deletes=MAPPING.map_deleted_deletes,
        )
        check(done, source, expected, codec)

    every()


LISTED = {path: LocalizedFile(path.replace("s3://us/", "s3://eu/r/us/"), 2**33) for path in PATHS}
SUMMARIES = st.fixed_dictionaries(
    {
        "contains_null": st.booleans(),
        "contains_nan": st.none() | st.booleans(),
        "lower_bound": st.none() | st.binary(max_size=9),
        "upper_bound": st.none() | st.binary(max_size=9),
    }
)
ROWS = st.builds(
    manifest_row,
    st.sampled_from(PATHS),
    st.sampled_from([7, 2**33]),
    content=st.integers(0, 1),
    min_sequence_number=LONGS,
    deleted_files_count=INTS,
    partitions=st.none() | st.lists(SUMMARIES, max_size=4),
    first_row_id=st.none() | LONGS,
    a_later_struct=st.none() | st.just({"digest": b"\xff\x00a", "rows": [[2**40], []], "flag": False, "ratio": 1.5}),
)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifest_lists(version: int, codec: str):
    @files()
    @given(st.lists(ROWS, max_size=5), st.integers(1, 5), st.integers(0, 99))
    def every(rows: list[dict[str, Any]], block: int, seed: int) -> None:
        new = [row | {"manifest_path": LISTED[row["manifest_path"]].uri, "manifest_length": 2**33} for row in rows]
        source, expected = (
            avro_file(manifest_list_schema(version), some, codec, block, seed, format_version=str(version))
            for some in (rows, new)
        )
        check(localize_manifest_list(source, URI, LISTED), source, expected, codec)

    every()
