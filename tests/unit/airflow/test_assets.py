from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import pytest

from sterna.airflow.assets import MAIN, main_asset, normalize_uri, region_asset, replica_asset
from sterna.airflow.triggers import NessieCommitTrigger
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import UsageError


def _normalized(uri: str) -> str:
    return urlunsplit(normalize_uri(urlsplit(uri)))


@pytest.mark.parametrize(
    ("key", "uri"),
    [
        ("shop.orders", "sterna://eu/shop.orders"),
        (("shop", "orders"), "sterna://eu/shop.orders"),
        (("größe", "élan"), "sterna://eu/gr%C3%B6%C3%9Fe.%C3%A9lan"),
        (("a.b", "c"), "sterna://eu/a%5C.b.c"),
        (("a/b", "50% #1?"), "sterna://eu/a%2Fb.50%25%20%231%3F"),
    ],
)
def test_an_asset_spells_its_key_in_one_way(key: str | tuple[str, ...], uri: str) -> None:
    asset = replica_asset("eu", key)
    assert (asset.name, asset.uri) == (uri, uri)
    assert _normalized(uri) == uri


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("sterna://eu/größe", "sterna://eu/gr%C3%B6%C3%9Fe"),
        ("sterna://eu/shop%2Eorders", "sterna://eu/shop.orders"),
        ("sterna://eu/", "sterna://eu/"),
        ("sterna://eu", "sterna://eu/"),
    ],
)
def test_other_spellings_become_the_one(written: str, normal: str) -> None:
    assert _normalized(written) == normal


@pytest.mark.parametrize(
    "uri",
    [
        "sterna:///shop.orders",
        "sterna://EU/x",
        "sterna://u:p@eu/x",
        "sterna://eu/a/b",
        "sterna://eu/a..b",
        "sterna://eu/a?b=c",
        "sterna://eu/%ff",
    ],
)
def test_what_names_no_table_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        normalize_uri(urlsplit(uri))


def test_airflow_itself_normalizes_and_refuses() -> None:
    from airflow.sdk import Asset

    assert Asset(uri="sterna://eu/größe").uri == replica_asset("eu", "größe").uri
    with pytest.raises(ValueError, match="one part of the path"):
        Asset(uri="sterna://eu/a/b")


def test_a_wrong_region_or_key_is_refused_where_it_is_written() -> None:
    with pytest.raises(UsageError):
        replica_asset("eu/..", "shop.orders")
    with pytest.raises(UsageError):
        replica_asset("eu", "shop..orders")


def test_the_head_of_main_is_watched_only_where_a_registry_is_given() -> None:
    (watcher,) = main_asset("eu", "/etc/registry.yaml", 2.0).watchers
    assert isinstance(watcher.trigger, NessieCommitTrigger)
    assert main_asset("eu").watchers == []
    assert main_asset("eu").uri == "sterna://eu/main"
    assert region_asset("eu").uri == "sterna://eu/"
    assert MAIN == SOURCE_BRANCH
