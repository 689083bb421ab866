"""What is asked of features: FastAPI describes these routes and doesn't run them, so each refusal is seen here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from sterna.config.sections.load import parse_services
from sterna.errors import OutOfTime
from sterna.serving.http.features_source import ReplicaRows
from sterna.serving.http.json_body import INVALID_REQUEST, MAX_BODY_BYTES
from tests.support.http_server import Branch, Running, gateway

FEATURES = {
    "entities": [{"name": "user", "key": {"user_id": "long"}}],
    "views": [{"name": "user", "entity": "user", "table": "ns.a", "features": ["age"], "unique": True}],
    "services": [{"name": "all", "features": ["user.age"]}],
}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    branch = Branch(tmp_path_factory.mktemp("features"))
    branch.update("a")
    services = parse_services(json.dumps({"version": 1, "features": FEATURES}), "s.yaml")
    with gateway(branch, services, only=["features"]) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"\xff\xfe\xfa"),
        (JSON, b"[]"),
        (JSON, b"7"),
        (JSON, b"null"),
        (JSON, b'{"service": ' + b"9" * 5_000 + b"}"),
        ({"Content-Type": "text/plain"}, b"{}"),
        ({"Content-Type": "application/xml"}, b"{}"),
        ({}, b"{}"),
    ],
)
def test_a_body_that_is_no_object_of_json_is_400(plain: Running, headers: dict[str, str], body: bytes) -> None:
    answer = httpx.post(f"{plain.url}/v1/features", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, INVALID_REQUEST)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/problem+json"])
def test_json_by_its_other_names_is_read(plain: Running, kind: str) -> None:
    answer = httpx.post(f"{plain.url}/v1/features", headers={"Content-Type": kind}, content=b'{"service": "none"}')
    assert (answer.status_code, answer.json()["error"]) == (404, "There is no such service.")


def test_a_body_that_is_too_large_is_413_before_it_is_held(plain: Running) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    answer = httpx.post(f"{plain.url}/v1/features", headers=JSON, content=endless(), timeout=60)
    assert answer.status_code == 413 and "more than" in answer.json()["error"]
    largest = b'{"service": "none"}'.ljust(MAX_BODY_BYTES)
    assert httpx.post(f"{plain.url}/v1/features", headers=JSON, content=largest, timeout=60).status_code == 404


def test_parameters_are_known_ones(plain: Running) -> None:
    for ask in (httpx.get, httpx.post):
        path = "/features/user/1" if ask is httpx.get else "/v1/features"
        more = {} if ask is httpx.get else {"json": {"service": "all", "entities": [{"user_id": 1}]}}
        for query, message in (("asof=1", "unknown parameter: asof"), ("as_of=soon", "as_of: expected")):
            answer = ask(f"{plain.url}{path}?{query}", **more)
            assert answer.status_code == 400 and answer.json()["error"].startswith(message)
    assert httpx.put(f"{plain.url}/v1/features", json={}).status_code == 405


def test_what_isn_t_run_by_fastapi_is_described_by_it(plain: Running) -> None:
    paths = httpx.get(f"{plain.url}/openapi.json").json()["paths"]
    asked = paths["/v1/features"]["post"]
    assert asked["requestBody"]["content"]["application/json"]["schema"]["type"] == "object"
    assert [parameter["name"] for parameter in asked["parameters"]] == ["as_of"] and "413" in asked["responses"]
    assert {parameter["name"] for parameter in paths["/features/{view}/{id}"]["get"]["parameters"]} == {
        "view",
        "id",
        "as_of",
    }


def test_a_replica_that_takes_too_long_is_unavailable(plain: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*args: object) -> None:
        raise OutOfTime("it ran for more than 20 s")

    monkeypatch.setattr(ReplicaRows, ReplicaRows.find_snapshot.__name__, lambda *_: "found")
    monkeypatch.setattr(ReplicaRows, ReplicaRows.read_rows.__name__, slow)
    answer = httpx.get(f"{plain.url}/features/user/1")
    assert (answer.status_code, answer.json()["detail"]) == (503, "Feature service backend is unavailable.")


def test_nothing_of_a_body_is_read_for_who_has_no_token(tmp_path: Path) -> None:
    branch = Branch(tmp_path)
    branch.update("a")
    services = parse_services(json.dumps({"version": 1, "features": FEATURES}), "s.yaml")
    keys = {"QUARKUS_OIDC_AUTH_SERVER_URL": "http://127.0.0.1:1"}

    def endless() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    with gateway(branch, services, keys, only=["features"]) as running:
        for body in (b"{", endless()):
            with suppress(httpx.WriteError):  # it is told while it still sends
                assert httpx.post(f"{running.url}/v1/features", headers=JSON, content=body).status_code == 401
        counted = httpx.get(f"{running.url}/metrics").text
    assert 'status="401"' in counted
    assert 'status="400"' not in counted
    assert 'status="413"' not in counted
