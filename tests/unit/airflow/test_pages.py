"""The pages in Airflow's own app: who is let in, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sterna.airflow.pages import mount
from sterna.airflow.plugin import SternaPlugin
from tests.support.pages import routes
from tests.support.small_world import make_world

SAME = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def airflow(database: None) -> Iterator[TestClient]:
    """Airflow's app with the plugin in it, where nobody has a session."""
    from airflow.api_fastapi.app import create_app as create_airflow
    from airflow.api_fastapi.app import purge_cached_app
    from airflow.configuration import conf

    assert not conf.getboolean("core", "simple_auth_manager_all_admins")
    purge_cached_app()
    app = create_airflow(apps="core")
    if not any(getattr(route, "path", "") == mount.PREFIX for route in app.routes):
        pytest.fail("Airflow has not mounted the pages")
    with TestClient(app, follow_redirects=False) as client:
        yield client
    purge_cached_app()


def token(role: str) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    manager: Any = get_auth_manager()
    return {"Authorization": f"Bearer {manager.generate_jwt(SimpleAuthManagerUser(username='bob', role=role))}"}


def test_every_route_refuses_who_has_no_session(airflow: TestClient, tmp_path: Path) -> None:
    all_routes = routes(make_world(tmp_path))
    assert len(all_routes) > 10
    for method, path in all_routes:
        assert airflow.request(method, path).status_code == 401, (method, path)


def test_a_viewer_is_let_in_by_token_and_by_cookie(airflow: TestClient) -> None:
    bearer = token("viewer")
    page = airflow.get("/sterna/", headers=bearer)
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    cookie = {"Cookie": f"_token={bearer['Authorization'].split()[1]}"}
    assert airflow.get("/sterna/static/app.js", headers=cookie).headers["content-type"].startswith("text/javascript")
    assert airflow.get("/sterna/static/app.py", headers=cookie).status_code == 404


def test_replay_needs_a_right_of_its_own_and_no_other_sites_word(airflow: TestClient) -> None:
    path, body = "/sterna/api/outlets/pager/replay", {"confirmed": 1}
    assert airflow.post(path, json=body, headers=token("viewer")).status_code == 403
    admin = token("admin")
    assert airflow.post(path, json=body, headers=admin).status_code == 400  # let in; there is no such outlet
    cookie = {"Cookie": f"_token={admin['Authorization'].split()[1]}"}
    assert airflow.post(path, json=body, headers={**cookie, **SAME}).status_code == 400
    for other in ({}, {"Origin": "https://elsewhere.example"}, {**SAME, "Sec-Fetch-Site": "cross-site"}):
        assert airflow.post(path, json=body, headers={**cookie, **other}).status_code == 403, other


def test_airflow_shows_the_entry_in_its_navigation(airflow: TestClient) -> None:
    plugins = airflow.get("/api/v2/plugins", headers=token("admin")).json()["plugins"]
    (plugin,) = [candidate for candidate in plugins if candidate["name"] == "sterna"]
    (view,) = plugin["external_views"]
    assert (view["href"], view["url_route"], view["destination"]) == ("/sterna/", "sterna", "nav")


def test_the_plugin_imports_no_web_framework_before_a_request() -> None:
    (app,) = SternaPlugin.fastapi_apps
    assert isinstance(app["app"], mount.LazyApp)
