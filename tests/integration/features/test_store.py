"""The store's own steps on a real Valkey, without a replica: who comes late takes nothing from who came after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sterna.config.registry.connection import Credential
from sterna.config.sections.features import FeatureView, OnlineConfig
from sterna.errors import FeaturesMoved, FeatureStoreFull
from sterna.pipelines.features import materialize as materializing
from sterna.pipelines.features import status as telling
from sterna.pipelines.features.model import Column, State, view_digest
from sterna.pipelines.features.online import AsOf, CacheStatus, FeatureReader, OnlineStore, ReadSlot, SourceRows
from sterna.pipelines.features.store import FeatureStore, FillRun
from sterna.servers.valkey import ValkeyServer
from tests.integration.features.conftest import SECTION, client_of, read

COLUMNS = (Column("age", 2, "int"),)


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[FeatureStore]:
    feature_store = FeatureStore(
        OnlineConfig(url=valkey.url, credential_id="v"), lambda id: Credential(id, "", valkey.password)
    )
    client_of(valkey).flushall()
    yield feature_store
    client_of(valkey).flushall()
    feature_store.close()


def begun(store: FeatureStore, snapshot: int) -> FillRun:
    return store.begin("user", store.state("user"), (snapshot, snapshot), "d", COLUMNS, full=True)


def rows(store: FeatureStore) -> dict[str, Any]:
    return {id: value.row for id, value in store.rows("user")}


def test_a_sweep_that_slept_takes_nothing_of_a_newer_epoch(store: FeatureStore) -> None:
    zombie = begun(store, 1)
    store.put(zombie, [("1", b"[1]"), ("2", b"[2]")])
    run = begun(store, 2)
    store.put(run, [("1", b"[11]")])
    assert store.delete_older_generations("user", run.generation) == 1
    store.finish(run, run.server_id)
    assert store.delete_older_generations("user", zombie.generation) == 0
    with pytest.raises(FeaturesMoved):
        store.finish(zombie, zombie.server_id)
    assert rows(store) == {"1": [11]} and store.state("user").complete_server == store.server_id()


def test_who_refused_a_view_before_takes_nothing_that_came_after(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(begun(store, 1), [("1", b"[1]"), ("2", b"[2]")])
    scan, came = store.value_keys, []

    def slept(view: str) -> Iterator[list[bytes]]:
        if not came:
            came.append(1)
            store.put(begun(store, 2), [("1", b"[11]")])
        return scan(view)

    monkeypatch.setattr(store, store.value_keys.__name__, slept)
    assert store.exclude("user", "residency") == 1
    assert rows(store) == {"1": [11]}


def test_a_view_that_is_emptied_has_no_rows_and_is_not_refused(store: FeatureStore) -> None:
    run = begun(store, 1)
    store.put(run, [("1", b"[1]")])
    store.finish(run, run.server_id)
    assert store.clear("user") == 1
    assert (
        store.state("user") == State(generation=store.state("user").generation)
        and store.state("user").generation > run.generation
    )
    with pytest.raises(FeaturesMoved):
        store.put(run, [("1", b"[1]")])


def test_a_full_store_goes_on_telling_what_it_has(store: FeatureStore, valkey: ValkeyServer) -> None:
    run = begun(store, 1)
    store.put(run, [("1", b"[1]")])
    store.finish(run, run.server_id)

    async def fill_and_read() -> Any:
        online = OnlineStore(
            OnlineConfig(url=valkey.url, credential_id="v"), lambda id: Credential(id, "", valkey.password)
        )
        try:
            with pytest.raises(FeatureStoreFull):
                await online.fill("user", "2", b"x", store.state("user"), 60)
            return await online.read("user", ["1"])
        finally:
            await online.close()

    before = client_of(valkey).config_get("maxmemory")["maxmemory"]
    client_of(valkey).config_set("maxmemory", 1)
    try:
        _, (value,) = asyncio.run(fill_and_read())
    finally:
        client_of(valkey).config_set("maxmemory", before)
    assert value is not None and value.row == [1]


class _Replica:
    async def rows(self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, turn: ReadSlot) -> SourceRows:
        return SourceRows(1, 0, {id: ["1", "2", None][: len(view.columns)] for id in ids}, frozenset({1}))


def test_a_cache_takes_no_row_of_other_columns_than_its_state_has(store: FeatureStore, valkey: ValkeyServer) -> None:
    """Another services file lists a view's columns in another order: its reader must not fill what others read."""
    features = read(yaml.safe_load(SECTION.replace("URL", store.url).replace("NS", "n"))).features
    assert features is not None
    view = next(candidate for candidate in features.views if candidate.retention_seconds is not None)

    async def filled(digest: str) -> tuple[CacheStatus, bool]:
        client_of(valkey).flushall()
        run = store.begin(view.name, store.state(view.name), (1, 1), digest, COLUMNS, full=True)
        store.finish(run, run.server_id)
        online = OnlineStore(
            OnlineConfig(url=valkey.url, credential_id="v"), lambda id: Credential(id, "", valkey.password)
        )
        reader = FeatureReader(features, online, _Replica())
        try:
            answer = await reader.read(view, ["1"])
            assert answer is not None
            return answer.cache_status, any(store.rows(view.name))
        finally:
            await reader.close()

    assert asyncio.run(filled("another/table")) == (CacheStatus.BYPASS, False)
    own = view_digest(view, features.entity_of(view))
    assert asyncio.run(filled(f"{own}/table")) == (CacheStatus.MISS, True)


def test_a_fill_needs_the_digest_that_was_seen(store: FeatureStore, valkey: ValkeyServer) -> None:
    run = begun(store, 1)
    store.finish(run, run.server_id)
    seen = store.state("user")
    client_of(valkey).hset("features.state:user", "digest", "other")

    async def fill(state: State) -> bool:
        online = OnlineStore(
            OnlineConfig(url=valkey.url, credential_id="v"), lambda id: Credential(id, "", valkey.password)
        )
        try:
            return await online.fill("user", "1", b"x", state, 60)
        finally:
            await online.close()

    assert not asyncio.run(fill(seen))
    assert asyncio.run(fill(store.state("user")))


def test_a_table_without_rows_leaves_none_in_the_store_and_no_alarm_green(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = read(yaml.safe_load(SECTION.replace("URL", store.url).replace("NS", "n"))).features
    assert features is not None
    here = SimpleNamespace(exclusion_reason=lambda table, region: "")
    catalog = SimpleNamespace(contents=lambda branch, hash, keys: {})
    region = SimpleNamespace(name="eu", replica_branch="replica_eu")
    context: Any = SimpleNamespace(registry=here, region=region, catalog=catalog)
    monkeypatch.setattr(telling, "read_head", lambda catalog, branch: SimpleNamespace(hash="h"))
    monkeypatch.setattr(materializing, "load_view", lambda *_: None)  # dropped, and made anew without rows
    assert telling.read_status(context, features, store)[0].blocked is None
    run = begun(store, 1)
    store.put(run, [("1", b"[1]")])
    store.finish(run, run.server_id)
    assert "the store has some" in telling.read_status(context, features, store)[0].message
    spark: Any = None
    materialized = materializing.materialize_view(context, spark, store, features, features.views_by_name["user"])
    assert (materialized.how, materialized.gone, rows(store)) == ("empty", 1, {})
    assert telling.read_status(context, features, store)[0].blocked is None
    epoch = store.state("user").generation
    assert materializing.materialize_view(context, spark, store, features, features.views_by_name["user"]).gone == 0
    assert store.state("user").generation == epoch, "nothing is done twice"
