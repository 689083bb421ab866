"""Files that are added where they lie, as a task: what it hands to the room, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.airflow.ingest_operator import SternaIngestAddOperator
from sterna.pipelines.ingest import add_files as room
from sterna.pipelines.ingest import region, step_context
from sterna.pipelines.ingest.add_files import FileAdditionOutcome
from sterna.pipelines.ingest.file_proof import ProvenFile
from tests.unit.airflow.test_ingest_operator import SERVICES


def test_a_task_adds_and_returns_the_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    services, acted, closed = tmp_path / "services.yaml", [], []
    services.write_text(SERVICES)
    uris = ["s3://us-lake/a.parquet"]

    def adding(ingest: Any, mapping: Any, catalog: Any, table: str, files: Sequence[str]) -> Any:
        def run(*, apply: bool) -> FileAdditionOutcome:
            acted.append((table, list(files), apply))
            return FileAdditionOutcome(table, (ProvenFile(files[0], 9, 3),), 9, 3, snapshot=7, commit="c", done=True)

        return SimpleNamespace(run=run)

    @contextmanager
    def catalog(*_: Any) -> Iterator[None]:
        yield

    ingest = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(room, "build_addition", adding)
    monkeypatch.setattr(step_context, "open_catalog", catalog)
    monkeypatch.setattr(region, "open_ingest", lambda *_: ingest)
    task = SternaIngestAddOperator(task_id="add", table="acme.t", uris=uris, services=str(services))
    monkeypatch.setattr(SternaIngestAddOperator, "open", lambda self: SimpleNamespace(mapping=None))
    assert task.execute({}) == 7
    assert acted == [("acme.t", uris, True)] and closed == [True]
    assert {"table", "uris", "region"} <= set(task.template_fields)
