"""The writing routes by HTTP: statuses and types by which clients decide whether to delete what they wrote."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.errors import Busy, CatalogStateUnknown, CatalogUnreachable, StaleBase, StoreUnreachable
from sterna.serving.rest_catalog import commit
from sterna.serving.rest_catalog.reader import STORE_RETRY_SECONDS, ReplicaCatalog
from sterna.serving.rest_catalog.swap import swap_on_main
from sterna.serving.rest_catalog.turns import Turns
from sterna.serving.rest_catalog.write_service import with_catalog_credential
from tests.support.rest_address import read_json
from tests.support.small_world import World, refusing, run

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
PROPERTIES = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
HALF = "half \ud800"
RENAME = {"source": {"namespace": ["ns"], "name": "t"}}
TABLE, TABLES = "/v1/namespaces/ns/tables/t", "/v1/namespaces/ns/tables"


@pytest.fixture(autouse=True)
def table(world: World) -> None:
    world.commit(t=world.write("t"))
    run(world)


def main_metadata(world: World, name: str = "t") -> dict[str, Any]:
    key = ("ns", name)
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [key])[key]
    return read_json(content.metadata_location or "")


def refused(answer: httpx.Response, status: int, wire_type: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["type"] == wire_type


def test_a_commit_is_answered_with_what_is_loaded_afterwards(world: World, address: httpx.Client) -> None:
    before = address.get(TABLE).json()
    answer = address.post(TABLE, json=PROPERTIES)
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata-location"] != before["metadata-location"]
    assert answer.json() == address.get(TABLE).json()
    assert answer.json()["metadata"]["properties"]["a"] == "1"
    assert main_metadata(world)["properties"]["a"] == "1"


def test_a_failed_requirement_is_a_conflict(address: httpx.Client) -> None:
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}
    answer = address.post(TABLE, json={**PROPERTIES, "requirements": [requirement]})
    refused(answer, 409, "CommitFailedException")


@pytest.mark.parametrize("body", [{}, {"requirements": [], "updates": {}}, {"requirements": [1], "updates": []}])
def test_a_body_that_is_none_is_refused(address: httpx.Client, body: dict[str, Any]) -> None:
    refused(address.post(TABLE, json=body), 400, "BadRequestException")


def test_what_is_missing_forbidden_or_taken(address: httpx.Client) -> None:
    refused(address.post("/v1/namespaces/ns/tables/none", json=PROPERTIES), 404, "NoSuchTableException")
    refused(address.delete("/v1/namespaces/ns/views/none"), 404, "NoSuchViewException")
    refused(address.delete("/v1/namespaces/none"), 404, "NoSuchNamespaceException")
    refused(address.delete("/v1/namespaces/ns"), 409, "NamespaceNotEmptyException")
    refused(address.post(TABLES, json={"name": "t", "schema": SCHEMA}), 409, "AlreadyExistsException")
    expiry = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [1]}]}
    refused(address.post(TABLE, json=expiry), 403, "ForbiddenException")


def test_a_catalog_that_is_away_before_the_swap_can_be_tried_again(world: World, address: httpx.Client) -> None:
    world.catalog.fail_next(CatalogUnreachable("no answer"))
    refused(address.post(TABLE, json=PROPERTIES), 503, "ServiceUnavailableException")
    assert "a" not in main_metadata(world)["properties"]


def test_a_home_that_is_dark_is_no_503(world: World, address: httpx.Client) -> None:
    """After a 503 Java's client counts the commit as unknown, or deletes files of which `main` may have some."""
    with refusing(f"file://{world.folder}/us/", StoreUnreachable):
        answer = address.post(TABLE, json=PROPERTIES)
    refused(answer, 429, "HomeUnavailableException")
    assert int(answer.headers["retry-after"]) >= STORE_RETRY_SECONDS, "who comes again finds the store once it is back"
    assert address.post(TABLE, json=PROPERTIES).status_code == 200


def test_a_table_that_is_broken_on_main_is_no_clients_fault_and_no_503(world: World, address: httpx.Client) -> None:
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [("ns", "t")])[("ns", "t")]
    Path(str(content.metadata_location).removeprefix("file://")).write_text("{]")
    answer = address.post(TABLE, json=PROPERTIES)
    refused(answer, 422, "TableUnusableException")
    assert "BrokenMetadata" in answer.json()["error"]["message"] and "retry-after" not in answer.headers


def test_an_answer_that_stays_lost_is_no_4xx_and_no_503(
    world: World, address: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(branch: str, *arguments: Any, **more: Any) -> str:
        raise CatalogStateUnknown("no answer")

    monkeypatch.setattr(commit, "swap_on_main", partial(swap_on_main, seconds=0.1))
    monkeypatch.setattr(world.catalog, "commit", lose)
    refused(address.post(TABLE, json=PROPERTIES), 500, "CommitStateUnknownException")


def test_a_request_that_is_sent_again_is_carried_out_once(world: World, address: httpx.Client) -> None:
    headers = {"Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"}
    first = address.post(TABLES, json={"name": "new", "schema": SCHEMA}, headers=headers)
    committed = world.catalog.reference("main").hash
    again = address.post(TABLES, json={"name": "new", "schema": SCHEMA}, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["metadata"]["table-uuid"] == first.json()["metadata"]["table-uuid"]
    assert world.catalog.reference("main").hash == committed
    for _ in range(2):
        answer = address.delete(f"{TABLES}/new", params={"purgeRequested": "true"}, headers={"Idempotency-Key": "drop"})
        assert answer.status_code == 204


def test_names_are_listed_at_once(address: httpx.Client) -> None:
    staged = address.post(TABLES, json={"name": "new", "schema": SCHEMA, "stage-create": True}).json()
    assert "metadata-location" not in staged
    assert address.head(f"{TABLES}/new").status_code == 404
    assert address.post(TABLES, json={"name": "new", "schema": SCHEMA}).status_code == 200
    assert {"namespace": ["ns"], "name": "new"} in address.get(TABLES).json()["identifiers"]
    rename = {"source": {"namespace": ["ns"], "name": "new"}, "destination": {"namespace": ["ns"], "name": "other"}}
    assert address.post("/v1/tables/rename", json=rename).status_code == 204
    names = [identifier["name"] for identifier in address.get(TABLES).json()["identifiers"]]
    assert names == ["other", "t"]
    made = address.post("/v1/namespaces", json={"namespace": ["fresh"], "properties": {"a": "1"}})
    assert made.json() == {"namespace": ["fresh"], "properties": {"a": "1"}}
    assert ["fresh"] in address.get("/v1/namespaces").json()["namespaces"]
    changed = address.post("/v1/namespaces/fresh/properties", json={"removals": ["a"], "updates": {"b": "2"}})
    assert changed.json() == {"updated": ["b"], "removed": ["a"], "missing": []}
    assert address.get("/v1/namespaces/fresh").json()["properties"] == {"b": "2"}
    assert address.delete("/v1/namespaces/fresh").status_code == 204
    assert address.head("/v1/namespaces/fresh").status_code == 404


def test_a_transaction(world: World, address: httpx.Client) -> None:
    address.post(TABLES, json={"name": "new", "schema": SCHEMA})
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **PROPERTIES} for name in ("t", "new")]
    before = world.catalog.reference("main").hash
    assert address.post("/v1/transactions/commit", json={"table-changes": changes}).status_code == 204
    assert next(iter(world.catalog.history("main", operations=False))).parent == before
    assert main_metadata(world)["properties"]["a"] == main_metadata(world, "new")["properties"]["a"] == "1"
    for body in ({}, {"table-changes": 1}, {"table-changes": []}, {"table-changes": [{"identifier": 1}]}):
        refused(address.post("/v1/transactions/commit", json=body), 400, "BadRequestException")


def test_registering_and_views(world: World, address: httpx.Client) -> None:
    location = address.get(TABLE).json()["metadata-location"]
    assert address.post("/v1/namespaces/ns/register", json={"name": "r", "metadata-location": location}).is_success
    assert main_metadata(world, "r")["table-uuid"] == main_metadata(world)["table-uuid"]
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    }
    view = {"name": "v", "schema": SCHEMA, "properties": {}, "view-version": version}
    made = address.post("/v1/namespaces/ns/views", json=view)
    assert made.status_code == 200, made.text
    assert made.json() == address.get("/v1/namespaces/ns/views/v").json()
    changed = address.post("/v1/namespaces/ns/views/v", json=PROPERTIES)
    assert changed.json()["metadata"]["properties"]["a"] == "1"
    rename = {"source": {"namespace": ["ns"], "name": "v"}, "destination": {"namespace": ["ns"], "name": "w"}}
    assert address.post("/v1/views/rename", json=rename).status_code == 204
    assert address.delete("/v1/namespaces/ns/views/w").status_code == 204


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TABLES, {"name": HALF, "schema": SCHEMA}),
        (TABLE, {"requirements": [], "updates": [{"action": HALF}]}),
        ("/v1/namespaces", {"namespace": [HALF]}),
        ("/v1/namespaces/ns/properties", {"updates": {"a": HALF}}),
        ("/v1/namespaces/ns/properties", {"updates": {HALF: "a"}}),
        ("/v1/tables/rename", {**RENAME, "destination": {"namespace": ["ns"], "name": HALF}}),
        (
            "/v1/transactions/commit",
            {"table-changes": [{**PROPERTIES, "identifier": {"namespace": ["ns"], "name": HALF}}]},
        ),
    ],
)
def test_half_a_surrogate_pair_is_refused_where_the_catalog_would_get_it(
    address: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    """JSON may escape it, and no text of UTF-8 has it: what failed there would be a commit of unknown outcome."""
    answer = address.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    refused(answer, 400, "BadRequestException")
    assert "half" in answer.text or "action" in answer.text


def test_main_is_written_with_the_credential_of_a_writer(world: World) -> None:
    writing = with_catalog_credential(world.context(), "writer-of-main")
    assert {region.catalog.credential_id for region in writing.registry.regions} == {"writer-of-main"}
    assert writing.region.catalog.read == world.context().region.catalog.read
    assert writing.region.name == "eu"


def nested(levels: int) -> dict[str, Any]:
    """A type of structs within one another."""
    inner: Any = "long"
    for number in range(levels, 0, -1):
        inner = {"type": "struct", "fields": [{"id": number, "name": f"f{number}", "type": inner, "required": False}]}
    assert isinstance(inner, dict)
    return inner


def test_schemas_may_be_wide_and_deep(address: httpx.Client) -> None:
    columns = [
        {"id": number, "name": f"column {number}", "type": "string", "required": False} for number in range(9_000)
    ]
    wide = address.post(TABLES, json={"name": "wide", "schema": {"type": "struct", "fields": columns}})
    assert wide.status_code == 200 and len(wide.json()["metadata"]["schemas"][0]["fields"]) == 9_000
    assert address.post(TABLES, json={"name": "deep", "schema": nested(60)}).status_code == 200
    refused(address.post(TABLES, json={"name": "deeper", "schema": nested(150)}), 400, "BadRequestException")


@pytest.mark.parametrize(
    ("update", "status"),
    [
        ({"action": "REMOVE-SNAPSHOTS", "snapshot-ids": [1]}, 403),
        ({"action": "Set-Location", "location": "s3://elsewhere/x"}, 400),
        ({"action": "ADD-SNAPSHOT", "snapshot": {"snapshot-id": 1, "manifest-list": "s3://elsewhere/x"}}, 400),
        ({"action": "add-snapshot", "snapshot": {"snapshot-id": [], "manifest-list": "s3://elsewhere/x"}}, 400),
        ({"action": "SET-PROPERTIES", "updates": {"sterna.applied.x": "1"}}, 403),
        ({"action": "set-properties", "updated": {"sterna.applied.x": "1"}}, 403),
        ({"action": "remove-properties", "removed": ["sterna.applied.x"]}, 403),
    ],
)
def test_rules_hold_in_each_spelling_that_is_applied(
    world: World, address: httpx.Client, update: dict[str, Any], status: int
) -> None:
    before = world.catalog.reference("main").hash
    assert address.post(TABLE, json={"requirements": [], "updates": [update]}).status_code == status
    assert world.catalog.reference("main").hash == before


def test_older_names_of_fields_are_taken(world: World, address: httpx.Client) -> None:
    updates = [{"action": "SET-PROPERTIES", "updated": {"a": "1", "gc.enabled": "false"}}]
    assert address.post(TABLE, json={"requirements": [], "updates": updates}).status_code == 200
    assert main_metadata(world)["properties"]["a"] == "1"
    assert main_metadata(world)["properties"].get("gc.enabled") != "false"


def test_what_fails_after_the_swap_is_no_503(
    world: World, address: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreUnreachable("no answer")

    monkeypatch.setattr(ReplicaCatalog, "read_table", fail)
    refused(address.post(TABLE, json=PROPERTIES), 500, "CommitStateUnknownException")
    assert main_metadata(world)["properties"]["a"] == "1"


def test_a_commit_that_gets_no_place_in_the_line_is_told_when_to_come_again(
    world: World, address: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Busy("too many commits to the table wait", table="ns.orders")

    monkeypatch.setattr(Turns, "take", refuse)
    response = address.post(TABLE, json=PROPERTIES)
    refused(response, 429, "TooManyRequestsException")
    assert int(response.headers["Retry-After"]) >= 2
    assert "too many commits to the table wait" in response.json()["error"]["message"]


def test_a_commit_that_is_on_main_is_answered_where_a_repeat_gets_no_place_in_the_line(
    address: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"Idempotency-Key": "once"}
    assert address.post(TABLE, json=PROPERTIES, headers=headers).status_code == 200

    def refuse(*_: object) -> None:
        raise Busy("too many commits to the table wait", table="ns.orders")

    monkeypatch.setattr(Turns, "take", refuse)
    assert address.post(TABLE, json=PROPERTIES, headers=headers).json()["metadata"]["properties"]["a"] == "1"

    def fail(*_: object) -> None:
        raise CatalogUnreachable("no answer")

    monkeypatch.setattr(commit, "read_main", fail)
    refused(address.post(TABLE, json=PROPERTIES, headers=headers), 500, "CommitStateUnknownException")


def test_a_creation_or_drop_that_others_came_before_is_to_be_sent_again(
    address: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StaleBase("another commit came first")

    staged = {"name": "staged", "schema": SCHEMA, "stage-create": True}
    metadata = address.post("/v1/namespaces/ns/tables", json=staged).json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    creation = {"requirements": [{"type": "assert-create"}], "updates": updates}
    with monkeypatch.context() as patch:
        patch.setattr(commit, "swap_on_main", refuse)
        for answer in (
            address.post("/v1/namespaces/ns/tables/staged", json=creation),
            address.delete(TABLE),
            address.delete("/v1/namespaces/ns"),
        ):
            refused(answer, 503, "ServiceUnavailableException")
            assert "Retry-After" in answer.headers
    assert address.post("/v1/namespaces/ns/tables/staged", json=creation).status_code == 200
    assert address.delete(TABLE).status_code == 204


def test_a_key_that_is_always_the_same_loses_no_commit(world: World, address: httpx.Client) -> None:
    headers = {"Idempotency-Key": "always"}
    for name in ("a", "b"):
        updates = [{"action": "set-properties", "updates": {name: "1"}}]
        assert address.post(TABLE, json={"requirements": [], "updates": updates}, headers=headers).status_code == 200
    assert {"a", "b"} <= main_metadata(world)["properties"].keys()
