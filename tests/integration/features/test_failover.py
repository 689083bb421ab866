"""A store that fails over behind real sentinels, and one that answers too slowly: nothing wrong is told meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import valkey as client

from sterna.config.registry.connection import Credential
from sterna.config.sections.features import Features, FeatureView, OnlineConfig
from sterna.errors import FeaturesError
from sterna.pipelines.features import online as features_online
from sterna.pipelines.features.model import State, view_digest
from sterna.pipelines.features.online import (
    AsOf,
    CacheStatus,
    FeatureAnswer,
    FeatureReader,
    OnlineStore,
    ReadSlot,
    SourceRows,
)
from sterna.pipelines.features.store import FeatureStore
from sterna.pipelines.features.valkey import open_async_store, open_store
from sterna.servers.process import LOOPBACK, Process, free_port, start_process
from sterna.servers.valkey import ValkeyServer, find_valkey
from tests.integration.features.conftest import read

PASSWORD = "choose-one"
TIMEOUT_SECONDS = 60.0


@dataclass
class Pair:
    """A primary and its replica behind a sentinel.

    Args:
        url: as the services file names them.
        primary: the first primary.
    """

    url: str
    primary: Process


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    first, second, sentinel = free_port(), free_port(), free_port()
    common = f'bind {LOOPBACK}\nrequirepass {PASSWORD}\nmasterauth {PASSWORD}\nsave ""\nrepl-diskless-sync-delay 0\n'
    settings = {
        f"port {first}\n{common}": [],
        f"port {second}\n{common}replicaof {LOOPBACK} {first}\n": [],
        f"port {sentinel}\nbind {LOOPBACK}\nsentinel monitor m {LOOPBACK} {first} 1\nsentinel auth-pass m {PASSWORD}\n"
        "sentinel down-after-milliseconds m 5000\nsentinel failover-timeout m 5000\n": ["--sentinel"],
    }
    with ExitStack() as stack:
        started = []
        for number, (text, more) in enumerate(settings.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "valkey.conf").write_text(f'{text}dir "{folder}"\n')
            command = [find_valkey(), folder / "valkey.conf", *more]
            started.append(start_process(f"Valkey {number}", command, log=folder / "log", cwd=folder))
            stack.callback(started[-1].stop)
        sentinel_client = client.Valkey(host=LOOPBACK, port=sentinel, decode_responses=True)
        until(lambda: sentinel_client.sentinel_master("m")["num-slaves"] == 1)
        yield Pair(f"valkey+sentinel://{LOOPBACK}:{sentinel}/m", started[0])


def until(done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        with suppress(client.ConnectionError, client.ResponseError, FeaturesError):
            if met := done():
                return met
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def features_at(url: str) -> Features:
    section = {
        "online": {"eu": {"url": url, "credential_id": "v"}},
        "entities": [{"name": "user", "key": {"user_id": "long"}}],
        "views": [{"name": "user", "entity": "user", "table": "n.users", "features": ["age"], "unique": True}],
    }
    features = read(section).features
    assert features is not None
    return features


def filled(store: FeatureStore, features: Features) -> State:
    """Fill the view with one row."""
    view = features.views_by_name["user"]
    digest = view_digest(view, features.entity_of(view)) + "/x"
    run = store.begin("user", store.state("user"), (7, 7), digest, (), full=True)
    store.put(run, [("1", b"[30]")])
    store.finish(run, run.server_id)
    return store.state("user")


class Replica:
    """The region's replica, with one row more than the store has."""

    async def rows(self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, turn: ReadSlot) -> SourceRows:
        return SourceRows(8, 8, {id: [31] for id in ids if id in ("1", "2")})


def read_features(features: Features, online: OnlineConfig, password: str, id: str) -> FeatureAnswer:
    async def one() -> FeatureAnswer | None:
        store = OnlineStore(online, lambda _: Credential("v", "", password))
        reader = FeatureReader(features, store, Replica(), retry_seconds=0.0)
        try:
            return await reader.read(features.views_by_name["user"], [id])
        finally:
            await reader.close()

    answer = asyncio.run(one())
    assert answer is not None
    return answer


def test_after_a_failover_rows_are_told_and_none_is_said_to_be_missing(pair: Pair) -> None:
    features = features_at(pair.url)
    online = features.online["eu"]
    store = FeatureStore(online, lambda _: Credential("v", "", PASSWORD))
    before = until(lambda: filled(store, features))
    assert before.complete_server == store.server_id()
    primary: Any = open_store(online.url, online.credential_id, lambda _: Credential("v", "", PASSWORD))
    until(lambda: primary.set("seen", 1) and primary.wait(1, 1000))  # the replica has all of it
    assert until(lambda: read_features(features, online, PASSWORD, "2").cache_status is CacheStatus.MISS)
    pair.primary.stop()
    after = until(store.server_id)
    assert after != before.complete_server and store.state("user") == before
    assert until(lambda: read_features(features, online, PASSWORD, "1").cache_status is CacheStatus.HIT)
    # It may have lost rows on its way: what isn't there is asked of the replica, until the view is filled anew.
    missed = read_features(features, online, PASSWORD, "2")
    assert (missed.cache_status, missed.rows) == (CacheStatus.BYPASS, {"2": {"age": 31}})
    assert filled(store, features).complete_server == after
    assert read_features(features, online, PASSWORD, "2").rows == {"2": None}
    store.close()


def test_a_store_that_is_slow_holds_up_nobody(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    features = features_at(valkey.url)
    online = features.online["eu"]
    store = FeatureStore(online, lambda _: Credential("v", "", valkey.password))
    filled(store, features)
    assert read_features(features, online, valkey.password, "1").rows == {"1": {"age": 30}}
    # Stopped in its tracks: a pause of its own commands would hold up the command that ends it.
    server = psutil.Process(valkey.process.pid)
    server.suspend()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(features_online, "open_async_store", open_async_store)
            slow = read_features(features, online, valkey.password, "1")
        assert (slow.cache_status, slow.rows) == (CacheStatus.BYPASS, {"1": {"age": 31}})
    finally:
        server.resume()
    assert until(lambda: read_features(features, online, valkey.password, "1").cache_status is CacheStatus.HIT)
    store.clear("user")
    store.close()
