"""Ingestion in a real Airflow: what was taken in becomes rows on `main` by the DAG `sterna_ingest`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from sterna.config.services_file import read_services
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.model import Destination, Format, State, channel_name
from sterna.pipelines.ingest.region import open_ingest
from tests.airflow.conftest import World

INGEST = "sterna_ingest"


def test_what_was_taken_in_is_on_main_after_a_run(world: World, tmp_path: Path, signed_in: BrowserContext) -> None:
    world.airflow.wait_for_dag(INGEST)
    world.sql("CREATE NAMESPACE IF NOT EXISTS dag_eu.posted")
    world.sql("CREATE TABLE dag_eu.posted.rows (id BIGINT, name STRING) USING iceberg")
    ingest = open_ingest(world.context, read_services(world.folder / "services.yaml"))
    room = IngestService(ingest)
    try:
        destination = Destination("posted", "posted.rows", channel_name("eu", "posted"))
        taken = []
        for number in range(3):
            content = b'{"id": %d, "name": "n"}\n' % number
            path = tmp_path / str(number)
            path.write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            sent = UploadRequest(destination, f"key-{number}", "", Format.JSON_LINES, path, len(content), 1, digest)
            taken.append(room.accept(sent)[0])
        page = signed_in.new_page()
        _ask(page, taken[0].id)
        expect(page.locator(".card .facts")).to_contain_text("buffered")
        waiting = page.get_by_role("region", name="Backlog", exact=True)
        expect(waiting.get_by_role("row").filter(has_text="posted.rows")).to_contain_text("3")
        world.airflow.patch(f"/dags/{INGEST}", {"is_paused": False})
        run = world.airflow.post(f"/dags/{INGEST}/dagRuns", {"logical_date": None})["dag_run_id"]
        try:
            world.wait_until("the run's end", lambda: _state(world, run) in ("success", "failed"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{_describe_run(world, run)}") from None
        assert _state(world, run) == "success", _describe_run(world, run)
        assert world.sql("SELECT id FROM dag_eu.posted.rows ORDER BY 1") == [(0,), (1,), (2,)]
        (files,) = world.sql("SELECT count(*) FROM dag_eu.posted.rows.files")
        assert files == (1,)
        for drop in taken:
            tracked = ingest.tracker.upload(drop.id)
            assert tracked is not None and tracked.state is State.PUBLISHED
        _ask(page, taken[0].id)
        expect(page.locator(".card .facts")).to_contain_text("published")
        batches = page.get_by_role("region", name="Batches", exact=True)
        expect(batches.get_by_role("row").filter(has_text="posted.rows")).to_contain_text("published")
        expect(page.get_by_text("Nothing waits")).to_be_visible()
    finally:
        world.airflow.patch(f"/dags/{INGEST}", {"is_paused": True})
        room.stop()
        world.sql("DROP TABLE dag_eu.posted.rows")
        world.sql("DROP NAMESPACE dag_eu.posted")


def _ask(page: Page, upload: str) -> None:
    """Ask the page where an upload is."""
    page.goto("/sterna/#/ingest")
    page.reload()
    page.get_by_label("Where is my upload?").fill(upload)
    page.keyboard.press("Enter")


def _state(world: World, run: str) -> str:
    return next(dag_run["state"] for dag_run in world.runs(INGEST) if dag_run["dag_run_id"] == run)


def _describe_run(world: World, run: str) -> str:
    """Say what became of a run's tasks, with their logs."""
    report = []
    path = f"/dags/{INGEST}/dagRuns/{run}/taskInstances"
    for task in world.airflow.get(path, limit=100)["task_instances"]:
        report.append(f"{task['task_id']} is {task['state']}, try {task['try_number']}")
        if task["try_number"]:
            lines = world.airflow.get(f"{path}/{task['task_id']}/logs/{task['try_number']}")["content"]
            report += [f"  {line}"[:2000] for line in lines]
    return "\n".join(report)
