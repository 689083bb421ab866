"""Assets: the head of `main`, a region's replica as a whole, and every table replicated there.

    sterna://eu/main            `main` has a new commit, seen from region eu
    sterna://eu/transit         tables of eu are in transit: a large lane is wanted
    sterna://eu/                the replica of eu has a new head
    sterna://eu/shop.orders     the table shop.orders is fresh in eu

The path is one segment: the key as `key_name` writes it, percent-encoded. A table whose key is just `main` or `transit`
would share that asset, which only costs runs with nothing to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote

from sterna.catalog.model import Key, key_name, parse_key
from sterna.errors import UsageError

if TYPE_CHECKING:
    from airflow.sdk import Asset, AssetAlias, AssetAny

SCHEME = "sterna"
# The registry's own name for it is not imported: reading the registry's models would cost every task of every DAG.
MAIN = "main"
TRANSIT = "transit"
_REGION = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def replica_asset(region: str, key: str | Key) -> Asset:
    """Return the asset of a table's replica, to schedule a DAG on "this table is fresh in this region".

    Args:
        region: name of the region.
        key: the table's key, as a name (`shop.orders`) or as its elements.

    Raises:
        UsageError: no region is called so, or it is no key.
    """
    elements = parse_key(key) if isinstance(key, str) else key
    return _asset(region, quote(key_name(elements), safe=""))


def region_asset(region: str) -> Asset:
    """Return the asset of a region's replica as a whole, which is updated with each of its new heads.

    Raises:
        UsageError: no region is called so.
    """
    return _asset(region, "")


def main_asset(region: str, registry: str = "", poll_interval: float = 0) -> Asset:
    """Return the asset of `main`'s head, seen from a region.

    Args:
        region: name of the region.
        registry: path of the registry; given, the asset is watched: Airflow's triggerer polls the region's catalog.
        poll_interval: seconds between two polls.

    Raises:
        UsageError: no region is called so.
    """
    asset = _asset(region, MAIN)
    if registry:
        from airflow.sdk import AssetWatcher

        from sterna.airflow.triggers import NessieCommitTrigger

        trigger = NessieCommitTrigger(region=region, registry=registry, poll_interval=poll_interval)
        asset.watchers = [AssetWatcher(name=f"sterna_{region}", trigger=trigger)]
    return asset


def freshness_schedule(region: str, tables: Sequence[str]) -> Asset | AssetAny:
    """Return what starts a run when one of some tables is fresh in a region.

    Args:
        tables: the tables; none: whatever becomes fresh there.

    Raises:
        UsageError: no region, or no table, is called so.
    """
    from airflow.sdk import AssetAny

    return AssetAny(*(replica_asset(region, table) for table in tables)) if tables else region_asset(region)


def transit_asset(region: str) -> Asset:
    """Return the asset that is updated when tables of a region come into transit.

    Raises:
        UsageError: no region is called so.
    """
    return _asset(region, TRANSIT)


def asset_alias() -> AssetAlias:
    """Return the alias through which assets are announced: the tables are known at run time only."""
    from airflow.sdk import AssetAlias

    return AssetAlias(SCHEME)


def normalize_uri(uri: SplitResult) -> SplitResult:
    """Check an asset URI of the scheme `sterna` and spell it in the one way that is compared with others.

    Raises:
        ValueError: it is no `sterna://<region>/<key>`.
    """
    if not _REGION.fullmatch(uri.netloc) or uri.query:
        raise ValueError("expected sterna://<region>/<key>")
    encoded = uri.path.removeprefix("/")
    if not encoded:
        return uri._replace(path="/")
    if "/" in encoded:
        raise ValueError(
            "a key is one part of the path: write a slash in a name as %2F, and the dot between two names as it is"
        )
    try:
        name = key_name(parse_key(unquote(encoded, errors="strict")))
    except (UsageError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return uri._replace(path="/" + quote(name, safe=""))


def _asset(region: str, path: str) -> Asset:
    from airflow.sdk import Asset

    if not _REGION.fullmatch(region):
        raise UsageError(f"{region!r} can't be a region's name")
    # Airflow identifies assets by name and URI together: so both are always the same.
    uri = f"{SCHEME}://{region}/{path}"
    return Asset(name=uri, uri=uri)
