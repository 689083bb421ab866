"""What is here of the files that tables need, and what is left to copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sterna.replication.plan.inventory import CheckedFiles, check_targets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT, MANIFEST, PROVEN
from sterna.replication.replica.region import RegionContext
from sterna.storage.client import PAGE_SIZE
from tests.support.replica_paths import localized_path
from tests.unit.config import samples

MAPPING = samples.mapping(samples.location("us-lake", "s3://us-lake"))
ROOT = MAPPING.region.replica_root


def files(*rows: tuple[str, str, int]) -> Any:
    """Content files of (table, name, size), each in a part of its own, as plans make them, and a manifest."""
    parts = [
        listing.rows(table, CONTENT, [(f"s3://us-lake/{name}", f"{ROOT}/us-lake/{name}", size)], 0)
        for table, name, size in rows
    ]
    return listing.concat_files(
        [listing.rows("t", MANIFEST, [("s3://us-lake/m", f"{ROOT}/{localized_path('us-lake/m')}", 9)]), *parts]
    )


def looked_up(rows: Any, **here: int) -> tuple[CheckedFiles, list[list[str]]]:
    """Look files up in a store that has some; also return what it was asked for."""
    requests: list[list[str]] = []

    def sizes(uris: Iterable[str]) -> dict[str, int | None]:
        requests.append(list(uris))
        return {uri: here.get(uri.rpartition("/")[2]) for uri in requests[-1]}

    def listed(folder: str) -> Iterator[tuple[str, int, None]]:
        requests.append([f"{folder}/"])
        return ((f"{folder}/{name.rstrip('/')}", size, None) for name, size in here.items())

    context = cast(
        RegionContext,
        SimpleNamespace(objects=SimpleNamespace(sizes=sizes, list=listed), mapping=MAPPING, region=MAPPING.region),
    )
    return check_targets(context, rows), requests


def planned(listed: CheckedFiles) -> tuple[dict[tuple[str, str], int], int]:
    rows, batches = listed.assign_batches(MAPPING, SyncOptions(files_per_batch=2))
    assert rows.column("source") == listed.content.column("source")
    batch_by_file = {(row["table"], row["source"].rpartition("/")[2]): row["batch"] for row in rows.to_pylist()}
    missing = sum(batch.files for batch in batches)
    assert missing == len({name for (_, name), batch in batch_by_file.items() if batch >= 0})
    return batch_by_file, listed.target_count - missing


def test_what_is_here_with_its_size_is_not_copied() -> None:
    listed, _ = looked_up(files(("t", "b", 2), ("t", "a", 1), ("t", "c", 3), ("t", "d", 0)), a=1, b=3, d=0)
    assert listed.target_count == 4
    assert [(file.target.rpartition("/")[2], file.size) for file in listed.size_mismatches()] == [("b", 2)]
    assert planned(listed) == ({("t", "a"): PROVEN, ("t", "b"): 0, ("t", "c"): 0, ("t", "d"): PROVEN}, 2)


def test_a_size_that_can_not_be_is_not_taken_for_one_that_is_not_there() -> None:
    listed, _ = looked_up(files(("t", "a", -1), ("t", "b", 2)), b=2)
    assert planned(listed)[0] == {("t", "a"): 0, ("t", "b"): PROVEN}


def test_a_file_that_two_tables_need_is_copied_once_and_for_both_when_they_differ() -> None:
    listed, _ = looked_up(files(("t", "a", 1), ("u", "a", 1), ("t", "b", 1), ("u", "b", 2), ("u", "c", 5)), a=1, b=1)
    assert listed.target_count == 3
    batch_by_file, here = planned(listed)
    assert batch_by_file == {("t", "a"): PROVEN, ("u", "a"): PROVEN, ("t", "b"): 0, ("u", "b"): 0, ("u", "c"): 0}
    assert here == 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_neighbours_are_asked_for_together_and_each_once_in_a_stretch(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "CHUNK_ROWS", at_once)
    rows = files(*(("t", name, number) for number, name in enumerate("gfedcba")), ("u", "c", 4))
    listed, requested = looked_up(rows, **{name: number for number, name in enumerate("gfedcba")})
    names = [uri.rpartition("/")[2] for uris in requested for uri in uris]
    assert sorted(set(names)) == list("abcdefg") and names == sorted(names)
    assert listed.target_count == 7
    assert planned(listed) == ({("t", name): PROVEN for name in "abcdefg"} | {("u", "c"): PROVEN}, 7)


MANY = [f"{number:04}" for number in range(PAGE_SIZE)]


@pytest.mark.parametrize(
    ("here", "requests"),
    [
        ({}, 1),
        ({"0000": 1, "0001": 7}, 1),
        (dict.fromkeys(MANY[:-2], 1) | {"x": 1}, 1),
        (dict.fromkeys(MANY[2:], 1) | {"x": 1, "y": 1}, 2),
        (dict.fromkeys(MANY[2:], 1) | {"x": 1, "x/": 0}, 2),  # a folder's marker, which is listed as the file beside it
    ],
)
def test_many_files_of_a_folder_are_asked_for_at_once_where_one_page_lists_it(
    here: dict[str, int], requests: int
) -> None:
    listed, requested = looked_up(files(*(("t", name, 1) for name in reversed(MANY))), **here)
    assert requested[:1] == [[f"{ROOT}/us-lake/"]]
    assert len(requested) == requests
    assert listed.sizes.to_pylist() == [here.get(name) for name in reversed(MANY)]


def test_files_outside_the_replica_root_are_asked_for_one_by_one() -> None:
    """Between two of them another location may begin, whose store is another."""
    rows = [(f"s3://us/{name}", f"s3://home/x/{name}", 1) for name in MANY]
    listed, requested = looked_up(listing.rows("t", CONTENT, rows, 0), **{MANY[0]: 1})
    assert requested == [[f"s3://home/x/{name}" for name in MANY]]
    assert listed.sizes.to_pylist() == [1, *[None] * (PAGE_SIZE - 1)]


def test_no_content_is_no_question() -> None:
    listed, requested = looked_up(files())
    assert requested == [] and listed.target_count == 0
    assert listed.assign_batches(MAPPING, SyncOptions())[1] == ()


def test_a_file_that_two_manifests_list_stands_once_for_each_role() -> None:
    twice = listing.concat_files([files(("t", "a", 1), ("t", "b", 2)), files(("t", "b", 2))])
    assert [row["source"] for row in listing.distinct(twice).to_pylist()] == [
        "s3://us-lake/m",
        "s3://us-lake/a",
        "s3://us-lake/b",
    ]
    assert listing.distinct(files(("t", "a", 1))).num_rows == 2
    assert listing.distinct(listing.concat_files([])).num_rows == 0


def test_roles_are_told_apart_in_mixed_stretches_too() -> None:
    mixed = listing.distinct(listing.concat_files([files(("t", "a", 1)), files(("t", "b", 1))])).combine_chunks()
    assert listing.filter_roles(mixed, CONTENT).column("source").to_pylist() == ["s3://us-lake/a", "s3://us-lake/b"]
    assert listing.filter_roles(mixed, MANIFEST, CONTENT).num_rows == 3
