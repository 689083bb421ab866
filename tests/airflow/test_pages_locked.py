"""The pages of an Airflow that asks who somebody is: nobody sees anything of them without a session."""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from tests.airflow.conftest import DAG, World
from tests.support.pages import chromium, routes
from tests.support.small_world import make_world

_PASSWORDS = "passwords.json"


@pytest.fixture(scope="module")
def locked(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """One more API server over eu's Airflow, with an admin and a viewer; its address and their passwords."""
    folder, port = tmp_path_factory.mktemp("locked"), free_port()
    url = f"http://{LOOPBACK}:{port}"
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "anna:admin,vera:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / _PASSWORDS),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
    }
    program = Path(sysconfig.get_path("scripts")) / "airflow"
    log, environ = folder / "api-server.log", {**world.airflow.environ, **settings}
    process = start_process("an API server with users", [program, "api-server"], log=log, env=environ, cwd=folder)
    try:
        wait_until_ready(process, lambda: _answers(url), timeout=180)
        yield url, json.loads((folder / _PASSWORDS).read_text())
    finally:
        process.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/v2/version", timeout=30, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def test_nobody_sees_a_route_without_a_session(locked: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, passwords = locked
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        for method, path in routes(make_world(tmp_path)):
            assert client.request(method, path).status_code == 401, (method, path)
        login = {"username": "anna", "password": passwords["anna"]}
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/sterna/").status_code == 200
        assert client.get("/sterna/api/regions").json()["own"] == "eu"
        client.headers["Authorization"] = f"Bearer {token[:-3]}abc"
        assert client.get("/sterna/").status_code in (401, 403)  # Airflow says the one or the other


def test_a_browser_sees_the_pages_once_its_user_has_logged_in(locked: tuple[str, dict[str, str]]) -> None:
    url, passwords = locked
    with chromium() as browser, browser.new_context(base_url=url) as context:
        context.set_default_timeout(60_000)
        page = context.new_page()
        answer = page.goto("/sterna/")
        assert answer is not None
        assert answer.status == 401
        assert "region" not in page.content()
        page.goto("/auth/login")
        page.get_by_label("Username").fill("anna")
        page.get_by_label("Password").fill(passwords["anna"])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda now: "/auth/" not in now)
        page.goto("/sterna/")
        expect(page.get_by_role("region", name="eu")).to_be_visible(timeout=60_000)


def test_actions_need_a_users_own_permissions_in_airflow(locked: tuple[str, dict[str, str]]) -> None:
    url, passwords = locked
    login = httpx.post(f"{url}/auth/token", json={"username": "vera", "password": passwords["vera"]}, trust_env=False)
    with chromium() as browser:
        context = browser.new_context(locale="en-GB", base_url=url)
        token = login.raise_for_status().json()["access_token"]
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        page.goto("/sterna/#/runs")
        line = page.get_by_role("region", name="Actions").get_by_role("row").filter(has_text=re.compile(f"^{DAG}"))
        line.get_by_role("button", name="Run now").click(timeout=120_000)
        page.get_by_role("dialog").get_by_role("button", name="Run now").click()
        expect(page.get_by_role("alert")).to_have_text(f"Run now: {DAG}: Forbidden", timeout=60_000)
