"""A newcomer's browser beside the guide "An Airflow on one machine".

`python -m tests.support.newcomer STEP URL FOLDER` is how the guide's shell runs each step at its place. The session
stays in a file between them. Only what a person sees is used: names of buttons, headings and links.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from playwright.sync_api import BrowserContext, FrameLocator, Page, expect

from tests.support.guides import LAKE, Block
from tests.support.pages import chromium

_WAIT_MS = 120_000.0
_PASSWORD = re.compile(r"Password for user 'admin': (\S+)")
_SESSION = "session.json"
_ALERT = "sterna_lag_alert"
_AFTER = {
    "airflow standalone": "log_in",
    "sterna plan --region": "unpause",
    "sterna why rail.trips": "replica",
    "eu holds .*": "alarm",
    ">> $STERNA_REGISTRY": "cured",
}
"""By a text of the guide's blocks, the step that follows it."""


def with_browser(blocks: Sequence[Block], url: str) -> list[Block]:
    """Return a guide's blocks with the browser's steps at their places.

    Args:
        url: of Airflow.
    """
    program = f"PYTHONPATH=plugins:. {sys.executable} -m tests.support.newcomer"
    steps = {text: Block("bash", f"{program} {step} {url} {LAKE}\n", "", step) for text, step in _AFTER.items()}
    return [each for block in blocks for each in (block, *(step for text, step in steps.items() if text in block.text))]


def log_in(page: Page, folder: Path) -> None:
    """Log in with the password that `airflow standalone` prints, and find the region that has never synced."""
    log = folder / "airflow.log"
    while not (found := _PASSWORD.search(log.read_text())):
        time.sleep(1)
    page.goto("/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(found[1])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda now: "/auth/" not in now)
    expect(_pages(page).get_by_text("eu has never synced: resume its DAG sterna_sync")).to_be_visible()


def unpause(page: Page, _: Path) -> None:
    """Resume the DAGs that replication needs, on the page Runs; others that have nothing to do aren't offered."""
    pages = _pages(page, "Runs")
    rows = pages.get_by_role("region", name="Actions").get_by_role("row")
    for dag in ("sterna_sync", "sterna_large", _ALERT, "sterna_gc"):
        row = rows.filter(has_text=re.compile(f"^{dag}"))
        row.get_by_role("button", name="Resume").click()
        pages.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(row.get_by_role("button", name="Pause")).to_be_visible()
    expect(rows.filter(has_text="sterna_cdc")).to_have_count(0)


def replica(page: Page, _: Path) -> None:
    """See the first table served, and the sync that brought it."""
    pages = _pages(page, "Tables")
    expect(pages.get_by_role("row").filter(has_text="rail.trips")).to_contain_text("served")
    pages.get_by_role("link", name="Runs").click()
    expect(pages.get_by_role("row").filter(has_text="sterna_sync").filter(has_text="success").first).to_be_visible()


def alarm(page: Page, _: Path) -> None:
    """See why the alert failed, follow it to its entry of the run book, and from the held table to the error's."""
    pages = _pages(page, "Runs")
    card = pages.locator(".card").filter(has=pages.get_by_role("heading", name=_ALERT))
    expect(card.locator(".note.error")).to_contain_text("rail.stops")
    card.locator(".note.error").get_by_role("link").click()
    expect(pages.get_by_role("heading", name=re.compile("^R holds … tables for more than"))).to_be_visible()
    pages.get_by_role("link", name="Tables").click()
    row = pages.get_by_role("row").filter(has_text="rail.stops")
    row.get_by_text("Why?").click()
    expect(row).to_contain_text("remedy: register the URI's prefix as a location; the next sync takes the table up")
    row.get_by_role("link").click()
    expect(pages.get_by_role("heading", name="UnregisteredUri on a table")).to_be_visible()
    expect(pages.get_by_text("Do: register the URI's prefix as a location")).to_be_visible()


def cured(page: Page, _: Path) -> None:
    """See the table served, and the alert's next run succeed: nothing of the failure stays on top."""
    pages = _pages(page, "Tables")
    expect(pages.get_by_role("row").filter(has_text="rail.stops")).to_contain_text("served")
    pages.get_by_role("link", name="Runs").click()
    actions = pages.get_by_role("region", name="Actions").get_by_role("row").filter(has_text=_ALERT)
    actions.get_by_role("button", name="Run now").click()
    pages.get_by_role("dialog").get_by_role("button", name="Run now").click()
    run = pages.get_by_role("status").get_by_role("link").text_content() or ""
    listed = pages.get_by_role("region", name="Last runs").get_by_role("row").filter(has_text=run)
    expect(listed).to_contain_text("success")
    expect(pages.locator(".note.error")).to_have_count(0)


def _pages(page: Page, view: str = "Regions") -> FrameLocator:
    """Go to sterna's entry in Airflow's navigation, and there to a view."""
    if page.url == "about:blank":
        page.goto("/")
    page.get_by_role("link", name="sterna", exact=True).click()
    frame = page.frame_locator("iframe")
    frame.get_by_role("link", name=view, exact=True).click()
    return frame


STEPS: Mapping[str, Callable[[Page, Path], None]] = {
    step.__name__: step for step in (log_in, unpause, replica, alarm, cured)
}


def main() -> None:
    """Do one step."""
    step, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    expect.set_options(timeout=_WAIT_MS)
    with chromium() as browser:
        session = folder / _SESSION
        context: BrowserContext = browser.new_context(
            locale="en-GB", base_url=url, storage_state=session if session.exists() else None
        )
        context.set_default_timeout(_WAIT_MS)
        page = context.new_page()
        try:
            STEPS[step](page, folder)
        finally:
            page.screenshot(path=folder / f"{step}.png")
        context.storage_state(path=session)


if __name__ == "__main__":
    main()
