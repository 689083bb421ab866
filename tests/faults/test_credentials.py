"""Keys of a session that is over: read once more, and used where there are new ones by then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sterna.config.environment import temporary_environment
from sterna.errors import ObjectMissing, StoreDenied
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync import stages
from tests.faults.test_network import faulty, new_data
from tests.support.faults.pair import BRANCH, Pair
from tests.support.faults.proxy import expired
from tests.support.often import often

OLD, NEW = "session-that-ends-soon", "session-that-is-young"


@contextmanager
def session(pair: Pair, region: str, token: str) -> Iterator[None]:
    """Let the connection of a region's store say a session token."""
    endpoint = pair.stage.endpoints[region]
    connection = {
        "conn_type": "aws",
        "login": endpoint.access_key,
        "password": endpoint.secret_key,
        "extra": {"session_token": token},
    }
    with temporary_environment({f"AIRFLOW_CONN_STERNA_{region.upper()}": json.dumps(connection)}):
        yield


@pytest.mark.parametrize("place", ["us", "eu"])
def test_a_session_that_ends_within_a_sync_is_renewed_once(pair: Pair, place: str) -> None:
    new_data(pair)
    with faulty(pair, place) as (context, proxy):
        with session(pair, place, OLD):
            planned = stages.plan(context, SyncOptions(), lambda line: None)
        proxy.strike(expired(OLD))
        with session(pair, place, NEW):
            copied = stages.copy(context, planned.run, 0, lambda line: None)
            assert copied.failed == ()
            localized = stages.localize(context, planned.run, copied, lambda line: None)
            assert stages.publish(context, planned.run, copied, localized, lambda line: None).held == ()
        assert proxy.struck
    pair.assert_equal()


@pytest.mark.parametrize("call", often(["read", "size", "sizes", "list", "write"], ["read", "write"]))
def test_each_kind_of_request_is_made_once_more_with_the_new_keys(pair: Pair, call: str) -> None:
    pair.sync()
    with faulty(pair, "eu") as (context, proxy):
        objects, root = context.objects, context.region.replica_root
        calls = {
            "read": lambda: objects.read(f"{root}/nothing"),
            "size": lambda: objects.size(f"{root}/nothing"),
            "sizes": lambda: objects.sizes(f"{root}/nothing-{number}" for number in range(30)),
            "list": lambda: next(iter(objects.list(root))),
            "write": lambda: objects.write_new(f"{root}/_sterna/runs/new", b"x", assume_absent=True),
        }
        with session(pair, "eu", OLD):
            objects.size(f"{root}/nothing")
            proxy.strike(expired(OLD))
            if call != "size":
                with pytest.raises(StoreDenied, match="'sterna_eu'") as caught:
                    calls[call]()
                assert OLD not in str(caught.value)
        with session(pair, "eu", NEW):
            if call == "read":
                with pytest.raises(ObjectMissing):
                    calls[call]()
            else:
                calls[call]()


def test_a_session_that_nobody_renews_stops_the_sync_and_shows_nothing(pair: Pair) -> None:
    new_data(pair)
    before = pair.catalog.reference(BRANCH).hash
    with faulty(pair, "us") as (context, proxy), session(pair, "us", OLD):
        proxy.strike(expired(OLD))
        with pytest.raises(StoreDenied, match="'sterna_us'") as caught:
            pair.sync(context)
        pair.assert_no_secret(str(caught.value))
        assert OLD not in str(caught.value)
        assert pair.catalog.reference(BRANCH).hash == before
    assert pair.sync().held == ()
    pair.assert_equal()
