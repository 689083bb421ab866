"""Each view of the pages in a real browser, in all of its states; over a small world, without an Airflow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from playwright.sync_api import Browser, Page, Route, expect

from sterna.airflow.pages import upstream
from sterna.brokers.message import Message
from sterna.config.registry.credential import Credential
from sterna.errors import CatalogUnreachable
from sterna.maintenance.gc.pin import pin
from sterna.notifications.sinks.dead_letters import write_dead_letter
from sterna.operations.alarms import AlarmLimits
from sterna.replication.replica.pauses import pause, resume
from tests.support.often import often
from tests.support.pages import Pages, chromium, page_app, served
from tests.support.small_world import World, make_world, run
from tests.unit.airflow.test_pages_data import FEATURES

ODD = "<img src=x onerror=alert(1)>"
ODD_IDS = [" a", "a ", " ", "a\u00a0", "\u3000a", "a\ufeff", "+", "a b"]
_WAIT_MS = 30_000.0  # milliseconds: other tests keep the machine busy
OUTLETS = """version: 1
sinks:
  pager: {target: {webhook: {url: "http://127.0.0.1:1/"}}, credential_id: hook}
"""
FEATURE_ROWS = {"age": 30, "city": "Shanghai", "last_updated_ts": "2023-10-27T10:00:00.000Z"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=_WAIT_MS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Region eu serves two tables, and holds one whose name is HTML."""
    lake = make_world(tmp_path_factory.mktemp("pages"))
    for name in ("orders", "items"):
        lake.commit(**{name: lake.write(name)})
    run(lake)
    lake.commit(**{ODD: "s3://nowhere/1.metadata.json"})
    run(lake)
    return lake


@pytest.fixture
def stage(world: World) -> Iterator[tuple[Pages, str]]:
    pages = Pages(world)
    with served(page_app(pages)) as url:
        yield pages, url


@pytest.fixture
def pages(stage: tuple[Pages, str]) -> Pages:
    return stage[0]


@pytest.fixture
def page(browser: Browser, stage: tuple[Pages, str]) -> Iterator[Page]:
    """A page in English; errors in it fail the test."""
    context = browser.new_context(locale="en-GB", timezone_id="UTC", base_url=stage[1])
    browser_page = context.new_page()
    errors: list[str] = []
    browser_page.on("pageerror", lambda error: errors.append(str(error)))
    yield browser_page
    context.close()
    assert errors == []


def answer(page: Page, path: str, body: Any, status: int = 200) -> None:
    page.route(path, lambda route: route.fulfill(status=status, body=json.dumps(body), content_type="application/json"))


def held_back(page: Page, path: str) -> list[Route]:
    """Answer nothing, so that a view stays as it is while it waits."""
    waiting: list[Route] = []
    page.route(path, lambda route: waiting.append(route))
    return waiting


def first(page: Page, waiting: list[Route]) -> Route:
    """Wait for the first request that is held back: the view says that it waits before the request is here."""
    for _ in range(int(_WAIT_MS / 50)):
        if waiting:
            break
        page.wait_for_timeout(50)
    return waiting[0]


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_regions(page: Page, pages: Pages) -> None:
    waiting = held_back(page, "**/api/regions/us")
    pages.limits = AlarmLimits(lag=0.0)
    page.goto("/")
    card = page.get_by_role("region", name="eu")
    expect(card.get_by_text("needs a person")).to_be_visible()
    expect(card.get_by_text(ODD, exact=False).first).to_be_visible()
    expect(card.locator("svg.spark")).to_be_visible()
    expect(card.get_by_text("register the URI's prefix").first).to_be_visible()
    expect(card.locator(".alarms").get_by_role("link")).to_have_attribute("href", re.compile("^#/runBook/r-holds-"))
    other = page.get_by_role("region", name="us")
    expect(other.get_by_text("Loading…")).to_be_visible()
    first(page, waiting).fulfill(status=504, body='{"error": "no answer within 20 s"}')
    expect(other.get_by_text("no answer within 20 s")).to_be_visible()
    expect(card.get_by_text("needs a person")).to_be_visible()


def test_a_dark_region_is_dark_and_not_red(page: Page, pages: Pages) -> None:
    pages.dark["us"] = CatalogUnreachable("Nessie of us does not answer")
    page.goto("/")
    expect(page.get_by_role("region", name="us").get_by_text("dark", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="eu").get_by_text("tables held")).to_be_visible()
    expect(page.locator(".badge.red")).to_have_count(0)


STATUS = {
    "region": "eu",
    "watermark": "",
    "lag_seconds": 900.0,
    "source_hash": "c" * 64,
    "shared": False,
    "primary": "us",
    "epoch": 3,
    "last_commit": "2026-01-01T00:00:00Z",
    "last_run": "run-1",
    "cut_off": "the primary us does not answer",
    "unread_held": "the list of held tables can't be read",
    "alarms": [{"kind": "cut off", "text": "for 20 min"}],
    "stored": {"evidence": {"files": 1, "bytes": 2048}, "garbage": {"files": 1, "bytes": 5 << 20}},
    "transit": [{"held": {"key": "ns.huge"}, "lag_seconds": 60.0, "bytes_left": 7 << 30, "under_way": True}],
    "held": [
        {
            "held": {"key": f"ns.t{at}", "since": "", "kind": "Unsupported", "reason": ODD, "file": "s3://x"},
            "do": "wait",
        }
        for at in range(25)
    ],
    "unseen": ["the store of us"],
    "delays": None,
}


def test_a_region_that_is_cut_off_and_being_seeded_says_all_it_knows(page: Page) -> None:
    answer(page, "**/api/regions/eu", STATUS)
    page.goto("/")
    card = page.get_by_role("region", name="eu")
    expect(card.get_by_text("at most 15 min")).to_be_visible()
    for text in (
        "the primary us does not answer",
        "us, term 3",
        "cut off",
        "being seeded",
        "2.0 KiB",
        "5.0 MiB",
        "1 tables, 7.0 GiB left",
        "the list of held tables can't be read",
        "Not looked at: the store of us",
        "No commit in the last day",
    ):
        expect(card.get_by_text(text).first).to_be_attached()
    expect(card.locator(".badge.red")).to_have_text("needs a person")
    card.get_by_text("Held tables: 25").click()
    expect(card.get_by_text("and 5 more")).to_be_visible()
    page.set_viewport_size({"width": 400, "height": 800})
    assert fits(page)


def test_a_region_that_was_never_started_is_not_well(page: Page) -> None:
    fresh = {"cut_off": "", "unread_held": "", "alarms": [], "held": [], "unseen": [], "transit": [], "stored": None}
    answer(page, "**/api/regions/eu", {**STATUS, **fresh, "last_run": "", "last_commit": "", "replica_hash": ""})
    page.goto("/")
    card = page.get_by_role("region", name="eu")
    expect(card.locator(".badge").filter(has_text="not started")).to_be_visible()
    expect(card.get_by_text("eu has never synced: resume its DAG sterna_sync")).to_be_visible()
    expect(card.get_by_text("being seeded")).to_have_count(0)
    expect(card.get_by_role("img")).to_have_count(0)
    expect(card.locator(".badge.green")).to_have_count(0)


def test_how_late_versions_were_and_what_objectives_allow(page: Page) -> None:
    windows = [
        {"window": name, "count": 9, "p50": 5, "p95": 60, "p99": 61, "most": 900} for name in ("hour", "day", "week")
    ]
    goal = {"policy": 1, "tables": ["ns.*"], "lag": 60, "share": 0.999, "count": 9, "late": 1, "left": -1.0, "burn": {}}
    objectives = [
        {**goal, "burning": True},
        {**goal, "tables": ["x"], "left": 0.256, "burning": False},
        {**goal, "tables": ["y"], "left": None, "burning": None},
    ]
    points = [{"at": 1, "p50": 5, "most": 900}]
    delays = {
        "since": "2026-01-01T00:00:00Z",
        "windows": windows,
        "objectives": objectives,
        "problem": "",
        "points": points,
    }
    answer(page, "**/api/regions/eu", {**STATUS, "delays": delays})
    page.goto("/")
    card = page.get_by_role("region", name="eu")
    expect(
        card.get_by_text("99.9 % of ns.* within 60 s: the week's budget is exceeded, burning too fast")
    ).to_be_visible()
    expect(card.get_by_text("99.9 % of x within 60 s: 25 % of the week's budget left")).to_be_visible()
    expect(card.get_by_text("99.9 % of y within 60 s: unknown")).to_be_visible()
    picture = card.get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("at most 15 min; p50 5 s; p95 60 s; p99 61 s"))
    expect(picture.locator("text")).to_have_text(["0", "10 min", "20 min", *[re.compile(r"^\d\d:\d\d$")] * 5])
    expect(card.get_by_text("last day: p50 5 s · p95 60 s · p99 61 s · most 15 min")).to_be_visible()
    card.get_by_text("Delays since").click()
    expect(card.get_by_role("row").filter(has_text="week")).to_contain_text("15 min")
    answer(page, "**/api/regions/eu", {**STATUS, "delays": {**delays, "problem": "the index is damaged"}})
    page.goto("/#/tables")
    page.goto("/#/regions")
    expect(card.get_by_text("How late new versions are is unknown: the index is damaged")).to_be_visible()


def test_regions_that_cannot_be_listed(page: Page) -> None:
    answer(page, "**/api/regions", {"error": "can't read the registry"}, 503)
    page.goto("/")
    expect(page.get_by_role("alert")).to_have_text("can't read the registry")


def test_a_session_that_is_over_is_told(page: Page) -> None:
    page.goto("/#/tables")
    expect(page.locator("tbody tr").first).to_be_visible()
    answer(page, "**/api/**", {"detail": "Not authenticated"}, 401)
    for view in ("regions", "tables", "runs", "ingest"):
        page.goto(f"/#/{view}")
        expect(page.get_by_text("Not authenticated").first).to_be_visible()


def test_tables_by_mouse_and_keyboard(page: Page) -> None:
    page.goto("/#/tables")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text(ODD)
    rows.first.get_by_text("Why?").click()
    expect(rows.first).to_contain_text("remedy: register the URI's prefix as a location")
    rows.first.get_by_role("link", name="docs/operations.md#unregistereduri-on-a-table").click()
    entry = page.locator("main .card")
    expect(entry.get_by_role("heading")).to_have_text("UnregisteredUri on a table")
    expect(entry.locator("li").last).to_contain_text("Do: register the URI's prefix")
    expect(entry.locator("li")).to_have_count(3)
    page.go_back()
    expect(rows).to_have_count(3)
    assert page.title() == "sterna · Tables"
    page.get_by_role("button", name="Table", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Table")
    page.get_by_label("Search tables").fill("ITEM")
    expect(rows).to_have_count(1)
    page.get_by_label("Search tables").fill("nothing has this")
    expect(page.get_by_text("No table has that in its name.")).to_be_visible()
    page.get_by_role("button", name="What would the next sync do?").click()
    expect(page.get_by_text(re.compile("^The next sync "))).to_be_visible()


def test_a_plan_says_what_comes_from_other_regions_copies(page: Page) -> None:
    plan = {"idle": False, "actions": [], "held": [], "origins": {"us-lake": {"batches": 1, "files": 3, "bytes": 4096}}}
    plan |= {"copies": {"ap": {"files": 2, "bytes": 2048}}, "egress_cost": 0.00002, "egress_saved": 0.00004}
    page.route("**/api/plan", lambda route: route.fulfill(json=plan))
    page.goto("/#/tables")
    page.get_by_role("button", name="What would the next sync do?").click()
    said = page.get_by_text(re.compile("^The next sync "))
    expect(said).to_contain_text("Of these, 2.0 KiB from copies in ap. Estimated to save 0.00004 of 0.00006.")


def test_every_state_of_a_table_and_its_pages(page: Page) -> None:
    states = ("served", "behind", "held", "transit", "missing", "gone")
    labels = {"served": "served", "behind": "behind", "held": "held", "transit": "in transit"}
    labels |= {"missing": "not here yet", "gone": "gone from main"}
    rows = [{"key": f"ns.{state}", "state": state, "lag": None, "snapshot": "", "held": None} for state in states]
    table_page = {"region": "eu", "total": 120, "size": 50, "counts": dict.fromkeys(states, 1), "rows": rows}
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/tables/" in request.url else None)
    for at in (0, 1, 2):
        answer(page, f"**/api/tables/eu?*page={at}*", table_page | {"page": at})
    page.goto("/#/tables")
    for state in states:
        expect(page.get_by_role("row").filter(has_text=f"ns.{state}")).to_contain_text(labels[state])
    expect(page.get_by_text("Page 1 of 3, 120 tables")).to_be_visible()
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next", exact=True).click()
    page.get_by_text("Page 2 of 3, 120 tables").wait_for()
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.get_by_text("Page 3 of 3, 120 tables")).to_be_visible()
    expect(page.get_by_role("button", name="Next", exact=True)).to_be_disabled()
    assert len(asked) == 3


def test_a_table_shows_its_events_and_holds_when_somebody_asks(page: Page, world: World) -> None:
    pin(world.context(), world.catalog.reference("main_replica_eu").hash, timedelta(days=1))
    page.goto("/#/tables")
    row = page.get_by_role("row").filter(has_text="ns.orders")
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(row).to_contain_text("updated")
    expect(row).to_contain_text("Snapshot 1 is pinned until")
    other = page.get_by_role("row").filter(has_text=ODD)
    answer(page, "**/api/tables/eu/one*", {"events": [], "holds": []})
    other.locator("summary", has_text="Show").click()
    expect(other).to_contain_text("No event in the last week.")
    expect(other).to_contain_text("No pin keeps it.")
    answer(page, "**/api/tables/eu/one*", {"error": "Nessie does not answer"}, 503)
    page.get_by_role("row").filter(has_text="ns.items").locator("summary").click()
    expect(page.get_by_role("alert")).to_have_text("Nessie does not answer")


def test_a_table_is_paused_and_resumed_by_airflows_own_run(page: Page, world: World) -> None:
    sent: list[object] = []
    page.on("request", lambda one: sent.append(one.post_data_json) if one.post_data else None)
    line = page.get_by_role("row").filter(has_text="ns.orders")
    for dags, count in (([], 0), ([{"dag_id": "sterna_pause", "is_paused": True}], 1)):
        answer(page, "**/api/v2/dags?*", {"dags": dags})
        page.goto("/#/tables")
        page.reload()
        expect(line).to_be_visible()
        expect(line.get_by_role("button", name="Pause")).to_have_count(count)
    expect(line.get_by_role("button", name="Pause")).to_be_disabled()
    answer(page, "**/api/v2/dags?*", {"dags": [{"dag_id": "sterna_pause", "is_paused": False}]})
    answer(page, "**/api/v2/dags/sterna_pause/dagRuns", {"detail": "Forbidden"}, 403)
    page.reload()
    line.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Reason").fill(ODD)
    dialog.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_have_text("Pause: ns.orders: Forbidden")
    conf = {"tables": ["ns.orders"], "action": "pause", "reason": ODD}
    assert sent == [{"logical_date": None, "conf": conf}]
    pause(world.context(), ["ns.orders"], ODD, apply=True)
    try:
        page.locator("#search").fill("orders")  # another question: answers are kept for a second
        expect(line).to_contain_text(ODD)
        answer(page, "**/api/v2/dags/sterna_pause/dagRuns", {"dag_run_id": "one"})
        line.get_by_role("button", name="Resume").click()
        expect(dialog.get_by_role("textbox")).to_have_count(0)
        dialog.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("link", name="one", exact=True)).to_be_visible()
    finally:
        resume(world.context(), ["ns.orders"], apply=True)
    page.locator("#region").select_option("us")
    expect(page.get_by_role("row").filter(has_text="ns.orders")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)  # its own Airflow does that


def test_a_restored_table_says_so_and_which_channels_stopped(page: Page) -> None:
    restored = {"at": "2026-11-29T10:00:00Z", "commit": "c" * 64, "as_of": "a" * 64}
    restored["as_of_time"] = "2026-11-28T09:00:00Z"
    stop = {"channel": "eu.acme.clicks", "reason": ODD, "remedy": "sterna ingest replay --to 7 --yes"}
    rewound = [{**stop, "card": "https://x.test/operations.md#rewound-markmoved"}]
    rows = [
        {"key": "ns.back", "state": "served", "lag": 0, "snapshot": "1", "held": None, "restored": restored},
        {"key": "ns.stopped", "state": "served", "lag": 0, "snapshot": "1", "held": None, "rewound": rewound},
    ]
    table_page = {"region": "eu", "total": 2, "page": 0, "size": 50, "counts": {"served": 2}, "rows": rows}
    answer(page, "**/api/tables/eu?*", table_page)
    page.goto("/#/tables")
    # The zone that was chosen in Airflow's pages; else the browser's, as there.
    page.get_by_text("Restored on 29/11/2026, 10:00:00 UTC").wait_for()
    page.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")
    page.reload()
    page.get_by_text("Restored on 29/11/2026, 19:00:00 GMT+9").wait_for()
    page.evaluate("localStorage.setItem('timezone', '\"none such\"')")
    page.reload()
    back = page.get_by_role("row").filter(has_text="ns.back")
    back.get_by_text("Restored on 29/11/2026, 10:00:00").click()
    expect(back).to_contain_text("As main had it on 28/11/2026, 09:00:00 UTC, commit aaaaaaaaaaaa")
    expect(back).to_contain_text("By commit cccccccccccc on main")
    expect(back.locator(".badge.red")).to_have_count(0)
    stopped = page.get_by_role("row").filter(has_text="ns.stopped")
    expect(stopped.locator(".badge.red")).to_have_text("1 channels stopped")
    stopped.get_by_text("1 channels stopped").click()
    expect(stopped).to_contain_text(f"Rewound: {ODD}")
    expect(stopped).to_contain_text("remedy: sterna ingest replay --to 7 --yes")
    expect(stopped.get_by_role("link")).to_have_attribute("href", rewound[0]["card"])
    page.set_viewport_size({"width": 400, "height": 800})
    assert fits(page)


def test_tables_empty_and_failing(page: Page) -> None:
    empty = {"region": "eu", "total": 0, "page": 0, "size": 50, "counts": {}, "rows": []}
    answer(page, "**/api/tables/*", empty)
    page.goto("/#/tables")
    expect(page.get_by_text("No table yet.")).to_be_visible()
    page.unroute("**/api/tables/*")
    answer(page, "**/api/tables/*", {"error": "Nessie does not answer"}, 503)
    page.get_by_label("Search tables").fill("x")
    expect(page.get_by_role("alert")).to_have_text("Nessie does not answer")


def test_the_stream_says_how_it_is_connected(page: Page) -> None:
    state = page.get_by_test_id("connection")
    page.goto("/#/events")
    expect(state).to_have_text("Listening for messages...")
    expect(state).to_have_attribute("data-color", "green")
    expect(page.get_by_role("heading", name="Sinks")).to_have_count(0)
    expect(page.get_by_test_id("kpi")).to_be_hidden()
    page.get_by_role("button", name="Disconnect").click()
    expect(state).to_have_text("Disconnected")
    waiting = held_back(page, "**/api/events")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(state).to_have_text("Connecting...")
    expect(state).to_have_attribute("data-color", "orange")
    first(page, waiting).fulfill(status=401, body="{}")
    expect(state).to_contain_text("Failed")
    expect(state).to_have_attribute("data-color", "red")


def test_an_event_comes_live_and_brings_its_figure(page: Page, pages: Pages, world: World) -> None:
    pages.settings["gateway_url"] = "http://gateway"
    answer(page, "**/api/kpi*", {"configured": True, "kpi": {"total_revenue": ODD}})
    page.goto("/#/events")
    expect(page.get_by_test_id("connection")).to_have_text("Listening for messages...")
    world.commit(items=world.write("items"))
    run(world)
    expect(page.locator("tbody tr").filter(has_text="ns.items")).to_have_count(1)
    expect(page.locator(".facts").first).to_contain_text("ns.items")
    expect(page.get_by_test_id("kpi")).to_contain_text(ODD)


def test_a_figure_that_is_on_its_way_is_a_placeholder(page: Page, pages: Pages) -> None:
    pages.settings["gateway_url"] = "http://gateway"
    waiting = held_back(page, "**/api/kpi*")
    page.goto("/#/events")
    figure = page.get_by_test_id("kpi")
    asked = first(page, waiting)
    expect(figure).to_have_attribute("aria-busy", "true")
    expect(figure).to_have_css("color", "rgba(0, 0, 0, 0)")
    asked.fulfill(status=502, body='{"statusMessage": "no figure now"}')
    expect(figure).to_have_text("no figure now")
    expect(figure).not_to_have_attribute("aria-busy", "true")


def test_outlets_say_what_is_wrong_with_them(page: Page) -> None:
    def outlet(name: str, **more: object) -> dict[str, object]:
        defaults = {
            "name": name,
            "target": "webhook",
            "position": "a" * 64,
            "kept": True,
            "events": 2,
            "lag": 60.0,
            "dead": 0,
        }
        return defaults | more

    named = [outlet("pager"), outlet("new", position=""), outlet("late", kept=False)]
    answer(page, "**/api/outlets", {"sinks": [*named, outlet("old", target="")]})
    page.goto("/#/events")
    expected = {
        "pager": "2 events",
        "new": "not begun",
        "late": "the log has it no more",
        "old": "not in the services file",
    }
    for name, text in expected.items():
        expect(page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))).to_contain_text(text)
    answer(page, "**/api/outlets", {"error": "the primary does not answer"}, 503)
    page.reload()
    expect(page.get_by_role("alert")).to_have_text("the primary does not answer")


def test_the_figure_waits(page: Page, pages: Pages) -> None:
    pages.settings["gateway_url"] = "http://gateway"
    held_back(page, "**/api/events")
    page.goto("/#/events")
    expect(page.get_by_test_id("kpi")).to_have_text("Waiting for data...")


def test_dead_letters_are_sent_again_after_a_confirmation(page: Page, pages: Pages, world: World) -> None:
    pages.services = OUTLETS
    write_dead_letter(
        world.context(), "pager", Message("a-1", ODD, b'{"time": "2026-01-01T00:00:00Z", "id": "a-1"}'), ODD
    )
    sent = []
    answer(page, "**/replay", {"outlet": "pager", "sent": 1, "left": 0, "problem": ""})
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.goto("/#/events")
    button = page.get_by_role("button", name="1: replay…")
    button.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(ODD).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert sent == []
    button.click()
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog.get_by_text("Sent: 1, left: 0.")).to_be_visible()
    assert [request.post_data_json for request in sent] == [{"confirmed": 1}]


def test_ingest(page: Page) -> None:
    page.goto("/#/ingest")
    expect(page.get_by_text("The services file has no ingestion for this region.")).to_be_visible()
    lane = {"tenant": "acme", "table": f"acme.{ODD}", "channel": "eu.acme.default", "partition": ""}
    batch = {
        "lane": lane,
        "number": 7,
        "state": "rejected",
        "rows": 5,
        "bytes": 100,
        "commit": "",
        "reason": "a column",
    }
    batch |= {"closed": "2026-01-01T00:00:00+00:00", "snapshot": None}
    waiting = {"tenant": "acme", "table": "acme.events", "buffered": 3, "waiting": 1, "bytes": 10, "lag": 900.0}
    overview = {"configured": True, "begun": True, "states": ["closed", "rejected"], "batches": [batch]}
    overview |= {"tenants": [{"name": "acme", "backlog": 10, "day": 20}]}
    counts = {"buffered": 3, "ready": 1, "delayed": 0, "claimed": 0, "abandoned": 1, "rejected": 2, "dead": 1}
    overview |= {"counts": counts | {"dead_rows": 41, "waiting": 2}, "workers": [], "unserved": []}
    since = {"begun": "2026-01-01T00:00:00+00:00", "seen": "2026-01-01T00:10:00+00:00"}
    living = {"name": "a", "host": f"host-{ODD}", "pid": 12, "silent": 3.0, "alive": True, "batches": []} | since
    hung = living | {"name": "b", "pid": 13, "silent": 900.0, "alive": False, "batches": ["acme.events eu.acme.d 7"]}
    answer(page, "**/api/ingest?*", overview | {"tables": [waiting | {"exit_code": 5, "reason": ""}]})
    answer(page, "**/api/ingest", overview | {"tables": [waiting | {"exit_code": 5, "reason": ""}]})
    answer(page, "**/api/ingest/find*", {"found": "batch", "batch": batch})
    page.reload()
    expect(page.locator(".badge.red", has_text="15 min")).to_be_visible()
    expect(page.get_by_text(f"acme.{ODD}")).to_be_visible()
    expect(page.get_by_text("Batches wait, and no worker runs.")).to_be_visible()
    expect(page.locator(".badge.red", has_text="41")).to_be_visible()
    behind = {"region": "ap", "batches": 17, "since": "2026-01-01T00:00:00+00:00"}
    workers = overview | {"tables": [], "workers": [living, hung], "unserved": [behind]}
    answer(page, "**/api/ingest", workers)
    answer(page, "**/api/ingest?*", workers)
    page.reload()
    expect(page.locator(".badge.red", has_text="died or hangs: no sign for 15 min")).to_be_visible()
    expect(page.locator(".badge.green", has_text="at work")).to_be_visible()
    expect(page.get_by_text("acme.events eu.acme.d 7")).to_be_visible()
    expect(page.get_by_text("Batches on main that the replica does not serve yet")).to_be_visible()
    page.get_by_label("Where is my upload?").fill("abc")
    page.keyboard.press("Enter")
    expect(page.locator(".card .facts")).to_contain_text("rejected")
    channel = {"table": "acme.events", "drops": 3, "accepted": "41", "settled": ""}
    drop = {"state": "buffered", "lane": lane, "accepted": "2026-01-01T00:00:00+00:00", "rows": 2, "bytes": 9}
    for lookup, text in (
        ({"found": "channel", "channels": [channel]}, "41"),
        ({"found": "drop", "drop": drop, "batch": None}, "none yet"),
        ({"found": ""}, "Nothing here has that id."),
    ):
        answer(page, "**/api/ingest/find*", lookup)
        page.get_by_role("button", name="Find").click()
        expect(page.locator(".card")).to_contain_text(text)
    answer(page, "**/api/ingest?*", {"configured": True, "begun": False})
    page.locator("#tenant").select_option("acme")
    expect(page.get_by_text("Nothing came in yet.")).to_be_visible()
    answer(page, "**/api/ingest", overview | {"tables": []})
    page.reload()
    expect(page.get_by_text("Nothing waits.")).to_be_visible()
    answer(page, "**/api/ingest?*", {"error": "the tracker does not answer"}, 503)
    page.locator("#state").select_option("rejected")
    expect(page.get_by_text("the tracker does not answer")).to_be_visible()


def test_runs(page: Page) -> None:
    run_ = {"dag_id": "sterna_sync", "dag_run_id": ODD, "state": "running", "run_after": "2026-01-01T00:00:00Z"}
    run_ |= {"start_date": "2026-01-01T00:00:00Z", "end_date": None}
    copies = [
        {"task_id": "copy", "map_index": at, "state": state, "start_date": "2026-01-01T00:00:00Z"}
        for at, state in enumerate(("success", "running"))
    ]
    tasks = [{"task_id": "plan", "map_index": -1, "state": "success", "start_date": None}, *copies]
    answer(page, "**/api/v2/**", {"detail": "Forbidden"}, 403)
    page.goto("/#/runs")
    expect(page.get_by_role("alert")).to_have_text("Forbidden")
    answer(page, "**/api/v2/dags?*", {"dags": [{"dag_id": "sterna_sync"}]})
    answer(page, "**/dagRuns?*", {"dag_runs": []})
    page.reload()
    expect(page.get_by_text("No run yet.")).to_be_visible()
    answer(page, "**/dagRuns?*", {"dag_runs": [run_]})
    answer(page, "**/taskInstances?*", {"task_instances": tasks})
    answer(page, "**/xcomEntries/*", {"value": [{"bytes": 1024}, {"bytes": 3072}]})
    answer(page, "**/copy/xcomEntries/sent_bytes?map_index=1", {"value": 1024})
    page.reload()
    card = page.locator(".card[data-run]")
    expect(card).to_contain_text("2.0 KiB / 4.0 KiB")
    expect(card.locator(".facts")).to_contain_text(re.compile(r"Throughput\d+(\.\d)? [KM]?i?B/sTime left\d"))
    copy = card.get_by_role("link", name="copy", exact=True)
    assert (copy.get_attribute("href") or "").endswith("%3E/tasks/copy")
    expect(card).to_contain_text("1 / 2")
    expect(page.get_by_role("link", name=ODD).first).to_be_visible()


def test_a_failure_says_why_until_its_dag_has_a_newer_run(page: Page) -> None:
    run_ = {"dag_id": "sterna_lag_alert", "dag_run_id": "late", "state": "failed", "run_after": "2026-01-02T00:00:00Z"}
    run_ |= {"start_date": "2026-01-02T00:00:00Z", "end_date": "2026-01-02T00:00:09Z"}
    sync = {**run_, "dag_id": "sterna_sync", "dag_run_id": "new", "state": "success"}
    sync["run_after"] = "2026-01-03T00:00:00Z"
    task = {"task_id": "look", "map_index": -1, "state": "failed", "start_date": None, "try_number": 2}
    alarm = f"eu holds 1 tables: {ODD}: see docs/operations.md#unsafeuri"
    log = [{"event": "begun"}, {"event": "Task failed", "error_detail": [{"exc_type": "X", "exc_value": alarm}]}]
    answer(page, "**/api/v2/dags?*", {"dags": [{"dag_id": "sterna_lag_alert"}, {"dag_id": "sterna_sync"}]})
    answer(page, "**/sterna_lag_alert/dagRuns?*", {"dag_runs": [run_]})
    answer(page, "**/sterna_sync/dagRuns?*", {"dag_runs": [sync]})
    answer(page, "**/taskInstances?*", {"task_instances": [task]})
    answer(page, "**/look/logs/2", {"content": log, "continuation_token": None})
    page.goto("/#/runs")
    card = page.locator(".card[data-run=late]")
    expect(card.locator(".note.error")).to_have_text(alarm)
    card.get_by_role("link", name="docs/operations.md#unsafeuri").click()
    expect(page.locator("main .card").get_by_role("heading")).to_have_text("UnsafeUri")
    newer = run_ | {"dag_run_id": "newer", "state": "success", "run_after": "2026-01-04T00:00:00Z"}
    answer(page, "**/sterna_lag_alert/dagRuns?*", {"dag_runs": [newer, run_]})
    page.go_back()
    expect(page.get_by_role("link", name="newer")).to_be_visible()
    expect(page.locator(".card[data-run]")).to_have_count(0)


def test_only_what_is_configured_is_shown(page: Page, pages: Pages) -> None:
    dags = [{"dag_id": "sterna_cdc", "is_paused": True}, {"dag_id": "sterna_gc", "is_paused": True}]
    answer(page, "**/api/v2/dags?*", {"dags": dags})
    answer(page, "**/dagRuns?*", {"dag_runs": []})
    for dag in dags:
        answer(page, f"**/{dag['dag_id']}/details", dag)
    page.goto("/#/runs")
    views = page.get_by_role("navigation").get_by_role("link")
    actions = page.get_by_role("region", name="Actions").locator("tbody tr")
    expect(actions).to_contain_text(["sterna_gc"])
    expect(views).to_have_text(["Regions", "Tables", "Runs", "Events"])
    pages.services = FEATURES
    page.wait_for_timeout(1_100)  # what was read is kept for a second
    page.reload()
    expect(views).to_have_text(["Regions", "Tables", "Runs", "Events", "Inspector"])
    pages.services = "version: 7"
    page.wait_for_timeout(1_100)
    page.reload()
    expect(views).to_have_text(["Regions", "Tables", "Runs", "Events", "Ingest", "Inspector"])
    expect(actions).to_contain_text(["sterna_cdc", "sterna_gc"])


def test_actions_are_airflows_own_after_a_confirmation(page: Page) -> None:
    dag = {"dag_id": ODD, "is_paused": False, "params": {"dry_run": {"value": False}}}
    sent: list[tuple[str, str, object]] = []
    page.on("request", lambda one: sent.append((one.method, one.url, one.post_data_json)) if one.post_data else None)
    answer(page, "**/api/v2/**", {"detail": "Forbidden"}, 403)
    answer(page, "**/api/v2/dags?*", {"dags": [dag]})
    answer(page, "**/dagRuns?*", {"dag_runs": []})
    answer(page, "**/details", dag)
    page.goto("/#/runs")
    line = page.get_by_role("row").filter(has_text=ODD)
    line.get_by_role("button", name="Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    assert sent == []
    line.get_by_role("button", name="Dry run").click()
    dialog.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("alert")).to_have_text(f"Dry run: {ODD}: Forbidden")
    expect(dialog).to_have_count(0)
    ((method, url, body),) = sent
    assert (method, body) == ("POST", {"logical_date": None, "conf": {"dry_run": True}})
    assert url.endswith("%3E/dagRuns")
    answer(page, "**/details", {**dag, "is_paused": True, "params": {}})
    page.reload()
    expect(line.get_by_role("button", name="Resume")).to_be_enabled()
    expect(line.get_by_role("button", name="Run now")).to_be_disabled()
    expect(line.get_by_role("button", name="Dry run")).to_have_count(0)
    answer(page, "**/details", {**dag, "params": {"tables": {"value": [], "schema": {"minItems": 1}}}})
    page.reload()
    expect(line.get_by_role("button", name="Pause")).to_be_enabled()
    expect(line.get_by_role("button", name="Run now")).to_have_count(0)  # it would be refused: Airflow's form asks


def test_the_inspector_finds_a_user(page: Page) -> None:
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/features/" in request.url else None)
    answer(page, "**/api/features/123", FEATURE_ROWS)
    page.goto("/#/inspector")
    expect(page.get_by_label("User ID")).to_be_visible()
    expect(page.get_by_test_id("features-display")).to_have_count(0)
    page.get_by_role("button", name="Look up").click()  # empty: ignored
    page.get_by_label("User ID").fill("123")
    page.keyboard.press("Enter")
    shown = page.get_by_test_id("features-display")
    expect(shown).to_contain_text("30")
    expect(shown).to_contain_text("Shanghai")
    assert len(asked) == 1


def test_the_inspector_and_the_service_behind_it(page: Page, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "FEATURE_TIMEOUT_SECONDS", 30.0)
    service = FastAPI()

    @service.get("/features/user/{user}")
    def features(user: int) -> Any:
        return FEATURE_ROWS if user == 123 else JSONResponse({"detail": "unknown"}, 404)

    page.goto("/#/inspector")
    page.get_by_label("User ID").fill("123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("Lookup failed! Feature service URL is not configured")
    with served(service) as url:
        pages.settings["feature_service_url"] = url
        page.keyboard.press("Enter")
        expect(page.get_by_test_id("features-display")).to_contain_text("Shanghai")
        page.get_by_label("User ID").fill("404")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("Lookup failed! Failed to fetch features for user 404.")
    page.get_by_label("User ID").fill("abc")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("Lookup failed! Invalid user ID format")


def test_the_inspector_knows_more_than_one_view(page: Page, pages: Pages) -> None:
    """Their ids are taken as they are: a space at an end, or alone, is part of one. A user has labels of his own."""
    token = "Bearer a-token"
    pages.services = FEATURES
    asked: list[Any] = []
    service = FastAPI()

    @service.get("/features/user/{user}")
    def of_user(user: int, request: Request) -> Any:
        assert request.headers.get("authorization") == token
        return {"age": user, "score": 7}

    @service.post("/v1/features")
    def features(body: dict[str, Any], request: Request) -> Any:
        asked.append((body["features"], body["entities"], request.headers.get("authorization")))
        (view,) = {name.partition(".")[0] for name in body["features"]}
        return {"rows": [{**body["entities"][0], f"{view}.size": "12", f"{view}.tags": ["a", ODD]}], "found": [True]}

    with served(service) as url:
        pages.settings["feature_service_url"] = url
        pages.settings["feature_service_credential_id"] = "reader"
        pages.secrets = lambda id: Credential(id, password="a-token")
        page.goto("/#/inspector")
        expect(page.get_by_label("View")).to_have_value("user")
        page.get_by_label("User ID").fill(" 123 ")
        page.keyboard.press("Enter")
        expect(page.get_by_test_id("features-display")).to_have_text("User's age (age)123score7")
        page.get_by_label("View").select_option("shop")
        page.get_by_label("shop", exact=True).fill("a/b")
        page.keyboard.press("Enter")
        expect(page.get_by_test_id("features-display")).to_contain_text(ODD)
        page.get_by_label("View").select_option("visit")
        expect(page.get_by_label("shop", exact=True)).to_have_value("a/b")
        page.get_by_label("shop", exact=True).fill("..")
        page.keyboard.press("Enter")  # the other column has no value yet: ignored
        page.get_by_label("n", exact=True).fill("2")
        page.get_by_role("button", name="Look up").click()
        expect(page.get_by_test_id("features-display")).to_contain_text("..")
        page.get_by_label("View").select_option("shop")
        for id in ODD_IDS:
            page.get_by_label("shop", exact=True).fill(id)
            with page.expect_response("**/api/features?*"):
                page.keyboard.press("Enter")
            # A response's headers come before its rows are shown, and until then another Enter is ignored.
            expect(page.get_by_role("button", name="Look up")).to_be_enabled()
    assert asked == [
        (["shop.size"], [{"shop": "a/b"}], token),
        (["visit.seconds"], [{"shop": "..", "n": "2"}], token),
        *((["shop.size"], [{"shop": id}], token) for id in ODD_IDS),
    ]


@pytest.mark.parametrize(
    ("user", "status", "message"), [("404", 404, "User not found."), ("500", 500, "Server error.")]
)
def test_the_inspector_says_why_not(page: Page, user: str, status: int, message: str) -> None:
    answer(page, f"**/api/features/{user}", {"statusCode": status, "statusMessage": message}, status)
    page.goto("/#/inspector")
    page.get_by_label("User ID").fill(user)
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("alert")).to_have_text(f"Lookup failed! {message}")


def test_the_inspector_ignores_a_second_question_while_one_is_pending(page: Page) -> None:
    waiting = held_back(page, "**/api/features/*")
    page.goto("/#/inspector")
    page.get_by_label("User ID").fill("123")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Look up")).to_be_disabled()
    expect(page.get_by_text("Loading…")).to_be_visible()
    first(page, waiting).fulfill(status=500, body="not JSON")
    expect(page.get_by_role("alert")).to_have_text("Lookup failed! Unknown error")
    assert len(waiting) == 1


def test_the_inspector_in_chinese(page: Page) -> None:
    answer(page, "**/api/features/404", {"statusMessage": "User not found."}, 404)
    answer(page, "**/api/features/123", FEATURE_ROWS | {"city": ODD})
    page.goto("/#/inspector")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="实时特征检查器")).to_be_visible()
    page.get_by_label("用户 ID").fill("404")
    page.get_by_role("button", name="查询").click()
    expect(page.get_by_role("alert")).to_have_text("查询失败! User not found.")
    page.get_by_label("用户 ID").fill("123")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("features-display")).to_contain_text(ODD)
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.route("**/api/features/9", lambda route: route.abort())
    page.get_by_label("用户 ID").fill("9")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("查询失败! 未知错误")


@pytest.mark.parametrize(
    "view", often(["regions", "tables", "events", "ingest", "inspector", "runBook"], ["tables", "ingest"])
)
def test_a_narrow_window_scrolls_in_one_direction_alone(page: Page, view: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"/#/{view}")
    expect(page.locator("main h2")).to_be_visible()
    expect(page.get_by_text("Loading…")).to_have_count(0)
    assert fits(page)


def test_the_keyboard_reaches_navigation_and_content(page: Page) -> None:
    page.goto("/#/tables")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.keyboard.press("Tab")
    page.wait_for_function("document.activeElement.id === 'region'")


def test_nothing_comes_from_elsewhere(page: Page, stage: tuple[Pages, str]) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    expect(page.get_by_role("region", name="eu").locator("svg")).to_be_visible()
    assert [url for url in asked if not url.startswith(stage[1])] == []


def test_dark_and_light(page: Page) -> None:
    page.goto("/")
    colors = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_function("scheme => document.documentElement.dataset.look === scheme", arg=scheme)
        colors.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(colors)) == 2
