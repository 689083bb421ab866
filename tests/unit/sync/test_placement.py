"""Where metadata is localized: here while there is little to do, or as the registry says."""

from __future__ import annotations

import pytest

from sterna.config.registry.model import Region
from sterna.replication.execution.executor import MAX_LOCAL_BYTES, MAX_LOCAL_FILES, choose_placement, plan_placements
from sterna.replication.replica.file_list import MANIFEST, MANIFEST_LIST, METADATA, PROVEN, concat_files, rows


def region(localize: str = "auto") -> Region:
    address = {"read": "http://127.0.0.1:1/api/v2"}
    return Region.model_validate({"name": "eu", "replica_root": "s3://eu/r", "catalog": address, "localize": localize})


@pytest.mark.parametrize(
    ("sizes", "where"),
    [
        ((1,), "here"),
        ((1,) * MAX_LOCAL_FILES, "here"),
        ((1,) * (MAX_LOCAL_FILES + 1), "spark"),
        ((MAX_LOCAL_BYTES,), "here"),
        ((MAX_LOCAL_BYTES, 1), "spark"),
        ((MAX_LOCAL_BYTES, -1), "here"),  # of unknown size: the metadata.json, which the plan has read already
    ],
)
def test_little_is_done_here_and_much_on_spark(sizes: tuple[int, ...], where: str):
    assert choose_placement(region(), MANIFEST, sizes).where == where


@pytest.mark.parametrize(("localize", "size"), [("spark", 1), ("here", MAX_LOCAL_BYTES * 2)])
def test_the_registry_can_force_either(localize: str, size: int):
    place = choose_placement(region(localize), MANIFEST, [size])
    assert place.where == localize
    assert f"localize: {localize}" in place.line


def test_a_plan_names_the_place_of_each_pass_in_order():
    parts = [
        rows("t", METADATA, [("m", "n", -1)]),
        rows("t", MANIFEST_LIST, [("m", "n", 10)]),
        rows("t", MANIFEST, [(f"m{number}", "n", number) for number in range(MAX_LOCAL_FILES + 1)]),
        rows("t", MANIFEST, [("m", "n", 9)], PROVEN),
    ]
    placed = [(place.role, place.files, place.where) for place in plan_placements(region(), concat_files(parts))]
    assert placed == [(MANIFEST, MAX_LOCAL_FILES + 1, "spark"), (MANIFEST_LIST, 1, "here"), (METADATA, 1, "here")]
