"""Where metadata is localized: here while there is little to do, or as the registry says."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.registry.model import Region
from sterna.sync.model import MANIFEST, MANIFEST_LIST, METADATA, PROVEN
from sterna.sync.place import HERE_BYTES, HERE_FILES, place_of, places


def region(localize: str = "auto") -> Region:
    address = {"read": "http://127.0.0.1:1/api/v2"}
    return Region.model_validate({"name": "eu", "replica_root": "s3://eu/r", "catalog": address, "localize": localize})


def rows(role: str, *sizes: int, batch: int = -1) -> list[dict[str, Any]]:
    return [{"role": role, "size": size, "batch": batch} for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "where"),
    [
        ((1,), "here"),
        ((1,) * HERE_FILES, "here"),
        ((1,) * (HERE_FILES + 1), "spark"),
        ((HERE_BYTES,), "here"),
        ((HERE_BYTES, 1), "spark"),
        ((HERE_BYTES, -1), "here"),  # of unknown size: the metadata.json, which the plan has read already
    ],
)
def test_little_is_done_here_and_much_on_spark(sizes: tuple[int, ...], where: str):
    assert place_of(region(), MANIFEST, rows(MANIFEST, *sizes)).where == where


@pytest.mark.parametrize(("localize", "size"), [("spark", 1), ("here", HERE_BYTES * 2)])
def test_the_registry_can_force_either(localize: str, size: int):
    place = place_of(region(localize), MANIFEST, rows(MANIFEST, size))
    assert place.where == localize
    assert f"localize: {localize}" in place.line


def test_a_plan_names_the_place_of_each_pass_in_order():
    many = rows(METADATA, -1) + rows(MANIFEST_LIST, 10) + rows(MANIFEST, *range(HERE_FILES + 1)) + rows(MANIFEST, 9, batch=PROVEN)
    found = [(place.role, place.files, place.where) for place in places(region(), many)]
    assert found == [(MANIFEST, HERE_FILES + 1, "spark"), (MANIFEST_LIST, 1, "here"), (METADATA, 1, "here")]
