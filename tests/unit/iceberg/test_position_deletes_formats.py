"""What holds for position deletes of every format: the rows are the mapped rows, in order, and nothing else changes."""

import random
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, UnregisteredUri, Unsupported
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.replication.execution.orc_sandbox import localize_orc_in_subprocess
from tests.support.often import often
from tests.unit.iceberg.delete_files import (
    FORMATS,
    GOLDEN,
    URI,
    Row,
    content,
    damaged,
    expected,
    golden,
    localized,
    read_rows,
    write_rows,
)

PATHS = [
    f"s3://{store}/t/{name}.parquet"
    for store in ("us", "eu", "ap")
    for name in ("a", "b c", "b%20c", "ü", "\U0001f426", "\uffee")
]
DELETED = st.none() | st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=5).filter(lambda text: "\0" not in text),
    }
)
ROWS = st.lists(st.tuples(st.sampled_from(PATHS), st.integers(0, 2**40) | st.integers(0, 3), DELETED), max_size=30)

PARTS, DAMAGES = 4, 40
DAMAGED = list(product(sorted(path.name for path in GOLDEN.iterdir() if path.suffix != ".md"), range(PARTS)))


def _parts(name: str) -> range:
    """Which every run has: ORC is read in processes of its own."""
    return range(1 if name.endswith(".orc") else PARTS)


def some_rows(count: int = 200) -> list[Row]:
    return [
        (PATHS[number % 5], number, {"number": -number, "text": "x" * (number % 9)} if number % 4 else None)
        for number in range(count)
    ]


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(rows=ROWS)
def test_rows_are_the_mapped_rows_in_order(kind: str, rows: list[Row]):
    data = write_rows(kind, rows)
    if all(content(path) == path for path, _, _ in rows):
        assert localize_position_deletes(data, URI, map_content=content) is None
    else:
        assert read_rows(kind, localized(data)) == expected(rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_one_data_file(kind: str):
    rows: list[Row] = [("s3://us/t/a.parquet", pos, None) for pos in range(1000, 3000)]
    assert read_rows(kind, localized(write_rows(kind, rows))) == expected(rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_each_distinct_path_is_mapped_once(kind: str):
    seen: list[str] = []
    localize_position_deletes(
        write_rows(kind, some_rows()), URI, map_content=lambda uri: seen.append(uri) or content(uri)
    )  # type: ignore[func-returns-value]
    assert sorted(seen) == sorted({path for path, _, _ in some_rows()})


@pytest.mark.parametrize("kind", FORMATS)
def test_the_callers_errors_pass_through(kind: str):
    def refuse(uri: str) -> str:
        raise UnregisteredUri(uri)

    with pytest.raises(UnregisteredUri):
        localize_position_deletes(write_rows(kind, some_rows()), URI, map_content=refuse)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_over_the_limits(kind: str):
    data = write_rows(kind, some_rows())
    with pytest.raises(OverLimit, match=r"200 (rows|delete_rows).*over the limit of 199 .limits\.delete_rows"):
        localize_position_deletes(data, URI, map_content=content, limits=Limits(delete_rows=199))
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.file_bytes") as caught:
        localize_position_deletes(data, URI, map_content=content, limits=Limits(file_bytes=len(data) - 1))
    assert caught.value.file == URI


@pytest.mark.parametrize(("name", "part"), often(DAMAGED, [case for case in DAMAGED if case[1] in _parts(case[0])]))
def test_any_damage_gives_an_error_of_the_tree_or_a_result(name: str, part: int):
    good = golden(name)
    rng = random.Random(f"{name}-{part}")
    for _ in range(DAMAGES):
        try:
            localize_position_deletes(
                damaged(good, rng), URI, map_content=content, localize_orc=localize_orc_in_subprocess
            )
        except TableError as error:
            assert error.file == URI


@pytest.mark.parametrize("data", [b"", b"P", b"PAR", b"ORC", b"Obj\x01", b"PFA1", b"PAR1", b"\x1f\x8b", b"x" * 100])
def test_a_file_of_no_known_format(data: bytes):
    with pytest.raises(BrokenMetadata) as caught:
        localize_position_deletes(data, URI, map_content=content)
    assert caught.value.file == URI


@pytest.mark.parametrize("data", [b"PARE" + bytes(20) + b"PARE", b"AGS1" + bytes(20)])
def test_encrypted_files(data: bytes):
    with pytest.raises(Unsupported, match="encrypted"):
        localize_position_deletes(data, URI, map_content=content)
