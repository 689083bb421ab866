"""Make the pictures of the pages that the documents show: `python -m tests.pages docs/pictures`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, expect

from sterna.catalog.model import Put
from sterna.errors import CatalogUnreachable
from sterna.replica.head import RUN_ID, SOURCE_HASH
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.pages import Pages, chromium, page_app, served
from tests.support.small_world import World, make_world, run, with_third_region

_WINDOW = {"width": 1180, "height": 800}
_SOURCES = ("orders", "items", "customers", "payments", "returns", "stores", "suppliers", "visits")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where they go, such as docs/pictures")
    parser.add_argument("--tables", type=int, default=0, help="instead say how fast so many tables are shown")
    given = parser.parse_args()
    folder: Path = given.folder
    if given.tables:
        return measure(given.tables)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        pages = Pages(a_day(Path(work)))
        pages.dark["ap"] = CatalogUnreachable("Nessie at https://ap.example/api/v2 gives no answer within 5 s")
        with served(page_app(pages)) as url, chromium() as browser:
            picture(browser, url, "regions", "light", folder / "regions.png")
            picture(browser, url, "regions", "dark", folder / "regions-dark.png")
            picture(browser, url, "tables", "light", folder / "tables.png")


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


def picture(browser: Browser, url: str, view: str, look: str, file: Path) -> None:
    """Take one picture."""
    context = browser.new_context(locale="en-GB", viewport=_WINDOW, color_scheme=look)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{url}/#/{view}")
    expect(page.get_by_text("Loading…")).to_have_count(0, timeout=30_000)
    page.screenshot(path=file)
    context.close()


if __name__ == "__main__":
    main()
