"""What memory has no room for goes to local disk and comes back as it was; nothing of it is left there."""

from __future__ import annotations

import gc
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import EngineError, Remedy
from sterna.storage.spill.integer_set import Int64Set
from sterna.storage.spill.sorted_rows import ExternalSorter, SorterLimits
from sterna.storage.spill.temporary import SpillFile

KEYS = st.one_of(st.sampled_from(["a", "b", "a/ä", "a/\uffff", "a/\U0001f600", ""]), st.text(max_size=5))
PARTS = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=8), max_size=12)


def table(part: list[tuple[str, int]]) -> pa.Table:
    keys, sizes = [key for key, _ in part], [size for _, size in part]
    return pa.table({"uri": pa.array(keys, pa.large_string()), "size": pa.array(sizes, pa.int64())})


class DiskRows(ExternalSorter):
    limits = SorterLimits(memory_bytes=0)


class DiskNumbers(Int64Set):
    max_in_memory = 0


def filled(parts: list[list[tuple[str, int]]], kind: type[ExternalSorter] = ExternalSorter) -> ExternalSorter:
    rows = kind("uri")
    for part in parts:
        rows.add(table(part))
    return rows


def read(rows: ExternalSorter) -> list[tuple[str, int]]:
    return [tuple(row.values()) for part in rows.sorted() for row in part.to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("in_memory", "batch", "runs", "stretch"),
    [(0, 1, 2, 1), (40, 60, 3, 4), (40, 1 << 20, 64, 50_000), (1 << 20, 1 << 20, 64, 3)],
)
@given(parts=PARTS)
def test_rows_come_back_in_order(in_memory: int, batch: int, runs: int, stretch: int, parts: list) -> None:
    class Few(ExternalSorter):
        limits = SorterLimits(in_memory, batch, runs, stretch)

    rows = filled(parts, Few)
    expected = sorted((row for part in parts for row in part), key=lambda row: row[0])
    assert read(rows) == expected  # rows of one key in the order of their coming
    tables = list(rows.sorted())
    assert [len(part) > 0 for part in tables] == [True] * len(tables)
    for one, next_one in pairwise(tables):
        assert one.column("uri")[-1].as_py() < next_one.column("uri")[0].as_py()
    rows.add(table([("b", 9)]))
    assert read(rows) == sorted([*expected, ("b", 9)], key=lambda row: row[0])


@given(parts=st.lists(st.lists(st.integers(-20, 20), max_size=8), max_size=12), most=st.integers(0, 12))
def test_numbers_are_there_or_not(parts: list[list[int]], most: int) -> None:
    class Few(Int64Set):
        max_in_memory = most

    numbers, there = Few(), set[int]()
    candidates = [*range(-21, 22), 0, -(1 << 63), (1 << 63) - 1]
    for part in parts:
        numbers.add(np.array(part, np.int64))
        there |= set(part)
    assert numbers.contains(np.array(candidates, np.int64)).tolist() == [number in there for number in candidates]
    assert numbers.contains(np.array([], np.int64)).tolist() == []


def test_numbers_that_are_on_disk_are_not_written_again(folder: Path) -> None:
    class Few(Int64Set):
        max_in_memory = 100

    numbers = Few()
    for _ in range(50):
        numbers.add(np.arange(200, dtype=np.int64))
    assert open_below(folder) == [200 * 8]


def test_few_rows_touch_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    rows, numbers = filled([[("a", 1)]] * 1000), Int64Set()
    assert len(read(rows)) == 1000
    numbers.add(np.arange(1000, dtype=np.int64))
    assert numbers.contains(np.arange(2000, dtype=np.int64)).sum() == 1000


def test_no_file_is_left(folder: Path) -> None:
    def interrupted() -> None:
        rows, numbers = filled([[("a", 1), ("b", 2)]] * 3, DiskRows), DiskNumbers()
        numbers.add(np.arange(10, dtype=np.int64))
        for _ in rows.sorted():
            assert open_below(folder)
            assert list(folder.iterdir()) == []  # without a name even while it is there: killed is as good as closed
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert list(folder.iterdir()) == []
    assert open_below(folder) == []


def open_below(folder: Path) -> list[int]:
    """The sizes of a folder's files that this process has open; those that others opened or closed don't count."""
    sizes = {}
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder)):
                status = os.stat(f"/proc/self/fd/{descriptor}")
                sizes[status.st_ino] = status.st_size
    return list(sizes.values())


@pytest.fixture
def little_room(folder: Path) -> Iterator[int]:
    """Let no file grow beyond some bytes: what is written then is refused, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_says_where_and_how_much(folder: Path, little_room: int) -> None:
    file = SpillFile()
    file.append(b"x" * 900)
    with pytest.raises(EngineError) as refused:
        file.append(b"y" * 900)
    assert str(folder) in refused.value.message
    assert "900 bytes" in refused.value.message
    assert "TMPDIR" in refused.value.hint
    assert refused.value.remedy is Remedy.RETRY


def test_a_folder_that_takes_no_file_says_which(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    with pytest.raises(EngineError, match="none"):
        SpillFile()
