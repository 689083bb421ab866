"""Sizes of many files in a store that is a folder of this machine."""

from pathlib import Path

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.errors import StoreUnreachable
from sterna.storage.objects import Objects
from tests.unit.config import samples


def open_folder(folder: Path) -> Objects:
    registry = Registry.model_validate(
        {
            "regions": [samples.region("eu", f"file://{folder}/eu/replica")],
            "locations": [samples.location("eu", f"file://{folder}/eu", "eu")],
        }
    )
    return Objects(Mapping(registry, registry.region("eu")), environment_secrets())


def test_what_is_there_is_seen_beside_folders_that_are_not(tmp_path: Path) -> None:
    names = {"t/a b/x": 1, "t/p=1/é": 2, "t/p=1/y": 3, "t/#1/z": 4, "t/p%2F/z": 5}
    objects = open_folder(tmp_path)
    for name, size in names.items():
        objects.write_new(f"file://{tmp_path}/eu/{name}", b"x" * size)
    absent = ["t/p=2/x", "t/p=1/x", "u/deep/down/x", "t/no #/x"]
    sizes = objects.sizes(f"file://{tmp_path}/eu/{name}" for name in (*names, *absent))
    assert list(sizes.values()) == [*names.values(), *(None for _ in absent)]


def test_files_of_a_missing_folder_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eu").mkdir()
    objects, uris = open_folder(tmp_path), [f"file://{tmp_path}/eu/t/p={n % 9}/{n}" for n in range(900)]
    asked: list[str] = []
    monkeypatch.setattr("obstore.head", lambda client, key: asked.append(key))
    assert set(objects.sizes(uris).values()) == {None}
    assert not asked


def test_a_folder_that_is_a_loop_is_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / "eu").mkdir()
    (tmp_path / "eu/loop").symlink_to("loop")
    with pytest.raises(StoreUnreachable):
        open_folder(tmp_path).sizes([f"file://{tmp_path}/eu/loop/x"])
