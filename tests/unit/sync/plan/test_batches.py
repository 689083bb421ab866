"""How files to copy are cut into batches."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sterna.replica import file_list as listing
from sterna.replica.file_list import CONTENT
from sterna.replica.records import Batch
from sterna.sync.options import SyncOptions
from sterna.sync.plan.batches import cut
from tests.unit.registry import samples

MAPPING = samples.mapping(samples.location("lake", "s3://lake"), samples.location("old", "s3://lake-old"))
ROOT = MAPPING.region.replica_root

Row = tuple[str, str, int]
"""Table, source and size."""

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.builds("{}/{}".format, st.sampled_from(["s3://lake", "s3a://lake", "s3://lake-old"]), st.integers(0, 500)),
        st.integers(0, 1 << 40),
    ),
    max_size=60,
    unique_by=lambda row: row[:2],
)


def made(rows: list[Row], most: int = 64, **options: int) -> tuple[dict[Row, int], tuple[Batch, ...]]:
    """The number of each row, and the batches."""
    table = listing.joined(
        [listing.rows(name, CONTENT, [(source, MAPPING.replica(source), size)], 0) for name, source, size in rows]
    )
    numbers, batches = cut(table, MAPPING, SyncOptions(**options), most)
    assert numbers.type == pa.int32()
    return dict(zip(rows, numbers.to_pylist(), strict=True)), batches


def target(row: Row) -> str:
    return MAPPING.replica(row[1])


def folder(row: Row) -> str:
    return target(row).removeprefix(f"{ROOT}/").partition("/")[0]


@given(ROWS, st.integers(1, 1 << 41), st.integers(1, 70), st.integers(1, 10))
def test_every_file_is_in_one_batch_of_its_origin(rows: list[Row], size: int, count: int, most: int) -> None:
    numbers, batches = made(rows, most, bytes_per_batch=size, files_per_batch=count)
    assert sorted({*numbers.values()}) == [batch.number for batch in batches] == list(range(len(batches)))
    assert len(batches) <= max(most, len({folder(row) for row in rows}))
    assert len({(target(row), number) for row, number in numbers.items()}) == len({target(row) for row in rows})
    for batch in batches:
        mine = [row for row, number in numbers.items() if number == batch.number]
        assert {folder(row) for row in mine} in ({batch.origin}, {f"{batch.origin}~s3a"})
        assert batch.files == len({target(row) for row in mine})
        assert min(row[2] for row in mine) <= batch.bytes <= sum(row[2] for row in mine)


@given(ROWS)
def test_a_batch_is_a_stretch_of_neighbours(rows: list[Row]) -> None:
    numbers, _ = made(rows, files_per_batch=3)
    assert [numbers[row] for row in sorted(rows, key=lambda row: (target(row), row[0]))] == sorted(numbers.values())


@given(ROWS, st.integers())
def test_the_order_of_files_does_not_matter(rows: list[Row], seed: int) -> None:
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert made(rows, files_per_batch=7) == made(shuffled, files_per_batch=7)


def test_batches_are_balanced_by_bytes_and_by_count() -> None:
    large = [("t", f"s3://lake/large/{number}", 1 << 30) for number in range(8)]
    small = [("t", f"s3://lake/small/{number}", 1 << 10) for number in range(8000)]
    _, batches = made([*large, *small], bytes_per_batch=1 << 31, files_per_batch=5000)
    assert len(batches) == 5
    assert max(batch.bytes for batch in batches) <= 2 * (1 << 30) + (1 << 24)
    _, even = made(small, files_per_batch=1000)
    assert [batch.files for batch in even] == [1000] * 8


def test_one_huge_file_leaves_no_empty_batch() -> None:
    _, batches = made(
        [("t", "s3://lake/a", 1 << 40), *(("t", f"s3://lake/b{number}", 1) for number in range(20))], files_per_batch=2
    )
    assert all(batch.files for batch in batches)


def test_there_are_never_many_batches() -> None:
    _, batches = made([("t", f"s3://lake/{number}", 1 << 20) for number in range(3000)], files_per_batch=1)
    assert len(batches) == 64
    assert made([])[1] == ()
