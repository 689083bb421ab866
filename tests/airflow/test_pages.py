"""The pages in a real Airflow, with real regions behind it, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.airflow.conftest import DAG, World
from tests.support.pages import chromium

_PATIENCE = 60_000.0  # milliseconds: eu's Airflow has work to do beside


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def signed_in(browser: Browser, world: World) -> Iterator[BrowserContext]:
    context = browser.new_context(locale="en-GB", base_url=world.airflow.url)
    context.set_default_timeout(_PATIENCE)
    found = httpx.get(f"{world.airflow.url}/auth/token", trust_env=False).raise_for_status().json()
    context.add_cookies([{"name": "_token", "value": found["access_token"], "url": world.airflow.url}])
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext, world: World) -> Page:
    """A page, once eu has published something."""
    world.wait_for_publication(set())
    expect.set_options(timeout=_PATIENCE)
    return signed_in.new_page()


def test_the_pages_stand_in_airflows_own(page: Page) -> None:
    page.goto("/plugin/sterna")
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("region", name="eu").get_by_text("lag now")).to_be_visible()
    for other in ("us", "ap"):
        expect(frame.get_by_role("region", name=other)).to_be_visible()
    frame.get_by_role("link", name="Runs").click()
    frame.locator(f"a.airflow[href*='/dags/{DAG}/runs/']").first.click()
    page.wait_for_url(f"**/dags/{DAG}/runs/**")


def test_tables_and_runs_are_those_of_the_region(page: Page) -> None:
    page.goto("/sterna/#/tables")
    row = page.locator("tbody tr").filter(has_text="shop.orders")
    expect(row).to_contain_text("served")
    expect(row.locator("td.figure").first).to_have_text(re.compile("[0-9]"))
    page.goto("/sterna/#/runs")
    expect(page.locator("tbody tr").filter(has_text=DAG).first).to_be_visible()


def test_a_commit_comes_as_an_event(page: Page, world: World) -> None:
    page.goto("/sterna/#/events")
    expect(page.get_by_test_id("connection")).to_have_text("Listening for messages...")
    world.sql("INSERT INTO dag_us.shop.orders VALUES (9001, 'page')")
    (snapshot,) = world.sql("SELECT snapshot_id FROM dag_us.shop.orders.snapshots ORDER BY committed_at DESC LIMIT 1")[
        0
    ]
    expect(page.locator(".facts").first).to_contain_text(str(snapshot))
    expect(page.locator(".facts").first).to_contain_text("shop.orders")
