"""Lists of files on disk, and records of passes in several objects: what is told of them is as in memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import SternaError, StoreDenied, StoreUnreachable
from sterna.maintenance.deletion import delete
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.deletion.file_lists import Files, filter_by_uri, to_table
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.deletion.passes import read_passes, save_pass, unreachable_in_all
from sterna.maintenance.gc.evidence import gc_folder
from sterna.replication.replica.reachability import ReachedFiles
from tests.support.gc import after
from tests.support.small_world import World

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
some = st.frozensets(st.text("abé\U0001f600", max_size=4), max_size=30)


def files(uris: frozenset[str] | list[str]) -> Files:
    return Files(to_table([(uri, len(uri), LONG_AGO)]) for uri in uris)


def uris(parts: Iterator[pa.Table]) -> list[str]:
    return [uri for part in parts for uri in part.column("uri").to_pylist()]


@given(some)
def test_files_are_in_order_and_counted(all_uris):
    listed = files(all_uris)
    assert uris(listed.parts()) == uris(listed.parts()) == sorted(all_uris)
    assert listed.amount == Amount(len(all_uris), sum(map(len, all_uris)))


@given(some, some)
def test_among(mine, others):
    for wanted, expected in ((True, mine & others), (False, mine - others)):
        assert uris(filter_by_uri(files(mine).parts(), files(others).parts(), wanted=wanted)) == sorted(expected)


def test_a_record_of_many_files_is_in_several_objects(world: World):
    context = world.context()
    folder = gc_folder(context)
    wanted = [f"{number:02}" for number in range(10)]
    save_pass(context, folder, "collect-1", files(wanted))
    names = sorted(uri.rpartition("/")[2] for uri, _, _ in context.objects.list(folder))
    assert names == ["collect-1.1.parquet", "collect-1.2.parquet", "collect-1.3.parquet", "collect-1.4.parquet",
                     "collect-1.parquet"]  # fmt: skip
    (record,) = read_passes(context, folder, after(days=1))
    assert uris(record.uris()) == wanted
    assert uris(unreachable_in_all(files([*wanted, "x"]), [record]).parts()) == wanted


def test_passes_count_from_the_newest_that_is_old_enough(world: World):
    """Where none is, there is none: what a pass of a moment ago found unreachable may still be read."""
    context, folder = world.context(), gc_folder(world.context())
    for number in (1, 2, 3):
        save_pass(context, folder, f"collect-{number}", files([f"{number}"]))
        path = f"{folder.removeprefix('file://')}/collect-{number}.parquet"
        written = (LONG_AGO + timedelta(days=number)).timestamp()
        os.utime(path, (written, written))
    counted = [read_passes(context, folder, LONG_AGO + timedelta(days=days)) for days in (0, 1, 2, 3, 9)]
    assert [[uris(record.uris()) for record in some] for some in counted] == [
        [],
        [["1"], ["2"], ["3"]],
        [["2"], ["3"]],
        [["3"]],
        [["3"]],
    ]


def test_a_record_that_was_cut_off_is_none(world: World, monkeypatch: pytest.MonkeyPatch):
    context = world.context()
    folder = gc_folder(context)
    save_pass(context, folder, "collect-1", files(["a"]))
    save_pass(context, folder, "collect-2", files(list("abcdefg")))
    context.objects.delete([f"{folder}/collect-2.parquet"])  # which is written last
    (record,) = read_passes(context, folder, after(days=1))
    assert uris(record.uris()) == ["a"]


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_damaged_object_of_a_record_names_nothing(world: World, damage: str):
    context = world.context()
    folder = gc_folder(context)
    save_pass(context, folder, "collect-1", files(list("abcdefg")))
    first = f"{folder}/collect-1.1.parquet"
    if damage == "gone":
        context.objects.delete([first])
    else:
        context.objects.overwrite(first, context.objects.read(first)[:-9] if damage == "cut" else b"")
    (record,) = read_passes(context, folder, after(days=1))
    assert uris(record.uris()) == list("cdefg")


def test_a_record_of_an_older_version_is_one_object_in_no_order(world: World):
    context, folder = world.context(), gc_folder(world.context())
    sink = io.BytesIO()
    pq.write_table(to_table([(uri, 1, LONG_AGO) for uri in "gcaebdf"]), sink)
    context.objects.write_new(f"{folder}/collect-1.parquet", sink.getvalue())
    (record,) = read_passes(context, folder, after(days=1))
    assert uris(record.uris()) == list("abcdefg")


def test_a_record_that_goes_meanwhile_names_nothing(world: World):
    context, folder = world.context(), gc_folder(world.context())
    save_pass(context, folder, "collect-1", files(["a"]))
    (record,) = read_passes(context, folder, after(days=1))
    context.objects.delete([f"{folder}/collect-1.parquet"])
    assert uris(record.uris()) == []


def test_no_pass_says_that_nothing_is_garbage():
    assert unreachable_in_all(files(["a"]), []).amount == Amount()


def test_what_is_reached_meanwhile_is_not_deleted():
    reached, tally, asked = ReachedFiles(), DeletionTally(), []

    def delete(some: list[str]) -> dict[str, StoreUnreachable]:
        asked.append(some)
        reached.add("df")
        return {uri: StoreUnreachable("locked", file=uri) for uri in some if uri == "b"}

    garbage = Garbage([files(list("abcdefg")).parts()], reached)  # in tables of one file
    while garbage.has_more():
        garbage.delete_part(tally, delete)  # type: ignore[arg-type]
    assert asked == [["a", "b"], ["c"], ["e"], ["g"]]
    assert (uris(tally.deleted.parts()), tally.done, tally.failed) == (list("aceg"), Amount(4, 4), 1)
    assert [failure.file for failure in tally.failures] == ["b"]
    garbage.delete_part(tally, delete)  # type: ignore[arg-type]
    assert tally.attempted == 5, "there is no more"


def test_only_the_first_failures_are_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delete, "MAX_SHOWN_FAILURES", 3)
    tally, garbage = DeletionTally(), Garbage([files([f"{number:02}" for number in range(12)]).parts()], ReachedFiles())
    while garbage.has_more():
        garbage.delete_part(tally, lambda some: {uri: StoreUnreachable("locked", file=uri) for uri in some[1:]})
    assert (tally.done.files, tally.failed) == (6, 6)
    assert [failure.file for failure in tally.failures] == ["01", "03", "05"]


@pytest.mark.parametrize(
    ("stuck", "tried", "stopped"),
    [("ab", "ab", True), ("cd", "abcd", True), ("e", "abcde", False), ("abcde", "ab", True)],
)
def test_a_full_part_of_which_none_can_be_deleted_ends_it(stuck: str, tried: str, stopped: bool):
    asked: list[str] = []

    def delete(some: list[str]) -> dict[str, StoreUnreachable]:
        asked.extend(some)
        return {uri: StoreUnreachable("locked", file=uri) for uri in some if uri in stuck}

    tally, garbage = DeletionTally(), Garbage([files(list("abcde")).parts()], ReachedFiles())
    while garbage.has_more():
        garbage.delete_part(tally, delete)  # type: ignore[arg-type]
    assert ("".join(asked), bool(tally.store_error)) == (tried, stopped)


def test_where_nothing_else_is_garbage_a_file_that_can_not_be_deleted_is_an_error():
    tally, garbage = DeletionTally(), Garbage([files(["a"]).parts()], ReachedFiles())
    garbage.delete_part(tally, lambda some: {uri: StoreUnreachable("locked", file=uri) for uri in some})
    assert tally.store_error and not garbage.has_more()


def test_a_store_that_deletes_nothing_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "MAX_PART_FILES", 2)
    groups = [files(list(names)).parts() for names in ("abc", "xyz", "pqr")]
    tally, garbage = DeletionTally(), Garbage(groups, ReachedFiles(), are_stores=True)

    def refuse(uris: Sequence[str]) -> dict[str, SternaError]:
        return {uri: StoreDenied("says no", file=uri) for uri in uris if uri.endswith(("x", "y", "z"))}

    while garbage.has_more():
        garbage.delete_part(tally, refuse)
    assert (tally.done.files, tally.failed) == (6, 2)
    assert isinstance(tally.store_error, StoreDenied)
