"""Any body: what the gateway takes is read as pyarrow reads it, row by row, or dead by its line and column.

What falls under it: every type, layout and depth that a body can have; the rows that are dead are those that pyarrow's
own values show to be inexact, and no more; what the gateway refuses, the worker would refuse; a drop beside one that is
refused or has dead rows loses none. `tests/support/bodies.py` says what is to become of a body without asking sterna.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop
from sterna.pipelines.ingest.columns import Column
from sterna.pipelines.ingest.model import Format
from sterna.pipelines.ingest.validate import check
from tests.support.bodies import DEAD, Body, files, lines, plain_rows
from tests.unit.ingest.test_reading import Folder

LIMITS = TenantLimits(ratio=100_000)
FORMATS = {"json": Format.JSON_LINES, "arrow": Format.ARROW, "parquet": Format.PARQUET}


def holds(body: Body) -> None:
    """See that a body becomes what is to become of it."""
    path = Path(tempfile.mkdtemp())
    try:
        _holds(body, Folder(path))
    finally:
        shutil.rmtree(path)


def _holds(body: Body, folder: Folder) -> None:
    beside = {"id": 1_000_000}
    folder.json(beside)
    folder.add(body.format, body.content, max(len(body.rows), 1))
    folder.json(beside)
    try:
        taken = check(FORMATS[body.format], folder.path / "d1", LIMITS)
    except BadDrop as error:
        assert body.refused or body.overlapping, error
        assert "column '" in error.message
        taken = 0
    assert bool(taken) != (body.refused or body.overlapping)
    if body.overlapping:
        return
    columns = tuple(Column(name, type) for name, type in body.columns.items())
    report = folder.read(columns, "none" if columns else "add")
    rows = [row for row in _rows(folder) if row["id"] != 1_000_000]
    assert report.rows - len(rows) == 2  # those beside
    if body.refused:
        assert ([offset for _, offset, _ in folder.dead], rows) == ([-1], [])
        return
    assert rows == [row for row in body.rows if row is not DEAD]
    dead = [place for place, row in enumerate(body.rows) if row is DEAD]
    assert [(drop, offset) for drop, offset, _ in folder.dead] == [("d1", place) for place in dead]
    assert all(error.startswith("column '") for _, _, error in folder.dead)


def _rows(folder: Folder) -> list[dict[str, Any]]:
    with pa.memory_map(str(folder.path / "good.arrow")) as source:
        return plain_rows(pa.ipc.open_file(source).read_all())


@settings(max_examples=60)
@given(files())
def test_any_file_is_read_exactly_or_dead_by_line_and_column(body: Body) -> None:
    holds(body)


@settings(max_examples=100)
@given(lines())
def test_any_lines_are_read_exactly_or_dead_by_line_and_column(body: Body) -> None:
    holds(body)


@pytest.mark.rare
@settings(max_examples=20_000)
@given(files() | lines())
def test_many_bodies_are_read_exactly_or_dead_by_line_and_column(body: Body) -> None:
    holds(body)
