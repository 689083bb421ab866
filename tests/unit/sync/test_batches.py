"""How files to copy are dealt out to batches."""

from hypothesis import given
from hypothesis import strategies as st

from sterna.sync.copy import CopyFile, batches
from tests.unit.registry import samples

MAPPING = samples.mapping(samples.location("lake", "s3://lake"), samples.location("old", "s3://lake-old"))


def file(uri: str, size: int, table: str = "t") -> CopyFile:
    return CopyFile(table, uri, MAPPING.replica(uri), size)


FILES = st.lists(
    st.builds(
        file,
        st.builds("{}/{}".format, st.sampled_from(["s3://lake", "s3a://lake", "s3://lake-old"]), st.integers(0, 500)),
        st.integers(0, 1 << 40),
        st.sampled_from(["t", "u"]),
    ),
    max_size=60,
)


def origin(one: CopyFile) -> str:
    return one.target.split("/")[4]


@given(FILES, st.integers(1, 1 << 41), st.integers(1, 70), st.integers(1, 10))
def test_every_file_is_in_one_batch_of_its_origin(files: list[CopyFile], size: int, count: int, most: int) -> None:
    made = batches(files, MAPPING, bytes_per_batch=size, files_per_batch=count, most=most)
    assert sorted(map(repr, files)) == sorted(repr(one) for batch in made for one in batch)
    assert all(len({origin(one) for one in batch}) == 1 and batch for batch in made)
    assert len(made) <= max(most, len({origin(one) for one in files}))
    targets = [{one.target for one in batch} for batch in made]
    assert sum(map(len, targets)) == len({one.target for one in files})


@given(FILES, st.randoms())
def test_the_order_of_files_does_not_matter(files: list[CopyFile], random) -> None:
    shuffled = random.sample(files, len(files))
    limits = {"bytes_per_batch": 1 << 40, "files_per_batch": 7}
    assert batches(files, MAPPING, **limits) == batches(shuffled, MAPPING, **limits)


def test_batches_are_balanced_by_bytes_and_by_count() -> None:
    large = [file(f"s3://lake/large/{number}", 1 << 30) for number in range(8)]
    small = [file(f"s3://lake/small/{number}", 1 << 10) for number in range(8000)]
    made = batches([*large, *small], MAPPING, bytes_per_batch=1 << 31, files_per_batch=5000)
    assert len(made) == 5
    sizes = [sum(one.size for one in batch) for batch in made]
    assert max(sizes) <= 2 * (1 << 30) + (1 << 24)
    even = batches(small, MAPPING, files_per_batch=1000)
    assert [len(batch) for batch in even] == [1000] * 8


def test_there_are_never_many_batches() -> None:
    made = batches([file(f"s3://lake/{number}", 1 << 20) for number in range(3000)], MAPPING, files_per_batch=1)
    assert len(made) == 64
    assert batches([], MAPPING) == []
