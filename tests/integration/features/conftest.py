"""A Valkey of its own for each module, and a services file that names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import yaml
from valkey import Valkey

from sterna.config.registry.connection import Credential
from sterna.config.secrets import Secrets
from sterna.config.sections.features import Features
from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.pipelines.features import online
from sterna.pipelines.features.materialize import Materialization, materialize_view
from sterna.pipelines.features.store import FeatureStore
from sterna.pipelines.features.valkey import open_async_store
from sterna.replication.replica.region import RegionContext
from sterna.servers.valkey import ValkeyServer, start_valkey
from tests.support.world import World

SECTION = """
online: {eu: {url: URL, credential_id: valkey_eu}}
entities: [{name: user, key: {user_id: long}}]
views:
- {name: user, entity: user, table: NS.users, features: [age, city, balance, last_updated_ts], unique: true,
   event_time: last_updated_ts, time_travel: 90d}
- {name: hot, entity: user, table: NS.users, features: [city], unique: true, serve: cache, ttl: 3600}
- {name: seen, entity: user, table: NS.clicks, features: [page], event_time: at, max_age: 2h}
services: [{name: pricing, features: [user.age, user.balance, seen.page]}]
"""


@pytest.fixture(autouse=True)
def patient_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features leave a store alone that is silent for half a second, as each is on a busy machine."""
    monkeypatch.setattr(online, "open_async_store", partial(open_async_store, timeout=30.0))


@dataclass
class FeatureTestbed:
    """A region with features: its store, its settings, and what fills them."""

    world: World
    server: ValkeyServer
    services: Services
    section: dict[str, Any]

    @property
    def features(self) -> Features:
        assert self.services.features is not None
        return self.services.features

    @property
    def secrets(self) -> Secrets:
        return with_password(lambda id: _unexpected_credential(id), self.server)

    def context(self) -> RegionContext:
        context = self.world.context()
        return RegionContext.of(context.registry, context.region, with_password(context.secrets, self.server))

    @property
    def client(self) -> Any:
        """A client of the store's server that isn't sterna's."""
        return client_of(self.server)

    @property
    def store(self) -> FeatureStore:
        return FeatureStore(self.features.online["eu"], self.secrets)

    def fill(self, name: str, *, rebuild: bool = False) -> Materialization:
        with self.context() as context:
            view = self.features.views_by_name[name]
            return materialize_view(context, self.world.spark, self.store, self.features, view, rebuild=rebuild)

    def rows(self, view: str) -> dict[str, Any]:
        return {id: value.row for id, value in self.store.rows(view)}

    def with_view(self, view: str, **changes: Any) -> FeatureTestbed:
        """The same with other settings of a view."""
        section = yaml.safe_load(yaml.safe_dump(self.section))
        next(candidate for candidate in section["views"] if candidate["name"] == view).update(changes)
        return replace(self, services=read(section), section=section)


def _unexpected_credential(id: str) -> Credential:
    raise AssertionError(id)


def with_password(secrets: Secrets, server: ValkeyServer) -> Secrets:
    def read_credential(id: str) -> Credential:
        return Credential(id, "", server.password) if id == "valkey_eu" else secrets(id)

    return read_credential


def read(section: dict[str, Any]) -> Services:
    return parse_services(yaml.safe_dump({"version": 1, "features": section}, sort_keys=False), "s.yaml")


def client_of(server: ValkeyServer) -> Any:
    """Return a client that looks into a server, and changes what is there."""
    return Valkey("127.0.0.1", server.port, password=server.password)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    server = start_valkey(tmp_path_factory.mktemp("valkey"), memory="64mb")
    yield server
    server.stop()


@pytest.fixture
def shop(request: pytest.FixtureRequest, world: World, valkey: ValkeyServer) -> Iterator[FeatureTestbed]:
    """Two tables, replicated in eu, and an empty store."""
    name = request.node.name.partition("[")[0].removeprefix("test_")[:40]
    with world.namespace(f"features_{name}") as namespace:
        world.sql(
            f"CREATE TABLE main_us.{namespace}.users (user_id BIGINT, age INT, city STRING, balance DECIMAL(20,2), "
            "last_updated_ts TIMESTAMP_NTZ) USING iceberg TBLPROPERTIES ('format-version'='2', "
            "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
        )
        world.sql(f"CREATE TABLE main_us.{namespace}.clicks (user_id BIGINT, page STRING, at TIMESTAMP) USING iceberg")
        section = yaml.safe_load(SECTION.replace("URL", valkey.url).replace("NS", namespace))
        testbed = FeatureTestbed(world, valkey, read(section), section)
        client_of(valkey).flushall()
        yield testbed
    world.sync()
