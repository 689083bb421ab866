"""The section `features` of the services file."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sterna.config.sections.load import parse_services
from sterna.errors import ServicesError

WHOLE: dict[str, Any] = yaml.safe_load("""
online: {eu: {url: valkeys://store.eu.example.com:6380, credential_id: valkey_eu}}
entities: [{name: user, key: {user_id: long}}]
views:
- {name: user, entity: user, table: default.user_feature_store, features: [age, city, last_updated_ts],
   event_time: last_updated_ts, unique: true, serve: complete, max_age: 2h, time_travel: 90d}
- {name: clicks, entity: user, table: default.clicks, features: [page], event_time: at, serve: cache, ttl: 3600}
services: [{name: pricing, features: [user.age, user.city, clicks.page]}]
""")


def read(features: Any, **more: Any) -> Any:
    return parse_services(yaml.safe_dump({"version": 1, "features": features, **more}), "s.yaml")


def changed(path: str, value: Any) -> dict[str, Any]:
    document: Any = yaml.safe_load(yaml.safe_dump(WHOLE))
    *parents, last = path.split(".")
    at = document
    for step in parents:
        at = at[int(step)] if step.isdigit() else at[step]
    at[int(last) if last.isdigit() else last] = value
    return document  # type: ignore[no-any-return]


def test_the_whole_section() -> None:
    services = read(WHOLE)
    assert services.configured_sections == ["features"]
    user, clicks = services.features.views
    assert (user.columns, user.retention_seconds, user.max_age) == (("age", "city", "last_updated_ts"), None, 7200)
    assert (clicks.columns, clicks.retention_seconds) == (("page", "at"), 3600)
    assert services.features.entity_of(user).columns == ("user_id",)


def test_what_views_reproduce_is_upkeep_s_to_keep() -> None:
    rule = {"tables": [{"match": ["*"]}], "time_travel": {"default.user_feature_store": "1d", "a.b": "2d"}}
    kept = {"default.user_feature_store": 90 * 86_400, "a.b": 2 * 86_400}
    assert read(WHOLE, maintenance=rule).maintenance.time_travel == kept


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("online.eu.url", "http://x", "expected a URL such as valkeys"),
        ("online.eu.url", "valkey://user:hunter2@x", "name a credential_id"),
        ("online.eu.url", "valkey://x/a", "the database's number"),
        ("online.eu.url", "valkey://x?password=hunter2", "no query"),
        ("online.eu.url", "valkey+sentinel://a,b", "the master's name"),
        ("online.eu.url", "valkey://[::1", "no URL"),
        ("entities.0.key", dict.fromkeys("abcde", "long"), "expected 1 to 4 columns"),
        ("entities.0.key", {"a": "double"}, "expected '"),
        ("entities.0.name", "User", "expected a name"),
        ("views.0.name", "a:b", "expected a name"),
        ("views.0.entity", "nobody", "no entity 'nobody'"),
        ("views.0.features", [], "at least 1 item"),
        ("views.0.features", ["age", "age"], "appears twice"),
        ("views.0.features", ["user_id"], "the key is no feature"),
        ("views.0.ttl", "1h", "ttl is for serve: cache"),
        ("views.0.table", "plain", "full name"),
        ("views.0.time_travel", "long", "expected a duration"),
        ("views.0.event_time", None, "max_age needs an event_time"),
        ("views.1.event_time", None, "name an event_time, or set unique"),
        ("views.1.name", "user", "user appears twice"),
        ("services.0.features", ["user.none"], "no feature user.none"),
        ("services.0.features", ["user.age", "user.age"], "appears twice"),
        ("views.0.serve", "fast", "expected '"),
    ],
)
def test_refusals(path: str, value: Any, said: str) -> None:
    with pytest.raises(ServicesError) as raised:
        read(changed(path, value))
    assert said in str(raised.value) and "hunter2" not in str(raised.value)


def test_entities_are_not_mixed_in_a_service() -> None:
    section = changed("entities", [*WHOLE["entities"], {"name": "shop", "key": {"shop_id": "string"}}])
    section["views"][1]["entity"] = "shop"
    with pytest.raises(ServicesError, match="of several entities"):
        read(section)


@pytest.mark.parametrize(
    "url", ["valkey://x", "redis://x:6379/3", "rediss://[::1]:1/", "valkeys+sentinel://a:1,b:2/m/1"]
)
def test_addresses(url: str) -> None:
    assert read(changed("online.eu.url", url)).features.online["eu"].url == url
