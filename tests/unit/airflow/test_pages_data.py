"""What the pages' routes answer, over a small world."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from sterna.airflow.pages import upstream
from sterna.airflow.pages.app import create_app
from sterna.airflow.pages.restores import recent_restores
from sterna.brokers.message import Message
from sterna.catalog.model import Commit, Put, namespace_content
from sterna.config.registry.credential import Credential
from sterna.errors import CatalogUnreachable, CredentialError, ReferenceNotFound
from sterna.maintenance.gc.pin import pin
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.notifications.sinks.dead_letters import list_dead_letters, write_dead_letter
from sterna.operations.alarms import AlarmLimits
from sterna.pipelines.publish.model import Channel, transform_channel
from sterna.replication.replica.head import RESTORED_FROM
from tests.support.pages import OPEN, Pages
from tests.support.small_world import World, make_world, quiet, run

ODD = "<img src=x onerror=alert(1)>"
FEATURES = """version: 1
features:
  entities:
    - {name: user, key: {user_id: long}}
    - {name: shop, key: {shop: string}}
    - {name: visit, key: {shop: string, n: int}}
  views:
    - {name: user, entity: user, table: ns.users, features: [age], unique: true}
    - {name: shop, entity: shop, table: ns.shops, features: [size], unique: true}
    - {name: visit, entity: visit, table: ns.visits, features: [seconds], unique: true}
"""
VIEWS = [
    {"name": "user", "key": ["user_id"], "of_users": True},
    {"name": "shop", "key": ["shop"], "of_users": False},
    {"name": "visit", "key": ["shop", "n"], "of_users": False},
]
OUTLETS = """version: 1
sinks:
  pager:
    target: {webhook: {url: "http://127.0.0.1:1/"}}
    credential_id: hook
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Region eu serves three tables, and holds one."""
    world = make_world(tmp_path)
    for name in ("orders", "items", "customers"):
        world.commit(**{name: world.write(name)})
    run(world)
    world.commit(bad="s3://nowhere/1.metadata.json")
    run(world)
    return world


@pytest.fixture
def pages(world: World) -> Pages:
    return Pages(world)


@pytest.fixture
def client(pages: Pages) -> Iterator[TestClient]:
    with TestClient(create_app(pages.source, OPEN, lambda seconds: upstream_double(seconds))) as client:
        yield client


def features_response(asked: dict[str, Any], token: str) -> httpx.Response:
    """Answer as `POST /v1/features` of the gateway does: see `tests/unit/http/test_features_answers.py`."""
    (entity,), (name,) = asked["entities"], asked["features"]
    there = "404" not in entity.values()
    row = {**entity, name: token if there else None}
    return httpx.Response(200, json={"rows": [row], "found": [there], "snapshots": {}})


def upstream_double(seconds: float) -> httpx.AsyncClient:
    """A feature service that knows user 123, and a gateway."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/kpi":
            return httpx.Response(200, json={"kpi": {"total_revenue": 12.5}, "snapshot_id": "1"})
        if request.url.path == "/v1/features":
            return features_response(json.loads(request.content), request.headers.get("authorization", ""))
        user = request.url.path.rpartition("/")[2]
        if user == "401":
            return httpx.Response(200 if request.headers.get("authorization") == "Bearer a-token" else 401, json={})
        if user == "123":
            return httpx.Response(200, json={"age": 30, "city": "Shanghai", "last_updated_ts": "2023-10-27T10:00:00Z"})
        if user == "504":
            raise httpx.ReadTimeout("too slow")
        if user == "302":
            return httpx.Response(302, headers={"location": "http://elsewhere/"})
        return httpx.Response(404 if user == "404" else 500, text="secret of the service")

    return httpx.AsyncClient(transport=httpx.MockTransport(answer), timeout=seconds)


def test_a_card_says_what_status_says(client: TestClient) -> None:
    assert client.get("/api/regions").json() == {"own": "eu", "regions": ["eu", "us"]}
    card = client.get("/api/regions/eu").json()
    assert [(item["held"]["key"], item["held"]["kind"]) for item in card["held"]] == [("ns.bad", "UnregisteredUri")]
    assert card["held"][0]["card"] == "docs/operations.md#unregistereduri-on-a-table"
    assert card["watermark"] == card["source_hash"]
    assert (card["shared"], card["alarms"]) == (True, [])
    windows = {window["window"]: window["count"] for window in card["delays"]["windows"]}
    assert windows["hour"] == windows["week"] >= 1, "the held table counts with its age"
    assert (card["delays"]["problem"], card["delays"]["points"][-1]["at"] > 0) == ("", True)


def test_red_is_what_the_alert_would_tell(client: TestClient, pages: Pages) -> None:
    pages.limits = AlarmLimits(lag=0.0)
    assert [alarm["kind"] for alarm in client.get("/api/regions/eu").json()["alarms"]] == ["held"]


def test_whom_upkeep_waits_for_is_an_alarm_here_as_it_is_in_the_alert(client: TestClient, pages: Pages) -> None:
    world, path = pages.world, "/api/regions/eu"
    run(world, "us")
    world.catalog.commit_as("somebody", "main_replica_us", [Put(("x",), namespace_content(("x",)))])
    assert client.get(path).json()["alarms"] == []  # nobody has configured any
    pages.services = "version: 1\nmaintenance: {tables: [{match: ['**']}]}\n"
    with TestClient(create_app(pages.source, OPEN)) as anew:
        (alarm,) = anew.get(path).json()["alarms"]
    assert alarm["kind"] == "upkeep"
    assert "waits for us" in alarm["text"]
    pages.services = "version: 1\nmaintenance: {tables: 7}\n"
    with TestClient(create_app(pages.source, OPEN)) as anew:
        assert "maintenance.tables" in anew.get(path).json()["unseen"][-1]


def test_a_dark_region_has_a_card_and_the_others_theirs(client: TestClient, pages: Pages) -> None:
    pages.dark["us"] = CatalogUnreachable("Nessie does not answer")
    dark = client.get("/api/regions/us").json()
    assert "does not answer" in dark["dark"]
    assert "dark" not in client.get("/api/regions/eu").json()


def test_this_regions_own_catalog_that_is_dark_is_told(client: TestClient, pages: Pages) -> None:
    pages.dark["eu"] = CatalogUnreachable("Nessie does not answer")
    assert "does not answer" in client.get("/api/regions/eu").json()["dark"]
    answer = client.get("/api/tables/eu")
    assert (answer.status_code, answer.json()) == (503, {"error": "Nessie does not answer"})


def table_states(client: TestClient, **query: Any) -> dict[str, str]:
    return {row["key"]: row["state"] for row in client.get("/api/tables/eu", params=query).json()["rows"]}


def test_tables_are_searched_sorted_and_paged(client: TestClient, world: World) -> None:
    world.commit(items=world.write("items"), fresh=world.write("fresh"), orders=None)
    states = {"ns.bad": "held", "ns.items": "behind", "ns.fresh": "missing", "ns.orders": "gone"}
    assert table_states(client) == {**states, "ns.customers": "served"}
    assert list(table_states(client, sort="-name")) == sorted([*states, "ns.customers"], reverse=True)
    assert list(table_states(client, search="ORD")) == ["ns.orders"]
    page = client.get("/api/tables/eu", params={"size": 2, "page": 1, "sort": "name"}).json()
    assert ([row["key"] for row in page["rows"]], page["total"]) == (["ns.fresh", "ns.items"], 5)
    assert client.get("/api/tables/eu", params={"sort": "bytes"}).status_code == 422
    (row,) = client.get("/api/tables/eu", params={"search": "customers"}).json()["rows"]
    assert (row["files"], row["snapshot"]) == (1, "1")
    (held,) = client.get("/api/tables/eu", params={"search": "bad"}).json()["rows"]
    assert held["do"].startswith("register the URI's prefix as a location")
    assert row["bytes"] > 0


def test_a_table_tells_its_last_events_and_the_holds_that_show_it(client: TestClient, world: World) -> None:
    held = pin(world.context(), world.catalog.reference("main_replica_eu").hash, timedelta(days=1))
    world.commit(items=world.write("items"), fresh=world.write("fresh"))
    run(world)
    details = client.get("/api/tables/eu/one", params={"key": "ns.items"}).json()
    events = [(event["type"], event["table"]) for event in details["events"]]
    assert events == 2 * [("sterna.table.updated", "ns.items")]
    assert details["events"][0]["at"] > details["events"][1]["at"]
    assert details["holds"] == [{"until": held.until, "snapshot": "1"}]
    assert client.get("/api/tables/eu/one", params={"key": "ns.fresh"}).json()["holds"] == []
    assert client.get("/api/tables/eu/one", params={"key": "no.such"}).json() == {"events": [], "holds": []}


def applied(world: World, name: str, position: str, *channels: Channel) -> str:
    """Set the applied positions of channels, and commit; return the commit's hash."""
    with world.writer.load_table(("ns", name)).transaction() as transaction:
        properties = {channel.position_property: position for channel in channels}
        transaction.set_properties({**properties, "sterna.applied.odd": "x"})
    return world.commit(**{name: world.writer.metadata_location(("ns", name))})


def test_a_restored_table_tells_when_and_which_channels_stopped(client: TestClient, world: World) -> None:
    channels = (Channel("eu", "acme", "clicks"), Channel("eu", "cdc", "shop"), transform_channel("sums"))
    as_of = applied(world, "items", "7", *channels)
    applied(world, "items", "9", *channels)
    applied(world, "orders", "5", channels[2])
    request = RestoreRequest(as_of, ("ns.items",), over=True)
    report = restore(world.context(), request, quiet, apply=True)
    run(world)
    rows = {row["key"]: row for row in client.get("/api/tables/eu").json()["rows"]}
    shown = rows["ns.items"]["restored"]
    assert (shown["commit"], shown["as_of"], shown["as_of_time"]) == (report.commit, as_of, report.as_of_time)
    assert shown["at"] >= shown["as_of_time"]
    remedies = {channel["channel"]: channel["remedy"] for channel in rows["ns.items"]["rewound"]}
    replay = "sterna ingest replay --region eu --table ns.items --channel eu.acme.clicks --to 7 --yes"
    assert remedies.pop("eu.acme.clicks").startswith(replay)
    assert remedies == {
        "eu.cdc.shop": "sterna cdc resync shop --region eu --yes",
        "flow.all.sums": "sterna transforms rebuild sums --region REGION --yes",
    }
    assert all("restored as of" in channel["reason"] for channel in rows["ns.items"]["rewound"])
    assert all(channel["card"].endswith("#rewound-markmoved") for channel in rows["ns.items"]["rewound"])
    (unjudged,) = rows["ns.orders"]["rewound"]
    assert (rows["ns.orders"]["restored"], unjudged["channel"]) == (None, "flow.all.sums")
    assert "is gone or names no snapshot" in unjudged["reason"]
    assert (rows["ns.customers"]["restored"], rows["ns.customers"]["rewound"]) == (None, [])


MARK = {"sterna.applied.eu.x.y": "3"}
ODD_METADATA: dict[str, Callable[[dict[str, Any]], object]] = {
    "a snapshot without sequence number": lambda metadata: metadata["snapshots"][0].update({"sequence-number": None}),
    "a number as a property": lambda metadata: metadata["properties"].update({"sterna.applied-at.eu.x.y": 3}),
    "no format version": lambda metadata: metadata.pop("format-version"),
    "properties as a list": lambda metadata: metadata.update(properties=[1]),
    "snapshots of another type": lambda metadata: metadata.update(snapshots={"a": 1}),
    "nests too deep": lambda metadata: metadata.update(properties="DEEP"),
}


@pytest.mark.parametrize("name", ODD_METADATA)
def test_metadata_that_others_wrote_oddly_leaves_its_own_table_unread(
    client: TestClient, world: World, name: str
) -> None:
    key, head = ("ns", "items"), world.catalog.reference("main_replica_eu").hash
    uri = world.catalog.contents("main_replica_eu", head, [key])[key].metadata_location
    path = Path((uri or "").removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"] = {**metadata["properties"], **MARK}
    ODD_METADATA[name](metadata)
    path.write_text(json.dumps(metadata).replace('"DEEP"', "[" * 200_000 + "]" * 200_000))
    rows = {row["key"]: row for row in client.get("/api/tables/eu").json()["rows"]}
    assert "unread" in rows["ns.items"] and "files" not in rows["ns.items"]
    assert "unread" not in rows["ns.orders"] and rows["ns.orders"]["files"] == 1


def test_a_restore_is_told_of_for_a_week(world: World) -> None:
    as_of = world.catalog.reference("main").hash
    world.commit(items=None)
    restore(world.context(), RestoreRequest(as_of, ("ns.items",)), quiet, apply=True)
    now = datetime.now(UTC)
    assert list(recent_restores(world.catalog, world.catalog.reference("main").hash, now)) == ["ns.items"]
    head = world.commit(orders=world.write("orders"))
    assert list(recent_restores(world.catalog, head, now + timedelta(days=6))) == ["ns.items"]
    assert recent_restores(world.catalog, head, now + timedelta(days=8)) == {}


def test_restores_above_commits_that_the_catalog_has_lost_are_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_of = world.catalog.reference("main").hash
    world.commit(items=None)
    restore(world.context(), RestoreRequest(as_of, ("ns.items",)), quiet, apply=True)
    head = world.commit(orders=world.write("orders"))
    history = world.catalog.history

    def lossy(reference: str, **options: Any) -> Iterator[Commit]:
        yield from islice(history(reference, **options), 2)
        raise ReferenceNotFound("no such commit")

    monkeypatch.setattr(world.catalog, "history", lossy)
    assert list(recent_restores(world.catalog, head, datetime.now(UTC))) == ["ns.items"]


def test_a_commit_of_others_that_looks_like_a_restore_fails_no_view(client: TestClient, world: World) -> None:
    for number, as_of in enumerate(("", "no hash\n", "f" * 64)):
        head, content = world.catalog.reference("main").hash, namespace_content((f"n{number}",))
        world.catalog.commit("main", head, [Put((f"n{number}",), content)], "odd", {RESTORED_FROM: as_of})
    assert {row["restored"] for row in client.get("/api/tables/eu").json()["rows"]} == {None}
    key = ("ns", "items")
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [key])[key]
    world.catalog.commit("main", head, [Put(key, content)], "odd", {RESTORED_FROM: "no hash\n"})
    (row,) = client.get("/api/tables/eu", params={"search": "items"}).json()["rows"]
    assert (row["restored"]["as_of_time"], "\n" in row["restored"]["as_of"]) == ("", False)


def test_the_plan_is_the_commands_own(client: TestClient, world: World) -> None:
    assert client.get("/api/plan").json()["idle"] is True


def test_odd_names_come_as_they_are(client: TestClient, world: World) -> None:
    world.commit(**{ODD: "s3://nowhere/2.metadata.json"})
    assert f"ns.{ODD}".replace(".metadata", "") in table_states(client, search="onerror")


def test_an_inspector_answers_as_its_service_does(client: TestClient, pages: Pages) -> None:
    assert client.get("/api/views").json() == []
    unset = client.get("/api/features/123")
    assert (unset.status_code, unset.json()["statusMessage"]) == (500, "Feature service URL is not configured")
    pages.settings["feature_service_url"] = "http://features/"
    assert client.get("/api/features/123").json()["city"] == "Shanghai"
    for user in ("abc", "-1", "1.5", "٣", "9223372036854775808", "1" * 400):
        refused = client.get(f"/api/features/{user}")
        assert (refused.status_code, refused.json()["statusMessage"]) == (400, "Invalid user ID format"), user
    for user, status in (("404", 404), ("500", 500), ("504", 500), ("302", 500), ("9223372036854775807", 500)):
        failed = client.get(f"/api/features/{user}")
        answer = (failed.status_code, failed.json()["statusMessage"])
        assert answer == (status, f"Failed to fetch features for user {user}."), user
        assert "secret" not in failed.text
    assert upstream.FEATURE_TIMEOUT_SECONDS == 5.0


def test_an_inspector_knows_each_view_and_sends_its_token(client: TestClient, pages: Pages) -> None:
    pages.services = FEATURES
    assert client.get("/api/views").json() == VIEWS
    pages.settings["feature_service_url"] = "http://features/"
    assert client.get("/api/features/401").status_code == 401
    pages.secrets = lambda id: Credential(id, password="a-token" if id == "reader" else "")
    pages.settings["feature_service_credential_id"] = "reader"
    assert client.get("/api/features/401").json() == {}
    for id in ("a/b 北", ".", "..", "../..", "%2e%2e", "a?b#c", " a ", " ", "a\u00a0", "\u3000a", "a\ufeff", "\u202ea"):
        asked = client.get("/api/features", params={"view": "shop", "id": id})
        assert asked.json() == {"shop": id, "size": "Bearer a-token"}
    refused = client.get("/api/features", params={"view": "none", "id": "1"})
    assert (refused.status_code, refused.json()["statusMessage"]) == (404, "There is no such view")
    for bad in ("", "a" * 1001, "a\nb", "a\x7f", "a\x85"):
        assert client.get("/api/features", params={"view": "shop", "id": bad}).status_code == 400
    two = client.get("/api/features", params={"view": "visit", "id": ["a/b", "2"]})
    assert two.json() == {"shop": "a/b", "n": "2", "seconds": "Bearer a-token"}
    for too in (["a"], ["a", "2", "3"], ["a", ""]):
        assert client.get("/api/features", params={"view": "visit", "id": too}).status_code == 400
    gone = client.get("/api/features", params={"view": "visit", "id": ["404", "2"]})
    assert (gone.status_code, gone.json()["statusMessage"]) == (404, "Failed to fetch features for 404, 2.")
    gone = client.get("/api/features", params={"view": "shop", "id": "404"})
    assert (gone.status_code, gone.json()["statusMessage"]) == (404, "Failed to fetch features for 404.")

    def dark(id: str) -> Credential:
        raise CredentialError("the vault is dark")

    pages.secrets = dark
    assert client.get("/api/features/123").json()["statusMessage"] == "Failed to fetch features for user 123."


def test_the_figure_is_the_gateways(client: TestClient, pages: Pages) -> None:
    assert client.get("/api/kpi", params={"at": "a-1"}).json() == {"configured": False}
    pages.settings["gateway_url"] = "http://gateway"
    assert client.get("/api/kpi", params={"at": "a-1"}).json()["kpi"] == {"total_revenue": 12.5}


def test_a_slow_vault_keeps_nobody_else_waiting(client: TestClient, pages: Pages) -> None:
    asked: list[bool] = []

    def vault(id: str) -> Credential:
        with pytest.raises(RuntimeError):  # no event loop waits for it
            asyncio.get_running_loop()
        asked.append(True)
        return Credential(id, "", "a-token")

    pages.secrets, pages.settings["gateway_url"] = vault, "http://gateway"
    pages.settings["gateway_credential_id"] = "gateway"
    assert client.get("/api/kpi", params={"at": "a-2"}).json()["kpi"] == {"total_revenue": 12.5}
    assert asked == [True]


def test_what_is_configured_is_told(client: TestClient, pages: Pages) -> None:
    others = ["sterna_cdc", "sterna_features", "sterna_ingest", "sterna_upkeep", "sterna_flows", "sterna_promote"]
    nothing = {"ingest": False, "inspector": False, "figure": False, "idle": others}
    assert client.get("/api/configured").json() == nothing
    pages.settings |= {"feature_service_url": "http://features/", "gateway_url": "http://gateway"}
    pages.services = "version: 1\nmaintenance: {tables: [{match: ['**']}]}\n"
    with TestClient(create_app(pages.source, OPEN)) as anew:
        some = {"ingest": False, "inspector": True, "figure": True}
        assert anew.get("/api/configured").json() == {**some, "idle": [each for each in others if "upkeep" not in each]}
    pages.services = "version: 7"
    with TestClient(create_app(pages.source, OPEN)) as anew:
        assert anew.get("/api/configured").status_code == 503


def test_ingestion_that_nobody_configured_is_no_error(client: TestClient) -> None:
    assert client.get("/api/ingest").json() == {"configured": False, "region": "eu"}
    assert client.get("/api/ingest/find", params={"id": "x"}).json() == {"configured": False}


def test_a_replay_is_what_was_confirmed_or_nothing(client: TestClient, pages: Pages, world: World) -> None:
    pages.services = OUTLETS
    pages.secrets = lambda id: Credential(id, password="whsec_" + base64.b64encode(b"k" * 32).decode())
    context = world.context()
    event = b'{"time": "2026-01-01T00:00:00Z", "id": "a-1"}'
    write_dead_letter(context, "pager", Message("a-1", "ns.orders", event), "HTTP 400")
    assert client.get("/api/outlets").json()["sinks"][0]["dead"] == 1
    shown = client.get("/api/outlets/pager/dead").json()
    assert (shown["count"], shown["letters"][0]["reason"]) == (1, "HTTP 400")
    path = "/api/outlets/pager/replay"
    own = {"Origin": "http://testserver"}
    other = client.post(path, json={"confirmed": 2}, headers=own)
    assert other.status_code == 400 and "not 2" in other.json()["error"]
    assert client.post("/api/outlets/none/replay", json={"confirmed": 0}, headers=own).status_code == 400
    done = client.post(path, json={"confirmed": 1}, headers=own).json()
    # Nobody listens there: the letter stays.
    assert (done["sent"], done["left"]) == (0, 1) and done["problem"]
    assert len(list_dead_letters(context, "pager")) == 1
