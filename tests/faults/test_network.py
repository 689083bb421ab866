"""A network, or a server, that fails between sterna and each of its three others.

The foreign store, its own store, the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from urllib.parse import urlsplit

import pytest

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import Deadlines
from sterna.errors import EngineError, Remedy, SternaError, StoreUnreachable
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.storage.objects import Objects
from tests.support.faults.pair import BRANCH, Pair
from tests.support.faults.proxy import Fault, Proxy, flipped, half_open, late, proxy_to, reset, truncated, unavailable
from tests.support.often import often
from tests.support.regions import with_ports

PLACES = ("us", "eu", "catalog")
# How long eu waits for an answer. Only where none comes by itself it has to be short: a busy machine needs longer.
_TIMEOUT_SECONDS = 20.0
_SHORT = dict.fromkeys((late, half_open), 2.0)
_SYNCS = 4
# Each place, and each fault, at least twice.
_EVERY_RUN = (
    ("us", truncated),
    ("us", half_open),
    ("eu", unavailable),
    ("eu", half_open),
    ("catalog", reset),
    ("catalog", late),
    ("catalog", truncated),
)


@contextmanager
def faulty(
    pair: Pair, place: str, timeout: float = _TIMEOUT_SECONDS, **addresses: str
) -> Iterator[tuple[RegionContext, Proxy]]:
    """Yield eu, which reaches one of the places through a proxy, and waits so many seconds for any of them.

    Others by addresses as in `Pair.context`.
    """
    address = pair.stage.nessie.uri if place == "catalog" else pair.stage.endpoints[place].url
    with proxy_to(urlsplit(address).port or 0) as proxy:
        path = "/api/v2" if place == "catalog" else ""
        with pair.context(**{place: proxy.url + path}, **addresses) as context:
            deadlines = Deadlines(read=timeout / 2, total=timeout, attempts=3, backoff=0.05)
            catalog = NessieCatalog(context.region.catalog.read, deadlines=deadlines)
            objects = Objects(context.mapping, context.secrets, timeout=timeout)
            yield with_ports(context, catalog=catalog, primary=catalog, objects=objects), proxy


def new_data(pair: Pair) -> None:
    """A table that is known here gets a file, and there is a new one."""
    existing = pair.create()
    pair.sync()
    pair.append(existing)
    pair.create()


@pytest.mark.parametrize(
    ("place", "fault"), often(product(PLACES, (reset, unavailable, truncated, late, half_open)), _EVERY_RUN)
)
def test_a_fault_that_passes_is_borne(pair: Pair, place: str, fault: Fault) -> None:
    new_data(pair)
    with faulty(pair, place, _SHORT.get(fault, _TIMEOUT_SECONDS)) as (context, proxy):
        proxy.strike(fault, times=2)
        for _ in range(_SYNCS):
            try:
                held = pair.sync(context).held
            except SternaError as error:
                assert error.remedy is Remedy.RETRY, error
                continue
            if not held:
                break
            # One table met the fault and another did not: that one goes on, and the next sync takes up this one.
            assert {table.kind for table in held} == {StoreUnreachable.__name__}, held
        else:
            pytest.fail(f"nothing got ahead in {_SYNCS} syncs")
        assert proxy.struck
    pair.assert_equal()


@pytest.mark.parametrize(
    ("place", "fault"),
    often(product(PLACES, (reset, unavailable, truncated, half_open)), [one for one in _EVERY_RUN if one[1] != late]),
)
def test_a_fault_that_stays_is_told_and_changes_nothing(pair: Pair, place: str, fault: Fault) -> None:
    new_data(pair)
    before = pair.catalog.reference(BRANCH).hash
    with faulty(pair, place, _SHORT.get(fault, _TIMEOUT_SECONDS)) as (context, proxy):
        proxy.strike(fault)
        with pytest.raises(SternaError) as caught:
            pair.sync(context)
        assert caught.value.remedy is Remedy.RETRY
        assert proxy.url.removeprefix("http://") in str(caught.value)
        pair.assert_no_secret(str(caught.value))
        assert pair.catalog.reference(BRANCH).hash == before
        proxy.heal()
        assert pair.sync(context).held == ()
    pair.assert_equal()


def test_a_bit_that_flips_on_the_way_is_not_believed(pair: Pair) -> None:
    new_data(pair)
    with faulty(pair, "us") as (context, proxy):
        planned = stages.plan(context, SyncOptions(), lambda line: None)
        proxy.strike(flipped)
        # rclone sends the source's own MD5 along, and the store refuses what doesn't fit it.
        with pytest.raises(EngineError, match="2 files were not copied") as caught:
            stages.copy(context, planned.run, 0, lambda line: None)
        assert caught.value.remedy is Remedy.RETRY
        assert proxy.struck
        proxy.heal()
        assert pair.sync(context).held == ()
    pair.assert_equal()
