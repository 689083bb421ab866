"""The pages without an Airflow: served over a small world, and a real browser before them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, sync_playwright

from sterna.airflow.pages import mount
from sterna.airflow.pages.access import Guards
from sterna.airflow.pages.app import create_app
from sterna.airflow.pages.source import Source
from sterna.config.secrets import Secrets
from sterna.config.sections.load import parse_services
from sterna.operations.alarms import AlarmLimits
from sterna.replication.replica.region import RegionContext
from sterna.servers.process import LOOPBACK, free_port
from tests.support.debian import environment, unpacked
from tests.support.small_world import World, no_secrets

_CHROMIUM = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@dataclass
class Pages:
    """What the pages are given; a test changes it while they are open.

    Args:
        world: its regions.
        services: the services file.
        settings: of Airflow's section.
        dark: by region, what opening it raises.
        secrets: finds credentials.
        limits: from where on something is an alarm.
    """

    world: World
    services: str = "version: 1\n"
    settings: dict[str, str] = field(default_factory=dict)
    dark: dict[str, Exception] = field(default_factory=dict)
    secrets: Secrets = no_secrets
    limits: AlarmLimits = field(default_factory=lambda: AlarmLimits(lag=3600.0))

    @property
    def source(self) -> Source:
        return Source(
            region=lambda: "eu",
            registry=lambda: self.world.registry,
            open=lambda _, name: self._open(name),
            services=lambda: parse_services(self.services, "services"),
            limits=lambda: self.limits,
            secrets=lambda id: self.secrets(id),
            setting=lambda name: self.settings.get(name, ""),
        )

    def _open(self, name: str) -> RegionContext:
        if name in self.dark:
            raise self.dark[name]
        return self.world.context(name)


def allow_all() -> None:
    """Let everybody in."""


OPEN = Guards(allow_all, allow_all)


def routes(world: World) -> list[tuple[str, str]]:
    """Every route of the pages: method and path, with something in the place of each parameter."""
    app = create_app(Pages(world).source, OPEN).app
    pairs = []
    for route in app.routes:
        # A mount, or a page of FastAPI's own, would go past the guard.
        assert isinstance(route, APIRoute), route
        path = mount.PREFIX + route.path.format(name="style.css", region="eu", user="1")
        pairs += [(method, path) for method in route.methods]
    return pairs


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an app at a loopback port; yield its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host=LOOPBACK, port=port, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    begun = threading.Event()
    while not server.started and thread.is_alive():
        begun.wait(0.02)
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium with fonts for Latin and Chinese."""
    root = unpacked("chromium", "fonts-liberation", "fonts-wqy-microhei", "fontconfig-config")
    program = root / "usr/lib/chromium/chromium"
    fonts = root.parent / "fonts.conf"
    fonts.write_text(
        f"<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root.parent}/fonts</cachedir></fontconfig>"
    )
    variables = {**environment(root), "FONTCONFIG_FILE": str(fonts)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_CHROMIUM), env=variables)
        try:
            yield browser
        finally:
            browser.close()


def page_app(pages: Pages, **options: Any) -> Any:
    """Return the app over what a test gives, open to everybody."""
    return create_app(pages.source, OPEN, **options)
