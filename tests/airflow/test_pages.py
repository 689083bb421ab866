"""The pages in a real Airflow, with real regions behind it, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.airflow.conftest import DAG, World


@pytest.fixture
def page(signed_in: BrowserContext, world: World) -> Page:
    """A page, once eu has published something."""
    world.wait_for_publication(set())
    return signed_in.new_page()


def test_the_pages_stand_in_airflows_own(page: Page) -> None:
    page.goto("/plugin/sterna")
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("region", name="eu").get_by_text("lag now")).to_be_visible()
    for other in ("us", "ap"):
        expect(frame.get_by_role("region", name=other)).to_be_visible()
    page.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")  # as Airflow's own choice does
    page.reload()
    expect(page.get_by_text("+09:00")).to_be_visible()
    frame.get_by_role("link", name="Runs").click()
    expect(frame.locator("tbody tr").filter(has_text=DAG).first).to_contain_text("GMT+9")
    frame.locator(f"a.airflow[href*='/dags/{DAG}/runs/']").first.click()
    page.wait_for_url(f"**/dags/{DAG}/runs/**")


def test_tables_and_runs_are_those_of_the_region(page: Page) -> None:
    page.goto("/sterna/#/tables")
    row = page.locator("tbody tr").filter(has_text="shop.orders")
    expect(row).to_contain_text("served")
    expect(row.locator("td.figure").first).to_have_text(re.compile("[0-9]"))
    page.goto("/sterna/#/runs")
    expect(page.locator("tbody tr").filter(has_text=DAG).first).to_be_visible()


def test_a_dry_run_is_started_and_the_dag_paused_and_resumed(page: Page, world: World) -> None:
    page.goto("/sterna/#/runs")
    actions = page.get_by_role("region", name="Actions").get_by_role("row").filter(has_text=re.compile(f"^{DAG}"))

    def act(name: str) -> None:
        actions.get_by_role("button", name=name).click()
        page.get_by_role("dialog").get_by_role("button", name=name).click()
        expect(page.get_by_role("status").filter(has_text=f"{name}: {DAG}")).to_be_visible()

    table = page.get_by_role("region", name="Actions").get_by_role("row")
    for dag, is_new_paused, count in (("sterna_repair", False, 1), ("sterna_verify", True, 0)):
        line = table.filter(has_text=re.compile(f"^{dag}"))
        expect(line.get_by_role("button", name="Run now")).to_be_enabled(enabled=not is_new_paused)
        expect(line.get_by_role("button", name="Dry run")).to_have_count(count)
    act("Dry run")
    run = page.get_by_role("status").get_by_role("link").text_content()
    (started,) = [one for one in world.runs() if one["dag_run_id"] == run]
    assert (started["conf"]["dry_run"], started["run_type"]) == (True, "manual")
    act("Pause")
    expect(actions.get_by_role("button", name="Run now")).to_be_disabled()
    act("Resume")
    expect(actions.get_by_role("button", name="Run now")).to_be_enabled()
    world.wait_until_idle()


def test_a_commit_comes_as_an_event(page: Page, world: World) -> None:
    page.goto("/sterna/#/events")
    expect(page.get_by_test_id("connection")).to_have_text("Listening for messages...")
    world.sql("INSERT INTO dag_us.shop.orders VALUES (9001, 'page')")
    (snapshot,) = world.sql("SELECT snapshot_id FROM dag_us.shop.orders.snapshots ORDER BY committed_at DESC LIMIT 1")[
        0
    ]
    expect(page.locator(".facts").first).to_contain_text(str(snapshot), timeout=240_000)
    expect(page.locator(".facts").first).to_contain_text("shop.orders")


def test_a_sync_is_seen_while_it_copies(page: Page, world: World) -> None:
    before = world.wait_until_idle()
    world.sql("INSERT INTO dag_us.shop.orders VALUES (9002, 'slow')")
    with world.hanging_copy():
        page.goto("/sterna/#/runs")
        card = page.locator(".card[data-run]").filter(has=page.get_by_role("heading", name=DAG))
        expect(card).to_have_count(1)
        expect(card).to_contain_text(re.compile(r"0 B / [1-9]"))
        expect(card.locator("li").filter(has_text="copy")).to_contain_text("running")
        page.set_viewport_size({"width": 400, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        run = card.get_attribute("data-run")
        assert run not in before
    row = page.get_by_role("row").filter(has_text=str(run))
    expect(row).to_contain_text("success", timeout=240_000)
    expect(page.locator(f".card[data-run='{run}']")).to_have_count(0)
    assert world.sql("SELECT name FROM dag_replica.shop.orders WHERE id = 9002") == [("slow",)]


@pytest.mark.rare
def test_a_slow_copy_shows_its_throughput_and_the_time_left(page: Page, world: World) -> None:
    world.wait_until_idle()
    with world.slow_copies():
        world.sql("INSERT INTO dag_us.shop.orders SELECT id, uuid() FROM range(100000, 150000)")
        page.goto("/sterna/#/runs")
        card = page.locator(".card[data-run]").filter(has=page.get_by_role("heading", name=DAG))
        expect(card).to_contain_text(re.compile(r"Throughput[0-9.]+ KiB/sTime left[0-9]+ "), timeout=240_000)
        expect(card).to_contain_text(re.compile(r"[1-9][0-9.]* [KM]iB / [1-9]"))
    world.wait_until_idle()
    assert world.sql("SELECT count(*) FROM dag_replica.shop.orders WHERE id >= 100000") == [(50000,)]
