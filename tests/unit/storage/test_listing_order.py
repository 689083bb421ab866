"""Listings of stores that have another order than that of whole keys: what is there is never proven missing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.config.registry.azure import AZURE
from sterna.config.registry.s3 import S3
from sterna.storage import listing

_PAGE = 12

# Azure Blob Storage with a hierarchical namespace, and servers that walk folders on disk: `a/b` before `a-b`.
_ORDERS: dict[str, Callable[[str], Any]] = {"keys": str, "folders": lambda key: key.split("/")}


def _store(monkeypatch: pytest.MonkeyPatch, kind: Any, present: Sequence[str], order: str, seeks: str) -> Any:
    listed, seek_key = sorted(present, key=_ORDERS[order]), _ORDERS[seeks]

    def pages(store: Any, uri: str, prefix: str, offset: str = "") -> Iterator[Sequence[dict[str, Any]]]:
        names = [key for key in listed if key.startswith(f"{prefix}/") and seek_key(key) > seek_key(offset)]
        for start in range(0, len(names), _PAGE):
            yield [{"path": name, "size": len(name)} for name in names[start : start + _PAGE]]

    monkeypatch.setattr(listing, "PAGE_SIZE", _PAGE)
    monkeypatch.setattr(listing, "list_pages", pages)
    return SimpleNamespace(location=SimpleNamespace(store_type=kind, prefix="x://y"))


@pytest.mark.parametrize(("order", "seeks"), [("keys", "keys"), ("folders", "keys"), ("folders", "folders")])
@pytest.mark.parametrize("kind", [S3, AZURE], ids=["seekable", "azure"])
def test_what_a_listing_has_not_come_to_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, kind: Any, order: str, seeks: str
) -> None:
    dice, answered = random.Random(7), 0
    for _ in range(200):
        folders = [f"r/{name}" for name in dice.sample(["DE", "DE-BY", "DE BY", "DE.x", "DE/in", "D", "DEU", "E"], 4)]
        universe = [f"{folder}/{number:03}" for folder in folders for number in range(dice.choice([1, 9, 40]))]
        present = set(dice.sample(universe, dice.randrange(len(universe) + 1)))
        keys = sorted(dice.sample(universe, min(len(universe), dice.choice([10, 25, 45]))))
        store = _store(monkeypatch, kind, sorted(present), order, seeks)
        for run in listing.key_runs(store, keys):
            for key, size in listing.list_run(store, run).items():
                assert size == (len(key) if key in present else None), f"{key} of {keys}, with {sorted(present)}"
                answered += 1
    assert answered > 500
