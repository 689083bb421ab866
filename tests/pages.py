"""Make the pictures of the pages that the documents show: `python -m tests.pages docs/pictures`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from playwright.sync_api import Browser, Route, expect

from sterna.catalog.model import Put
from sterna.errors import CatalogUnreachable
from sterna.replication.replica.head import RUN_ID, SOURCE_HASH
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.pages import Pages, chromium, page_app, served
from tests.support.small_world import World, make_world, run, with_third_region

_WINDOW = {"width": 1180, "height": 800}
_SOURCES = ("orders", "items", "customers", "payments", "returns", "stores", "suppliers", "visits")


def _outlets() -> dict[str, Any]:
    defaults = {"position": "c63c6a6571f2aa", "kept": True, "events": 0, "lag": 0.0, "dead": 0}
    pager = {"name": "pager", "target": "webhook", **defaults, "events": 3, "lag": 41.0, "dead": 2}
    return {"sinks": [{"name": "lake_events", "target": "kafka", **defaults}, pager]}


def _runs(now: datetime) -> dict[str, Any]:
    def run_of(dag: str, minutes: float, state: str, seconds: float) -> dict[str, Any]:
        begun = now - timedelta(minutes=minutes)
        end = None if state == "running" else (begun + timedelta(seconds=seconds)).isoformat()
        name = f"asset_triggered__{begun:%Y-%m-%dT%H:%M:%S}+00:00"
        times = {"run_after": begun.isoformat(), "start_date": begun.isoformat(), "end_date": end}
        return {"dag_id": dag, "dag_run_id": name, "state": state, **times}

    listed = [run_of("sterna_sync", 1.5 + 9.0 * at, "success" if at else "running", 11.0 + at) for at in range(5)]
    listed.insert(3, run_of("sterna_gc", 20.0, "success", 48.0))
    begun = (now - timedelta(seconds=70)).isoformat()
    copies = [
        {"task_id": "copy", "map_index": at, "state": "success" if at < 3 else "running", "start_date": begun}
        for at in range(5)
    ]
    tasks = [{"task_id": "plan", "map_index": -1, "state": "success", "start_date": begun}, *copies]
    return {
        "**/api/v2/dags?*": {"dags": [{"dag_id": "sterna_sync"}]},
        "**/details": {"dag_id": "sterna_sync", "is_paused": False, "params": {"dry_run": {"value": False}}},
        "**/dagRuns?*": {"dag_runs": listed},
        "**/taskInstances?*": {"task_instances": tasks},
        "**/xcomEntries/*": {"value": [{"bytes": 734_003_200 + 50_000_000 * at} for at in range(5)]},
        "**/xcomEntries/sent_bytes*": {"value": 301_000_000},
    }


def _ingest(now: datetime) -> dict[str, Any]:
    def batch(number: int, table: str, state: str, reason: str = "") -> dict[str, Any]:
        lane = {"tenant": table.partition(".")[0], "table": table, "channel": "eu", "partition": ""}
        closed = (now - timedelta(minutes=3 * (9 - number))).isoformat()
        commit = "d7dfcf4c69c5" if state == "published" else ""
        size = {"rows": 1_200 * number, "bytes": 310_000 * number, "snapshot": None, "commit": commit}
        return {"lane": lane, "number": number, "state": state, "reason": reason, "closed": closed, **size}

    bad = "acme.visits has no column named colour, and may not get one"
    batches = [batch(8, "acme.uploads", "staged"), batch(7, "beta.scans", "published")]
    batches += [batch(6, "acme.visits", "rejected", bad), batch(5, "acme.uploads", "published")]
    waiting = {"tenant": "acme", "table": "acme.uploads", "buffered": 14, "waiting": 1, "bytes": 229_376, "lag": 4.0}
    tenants = [
        {"name": "acme", "backlog": 229_376, "day": 4_812_000_000},
        {"name": "beta", "backlog": 0, "day": 91_000_000},
    ]
    overview = {"configured": True, "begun": True, "states": ["closed", "staged", "published", "rejected"]}
    more = {"batches": batches, "tenants": tenants, "tables": [{**waiting, "exit_code": 0, "reason": ""}]}
    return {"**/api/ingest": overview | more}


_NOW = datetime.now(UTC)
_CONFIGURED = {"**/api/configured": {"ingest": True, "inspector": True, "figure": True, "idle": []}}
OTHERS: dict[str, dict[str, Any]] = {
    "events": {
        "**/api/outlets": _outlets(),
        "**/api/kpi*": {"configured": True, "kpi": {"total_revenue": "1284.50"}},
    },
    "runs": _runs(_NOW),
    "ingest": _ingest(_NOW),
    "inspector": {"**/api/features/123": {"age": 30, "city": "Shanghai", "last_updated_ts": "2026-05-20T10:00:00Z"}},
}
"""By view, what the servers would answer that a picture of it has no need of: Airflow, a tracker, brokers, a store."""


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where they go, such as docs/pictures")
    parser.add_argument("--tables", type=int, default=0, help="instead say how fast so many tables are shown")
    options = parser.parse_args()
    folder: Path = options.folder
    if options.tables:
        return measure(options.tables)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        pages = Pages(a_day(Path(work)))
        pages.dark["ap"] = CatalogUnreachable("Nessie at https://ap.example/api/v2 gives no answer within 5 s")
        with served(page_app(pages)) as url, chromium() as browser:
            picture(browser, url, "regions", "light", folder / "regions.png")
            picture(browser, url, "regions", "dark", folder / "regions-dark.png")
            picture(browser, url, "tables", "light", folder / "tables.png")
            for view, answers in OTHERS.items():
                picture(browser, url, view, "light", folder / f"{view}.png", answers=answers)


def measure(tables: int) -> None:
    """Say how long the views Regions and Tables take with very many tables, from the request to the figures."""
    with tempfile.TemporaryDirectory() as work:
        world = make_world(Path(work))
        world.commit(first=world.write("first"))
        run(world)
        here, main = world.replica()["ns.first"], world.catalog.reference("main").hash
        location = world.catalog.contents("main", main, [("ns", "first")])[("ns", "first")].metadata_location
        names = [f"table_{number:05}" for number in range(tables)]
        world.commit(**dict.fromkeys(names, location))
        world.catalog.commit(
            "main_replica_eu",
            world.catalog.reference("main_replica_eu").hash,
            [Put(("ns", name), here.with_id(None)) for name in names],
            "as a sync would",
            {RUN_ID: "measured", SOURCE_HASH: world.catalog.reference("main").hash},
        )
        with served(page_app(Pages(world))) as url, chromium() as browser:
            for view, shown in 2 * (("regions", "section.card svg"), ("tables", "tbody tr")):
                page = browser.new_page()
                begun = time.monotonic()
                page.goto(f"{url}/#/{view}")
                page.locator(shown).first.wait_for()
                sys.stdout.write(f"{view} with {tables} tables: {time.monotonic() - begun:.2f} s\n")
                page.close()


def a_day(folder: Path) -> World:
    """Return regions with a day behind them: commits, publications a while later, one table that is held."""
    now = datetime.now(UTC)
    begun = now - timedelta(hours=24)
    clock = [begun]
    world = replace(with_third_region(make_world(folder)), catalog=InMemoryCatalog(clock=lambda: clock[0]))
    for number in range(32):
        clock[0] = begun + timedelta(minutes=44.8 * number)
        name = _SOURCES[number % len(_SOURCES)]
        world.commit(**{name: world.write(name, rows=1000 * (number % 5 + 1))})
        clock[0] += timedelta(seconds=40 + (number * 7919) % 300 + (900 if number in (10, 23) else 0))
        run(world)
        run(world, "us")
    clock[0] = now - timedelta(minutes=3)
    world.commit(clicks="s3://click-lake/clicks/metadata/00007-8d1f.metadata.json")
    run(world)
    clock[0] = now - timedelta(seconds=14)
    world.commit(orders=world.write("orders"))
    return world


def picture(
    browser: Browser,
    url: str,
    view: str,
    look: str,
    file: Path,
    *,
    answers: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Take one picture.

    Args:
        browser: takes it.
        url: where the pages are.
        view: which of them.
        look: `light` or `dark`.
        file: where the picture goes.
        answers: by path, what servers that aren't here would answer.
    """
    context = browser.new_context(locale="en-GB", viewport=_WINDOW, color_scheme=look)  # type: ignore[arg-type]
    page = context.new_page()
    for path, body in {**_CONFIGURED, **answers}.items():
        page.route(path, partial(_answered, body=json.dumps(body)))
    page.goto(f"{url}/#/{view}")
    if view == "inspector":
        page.get_by_label("User ID").fill("123")
        page.keyboard.press("Enter")
    if view == "events":
        expect(page.get_by_test_id("connection")).to_contain_text("Listening", timeout=30_000)
    expect(page.get_by_text("Loading…")).to_have_count(0, timeout=30_000)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=30_000)
    page.screenshot(path=file)
    context.close()


def _answered(route: Route, body: str) -> None:
    route.fulfill(body=body, content_type="application/json")


if __name__ == "__main__":
    main()
