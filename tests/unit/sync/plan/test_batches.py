"""How files to copy are cut into batches."""

import random
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sterna.replication.plan.batches import MAX_BATCHES, Share, cut_batches, order_smallest_first, split_shares
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT
from sterna.replication.replica.model import CopyBatch
from tests.unit.config import samples

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


def listed(rows: list[Row]) -> pa.Table:
    return listing.concat_files(
        [listing.rows(name, CONTENT, [(source, MAPPING.replica_uri(source), size)], 0) for name, source, size in rows]
    )


def build_batches(rows: list[Row], most: int = 64, **options: int) -> tuple[dict[Row, int], tuple[CopyBatch, ...]]:
    """The number of each row, and the batches."""
    numbers, batches = cut_batches(listed(rows), MAPPING, SyncOptions(**options), most)
    assert numbers.type == pa.int32()
    return dict(zip(rows, numbers.to_pylist(), strict=True)), batches


def target(row: Row) -> str:
    return MAPPING.replica_uri(row[1])


def folder(row: Row) -> str:
    return target(row).removeprefix(f"{ROOT}/").partition("/")[0]


@given(ROWS, st.integers(1, 1 << 41), st.integers(1, 70), st.integers(1, 10))
def test_every_file_is_in_one_batch_of_its_origin(rows: list[Row], size: int, count: int, most: int) -> None:
    numbers, batches = build_batches(rows, most, bytes_per_batch=size, files_per_batch=count)
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
    numbers, _ = build_batches(rows, files_per_batch=3)
    assert [numbers[row] for row in sorted(rows, key=lambda row: (target(row), row[0]))] == sorted(numbers.values())


@given(ROWS, st.integers())
def test_the_order_of_files_does_not_matter(rows: list[Row], seed: int) -> None:
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert build_batches(rows, files_per_batch=7) == build_batches(shuffled, files_per_batch=7)


def test_batches_are_balanced_by_bytes_and_by_count() -> None:
    large = [("t", f"s3://lake/large/{number}", 1 << 30) for number in range(8)]
    small = [("t", f"s3://lake/small/{number}", 1 << 10) for number in range(8000)]
    _, batches = build_batches([*large, *small], bytes_per_batch=1 << 31, files_per_batch=5000)
    assert len(batches) == 5
    assert max(batch.bytes for batch in batches) <= 2 * (1 << 30) + (1 << 24)
    _, even = build_batches(small, files_per_batch=1000)
    assert [batch.files for batch in even] == [1000] * 8


def test_one_huge_file_leaves_no_empty_batch() -> None:
    _, batches = build_batches(
        [("t", "s3://lake/a", 1 << 40), *(("t", f"s3://lake/b{number}", 1) for number in range(20))], files_per_batch=2
    )
    assert all(batch.files for batch in batches)


def test_there_are_as_many_as_there_is_to_do_up_to_a_bound() -> None:
    rows = [("t", f"s3://lake/{number}", 1 << 20) for number in range(3000)]
    assert len(build_batches(rows, MAX_BATCHES, files_per_batch=1)[1]) == 3000
    assert len(build_batches(rows, 64, files_per_batch=1)[1]) == 64
    assert build_batches([])[1] == ()


@given(ROWS)
def test_batches_of_small_tables_come_first(rows: list[Row]) -> None:
    table = listed(rows)
    before, batches = cut_batches(table, MAPPING, SyncOptions(files_per_batch=3))
    after, ordered = order_smallest_first(table, before, batches)
    assert [batch.number for batch in ordered] == list(range(len(batches)))
    renamed = dict(zip(before.to_pylist(), after.to_pylist(), strict=True))
    assert [renamed[number] for number in before.to_pylist()] == after.to_pylist()
    assert {replace(batch, number=renamed[batch.number]) for batch in batches} == set(ordered)
    sizes = {name: sum(size for table, _, size in rows if table == name) for name in "tu"}
    least = [
        min(sizes[row[0]] for row, number in zip(rows, after.to_pylist(), strict=True) if number == batch.number)
        for batch in ordered
    ]
    assert least == sorted(least)


BATCHES = st.lists(st.tuples(st.sampled_from(["lake", "old"]), st.integers(1, 5000), st.integers(0, 1 << 50)))


@given(BATCHES, st.integers(1, 20))
def test_every_batch_is_in_one_share(shapes: list[tuple[str, int, int]], most: int) -> None:
    batches = [CopyBatch(number, *shape) for number, shape in enumerate(shapes)]
    dealt = split_shares(batches, most)
    assert len(dealt) <= most
    numbers = [number for share in dealt for number in range(share.number, share.last + 1)]
    assert numbers == list(range(len(batches)))
    for share in dealt:
        mine = batches[share.number : share.last + 1]
        assert share.files == sum(batch.files for batch in mine)
        assert share.bytes == sum(batch.bytes for batch in mine)
        assert set(share.origin.split(",")) == {batch.origin for batch in mine}
    if len(batches) <= most:
        assert all(share.number == share.last for share in dealt)


def test_shares_are_balanced() -> None:
    batches = [CopyBatch(number, "lake", 10, 1 << 20) for number in range(2500)]
    assert {share.last - share.number + 1 for share in split_shares(batches, 1000)} == {2, 3}
    assert split_shares(batches[:1], 1000) == (Share(0, 0, "lake", 10, 1 << 20),)


@given(st.lists(st.lists(st.integers(-2, 5), min_size=1, max_size=6), max_size=6))
def test_each_batch_has_its_rows_in_their_order(chunks: list[list[int]]) -> None:
    parts = [
        listing.with_batch_numbers(
            listing.rows("t", CONTENT, [(f"s3://lake/{at}-{place}", "", 1) for place in range(len(chunk))]),
            pa.array(chunk, pa.int32()),
        )
        for at, chunk in enumerate(chunks)
    ]
    rows = [(f"s3://lake/{at}-{place}", batch) for at, chunk in enumerate(chunks) for place, batch in enumerate(chunk)]
    sources = {
        batch: mine.column("source").to_pylist() for batch, mine in listing.split_by_batch(listing.concat_files(parts))
    }
    assert sources == {
        number: [source for source, batch in rows if batch == number]
        for number in {planned_batch for _, planned_batch in rows} - {-1, -2}
    }
