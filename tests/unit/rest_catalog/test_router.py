"""What the address answers, as JSON on the wire."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from sterna.catalog.model import ICEBERG_VIEW, Content, Put, namespace_content
from sterna.errors import CatalogUnreachable
from sterna.servers.access import create_token_issuer
from sterna.serving.http.app import create_app
from sterna.serving.http.catalog_errors import is_catalog_path
from sterna.serving.http.catalog_router import CatalogRouter
from sterna.serving.http.context import Gateway, ServeOptions
from sterna.serving.http.server import build_server
from sterna.serving.http.services import GatewayServices
from tests.support.http_server import gateway
from tests.support.small_world import World, run, table, view, with_registry
from tests.unit.rest_catalog.conftest import services


def body_of(world: World) -> Any:
    """Return the one metadata.json of the replica's table `ns.t`."""
    content = world.replica()["ns.t"]
    with open(str(content.metadata_location).removeprefix("file://")) as file:
        return content.metadata_location, json.load(file)


def error(answer: httpx.Response, kind: str) -> str:
    document = answer.json()
    assert set(document) == {"error"} and set(document["error"]) == {"message", "type", "code"}
    assert document["error"]["code"] == answer.status_code
    assert document["error"]["type"] == kind
    return str(document["error"]["message"])


def test_the_config_lists_exactly_the_routes_that_there_are(world: World, address: httpx.Client) -> None:
    answer = address.get("/v1/config", params={"warehouse": "lake"}).json()
    assert answer["defaults"] == {"s3.endpoint": "http://s3.eu.example"} and answer["overrides"] == {}
    assert answer["endpoints"] == [
        "GET /v1/{prefix}/namespaces",
        "GET /v1/{prefix}/namespaces/{namespace}",
        "HEAD /v1/{prefix}/namespaces/{namespace}",
        "GET /v1/{prefix}/namespaces/{namespace}/tables",
        "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "GET /v1/{prefix}/namespaces/{namespace}/views",
        "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
        "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
        "POST /v1/{prefix}/namespaces",
        "DELETE /v1/{prefix}/namespaces/{namespace}",
        "POST /v1/{prefix}/namespaces/{namespace}/properties",
        "POST /v1/{prefix}/namespaces/{namespace}/tables",
        "POST /v1/{prefix}/namespaces/{namespace}/register",
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
        "POST /v1/{prefix}/namespaces/{namespace}/views",
        "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
        "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
        "POST /v1/{prefix}/views/rename",
    ]
    assert answer["idempotency-key-lifetime"] == "PT30M"
    server = build_server(world.context(), services(world), ServeOptions(), keep=None, only=["catalog"])  # type: ignore[arg-type]
    assert server.services.catalog is not None
    services_of = server.services
    routes = CatalogRouter(server.gateway, "eu", services_of.catalog, services_of.catalog_writes).router.routes
    for prefix in ("", "/eu"):
        served = {
            f"{method} {route.path.replace(f'/v1{prefix}/', '/v1/{prefix}/', 1)}"  # type: ignore[attr-defined]
            for route in routes
            for method in route.methods  # type: ignore[attr-defined]
            if route.path.startswith(  # type: ignore[attr-defined]
                tuple(f"/v1{prefix}/{folder}" for folder in ("namespaces", "tables", "transactions", "views"))
            )
        }
        assert served == set(answer["endpoints"])


def test_a_table_is_loaded_from_the_replica_with_places_of_the_region(world: World, address: httpx.Client) -> None:
    world.commit(t=world.write("t"))
    run(world)
    location, metadata = body_of(world)
    near = f"file://{world.folder}/eu/lake/near/{metadata['table-uuid']}"
    expected = {
        **metadata,
        "location": near,
        "properties": {
            **metadata["properties"],
            "gc.enabled": "false",
            "write.data.path": f"{near}/data",
            "write.metadata.path": f"{near}/metadata",
        },
    }
    for path in ("/v1/namespaces/ns/tables/t", "/v1/eu/namespaces/ns/tables/t"):
        answer = address.get(path, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
        assert answer.status_code == 200
        assert answer.json() == {"metadata-location": location, "metadata": expected, "config": {}}
    assert f"{world.folder}/us" not in answer.text
    assert address.head("/v1/namespaces/ns/tables/t").status_code == 204


def test_a_table_that_the_client_has_is_not_sent_again(world: World, address: httpx.Client) -> None:
    world.commit(t=world.write("t"))
    run(world)
    first = address.get("/v1/namespaces/ns/tables/t")
    tag = first.headers["etag"]
    again = address.get("/v1/namespaces/ns/tables/t", headers={"If-None-Match": f"W/{tag}"})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    world.write("t")
    world.commit(t=world.write("t"))
    run(world)
    changed = address.get("/v1/namespaces/ns/tables/t", headers={"If-None-Match": tag})
    assert changed.status_code == 200 and changed.headers["etag"] != tag
    referenced = address.get("/v1/namespaces/ns/tables/t", params={"snapshots": "refs"})
    assert referenced.headers["etag"] != changed.headers["etag"]
    assert len(changed.json()["metadata"]["snapshots"]) == 3
    current = changed.json()["metadata"]["current-snapshot-id"]
    assert [snapshot["snapshot-id"] for snapshot in referenced.json()["metadata"]["snapshots"]] == [current]
    error(address.get("/v1/namespaces/ns/tables/t", params={"snapshots": "some"}), "BadRequestException")


def test_namespaces_and_tables_have_any_name(world: World, address: httpx.Client) -> None:
    odd = "a.b/ä +%2F 木"
    uri = world.write("t")
    head = world.catalog.reference("main").hash
    world.catalog.commit(
        "main",
        head,
        [
            Put(("ns",), namespace_content(("ns",), {"owner": "me", "location": f"file://{world.folder}/us/lake/ns"})),
            Put(("ns", odd), namespace_content(("ns", odd), {"location": f"file://{world.folder}/eu/lake/ns"})),
            Put(("ns", odd, odd), table(uri)),
        ],
        "write",
    )
    run(world)
    assert address.get("/v1/namespaces").json() == {"namespaces": [["ns"]]}
    assert address.get("/v1/namespaces", params={"parent": "ns"}).json() == {"namespaces": [["ns", odd]]}
    assert address.get("/v1/namespaces", params={"parent": f"ns\x1f{odd}"}).json() == {"namespaces": []}
    assert address.get("/v1/namespaces/ns").json() == {"namespace": ["ns"], "properties": {"owner": "me"}}
    path = f"/v1/namespaces/ns%1F{quote(odd, safe='')}"
    assert address.get(path).json() == {
        "namespace": ["ns", odd],
        "properties": {"location": f"file://{world.folder}/eu/lake/ns"},
    }
    assert address.head(path).status_code == 204
    assert address.get(f"{path}/tables").json() == {"identifiers": [{"namespace": ["ns", odd], "name": odd}]}
    assert address.get(f"{path}/tables/{quote(odd, safe='')}").status_code == 200
    assert address.head(f"{path}/tables/{quote(odd, safe='')}").status_code == 204


def test_lists_come_in_pages(world: World, address: httpx.Client) -> None:
    uri = world.write("t")
    world.commit(**{f"t{number}": uri for number in range(5)})
    run(world)
    names, params = [], {"pageToken": "", "pageSize": "2"}
    for _ in range(3):
        page = address.get("/v1/namespaces/ns/tables", params=params).json()
        names += [identifier["name"] for identifier in page["identifiers"]]
        params["pageToken"] = page.get("next-page-token", "end")
    assert names == [f"t{number}" for number in range(5)] and params["pageToken"] == "end"
    assert len(address.get("/v1/namespaces/ns/tables", params={"pageSize": "2"}).json()["identifiers"]) == 5
    error(address.get("/v1/namespaces/ns/tables", params={"pageToken": "!"}), "BadRequestException")


def test_what_is_not_there_is_404_by_its_kind(world: World, address: httpx.Client) -> None:
    assert error(address.get("/v1/namespaces/ns/tables/t"), "NoSuchTableException") == (
        "Table does not exist: ns.t [table ns.t]"
    )
    error(address.get("/v1/namespaces/ns/views/t"), "NoSuchViewException")
    error(address.get("/v1/namespaces/ns/tables"), "NoSuchNamespaceException")
    error(address.get("/v1/namespaces/ns/views"), "NoSuchNamespaceException")
    error(address.get("/v1/namespaces/ns"), "NoSuchNamespaceException")
    missing = error(address.get("/v1/namespaces", params={"parent": "ns"}), "NoSuchNamespaceException")
    assert missing == "Namespace does not exist: ns"  # Iceberg's own tests want it word by word
    assert address.get("/v1/namespaces").json() == {"namespaces": []}
    for path in ("/v1/namespaces/ns", "/v1/namespaces/ns/tables/t", "/v1/namespaces/ns/views/t"):
        assert address.head(path).status_code == 404


def test_each_failure_has_the_form_of_the_specification(world: World, address: httpx.Client) -> None:
    error(address.get("/v1/us/namespaces"), "NotFoundException")
    error(address.post("/v1/oauth/tokens"), "NotFoundException")
    error(address.patch("/v1/namespaces/ns"), "UnsupportedOperationException")
    error(address.get("/v1/namespaces/%00"), "BadRequestException")
    error(address.get("/v1/config", headers={"X-Long": "x" * 20_000}), "RequestHeaderFieldsTooLargeException")
    error(address.get("/v1/config", headers={"Origin": "http://evil.example"}), "ForbiddenException")
    report = address.post("/v1/namespaces/ns/tables/t/metrics", content=b"x" * 2_000_000)
    error(report, "PayloadTooLargeException")
    # Other routes of a gateway keep theirs.
    assert address.get("/nothing").json()["error"] == "there is nothing at this path"


def test_a_report_of_metrics_is_taken(world: World, address: httpx.Client) -> None:
    world.commit(t=world.write("t"))
    run(world)
    path = "/v1/namespaces/ns/tables/t/metrics"
    assert address.post(path, json={"report-type": "scan-report"}).status_code == 204
    error(address.post("/v1/namespaces/ns/tables/u/metrics", json={}), "NoSuchTableException")


def test_a_view_has_a_location_of_the_region(world: World, address: httpx.Client) -> None:
    content = Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(world, "v"), "versionId": 1, "schemaId": 0})
    head = world.catalog.reference("main").hash
    operations = [Put(("ns",), namespace_content(("ns",))), Put(("ns", "v"), content)]
    world.catalog.commit("main", head, operations, "write")
    run(world)
    answer = address.get("/v1/namespaces/ns/views/v").json()
    assert answer["metadata-location"].startswith(f"file://{world.folder}/eu/replica/")
    assert answer["metadata"]["location"].startswith(f"file://{world.folder}/eu/lake/near/")
    assert answer["metadata"]["versions"] == [] and answer["config"] == {}
    assert address.get("/v1/namespaces/ns/views").json() == {"identifiers": [{"namespace": ["ns"], "name": "v"}]}
    assert address.head("/v1/namespaces/ns/views/v").status_code == 204
    error(address.get("/v1/namespaces/ns/tables/v"), "NoSuchTableException")
    assert address.get("/v1/namespaces/ns/tables").json() == {"identifiers": []}


def test_a_catalog_that_does_not_answer_is_503_and_a_broken_file_500(world: World, address: httpx.Client) -> None:
    world.commit(t=world.write("t"))
    run(world)
    location, _ = body_of(world)
    path = str(location).removeprefix("file://")
    with open(path, "w") as file:
        file.write("{}x")
    assert location in error(address.get("/v1/namespaces/ns/tables/t"), "InternalServerError")
    world.catalog.fail_next(CatalogUnreachable("gone"))
    answer = address.get("/v1/namespaces/ns/tables/t")
    assert "gone" not in error(answer, "ServiceUnavailableException") and answer.headers["retry-after"] == "2"


def test_rules_and_tokens_hide_tables(world: World) -> None:
    uri = world.write("t")
    world.commit(t=uri, secret=uri, apart=uri)
    run(world)
    kept_out = with_registry(world, policies=[{"tables": ["ns.apart"], "replicate": False}])
    issuer = create_token_issuer()
    readers = [{"tables": ["ns.secret"], "roles": ["finance"]}]
    with gateway(
        kept_out,  # type: ignore[arg-type]
        services(world, readers=readers),
        environment=issuer.nessie_settings(),
        options=ServeOptions(port=0),
        only=["catalog"],
    ) as running:

        def get(path: str, *roles: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {issuer.token('who', *roles)}"} if roles else {}
            return httpx.get(f"{running.url}/v1/{path}", headers=headers)

        error(get("config"), "NotAuthorizedException")
        error(get("namespaces/ns/tables/t", "other"), "ForbiddenException")
        for roles, names in ((("reader",), ["t"]), (("reader", "finance"), ["secret", "t"])):
            listed = get("namespaces/ns/tables", *roles).json()["identifiers"]
            assert [identifier["name"] for identifier in listed] == names
        error(get("namespaces/ns/tables/secret", "reader"), "NoSuchTableException")
        error(get("namespaces/ns/tables/apart", "reader", "finance"), "NoSuchTableException")
        assert get("namespaces/ns/tables/secret", "reader", "finance").status_code == 200


def test_a_namespace_in_which_all_is_hidden_is_hidden(world: World) -> None:
    uri = world.write("t")
    world.commit(t=uri)
    names = ["hidden", "closed", "mixed", "empty", "kept"]
    puts = [Put((name,), namespace_content((name,))) for name in names]
    tables = [Put((name, "t"), table(uri)) for name in ("hidden", "mixed", "kept")] + [Put(("mixed", "u"), table(uri))]
    world.catalog.commit("main", world.catalog.reference("main").hash, [*puts, *tables], "write")
    ruled_world = with_registry(world, policies=[{"tables": ["kept.*"], "replicate": False}])
    run(ruled_world)
    issuer = create_token_issuer()
    readers = [{"tables": ["hidden.t", "closed.*", "mixed.t"], "roles": ["finance"]}]
    with gateway(
        ruled_world,  # type: ignore[arg-type]
        services(world, readers=readers),
        environment=issuer.nessie_settings(),
        options=ServeOptions(port=0),
        only=["catalog"],
    ) as running:

        def get(path: str, *roles: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {issuer.token('who', *roles)}"}
            return httpx.get(f"{running.url}/v1/{path}", headers=headers)

        assert get("namespaces", "reader").json() == {"namespaces": [["empty"], ["mixed"], ["ns"]]}
        for name in ("hidden", "closed", "kept"):
            error(get(f"namespaces/{name}", "reader"), "NoSuchNamespaceException")
            error(get(f"namespaces/{name}/tables", "reader"), "NoSuchNamespaceException")
        seen = [["closed"], ["empty"], ["hidden"], ["mixed"], ["ns"]]
        assert get("namespaces", "reader", "finance").json() == {"namespaces": seen}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/config", True),
        ("/v1/eu/namespaces/a", True),
        ("/v1/main@2026-01-31T12:00:00Z/namespaces/a", True),
        ("/v1/namespaces/a/tables/b", True),
        ("/v1/tables/rename", True),
        ("/v1/tables", False),
        ("/v1/events", False),
        ("/kpi", False),
        ("/v1/eu/tables/rename", True),
        ("/v1/tables/a.b/rows", False),
        ("/v1/features/namespaces", False),
        ("/v1", False),
        ("", False),
    ],
)
def test_paths_of_the_catalog_are_known(path: str, expected: bool) -> None:
    assert is_catalog_path(path) is expected


def test_without_the_section_there_is_no_such_path(world: World) -> None:
    app = create_app(Gateway(None), GatewayServices())  # type: ignore[arg-type]
    assert isinstance(app, FastAPI)
    assert not any(getattr(route, "path", "").startswith("/v1") for route in app.routes)
