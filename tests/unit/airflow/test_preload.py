"""What the scheduler imports for its tasks."""

from __future__ import annotations

import sys

import pytest

from sterna.airflow import preload


@pytest.mark.parametrize(
    ("argv", "loads"), [(["airflow", "scheduler"], True), (["airflow", "triggerer"], False), (["airflow"], False)]
)
def test_only_a_scheduler_imports_and_all_modules_are_there(
    argv: list[str], loads: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    imported: list[str] = []
    real = preload.import_module
    monkeypatch.setattr(preload, "import_module", lambda name: imported.append(name) or real(name))
    with caplog.at_level("INFO"):
        preload.on_starting(None)
    assert imported == (list(preload.MODULES) if loads else [])
    assert caplog.text == ""


def test_a_missing_package_stops_no_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler"])
    monkeypatch.setattr(preload, "MODULES", ("sterna_has_no_such_module",))
    with caplog.at_level("INFO"):
        preload.on_starting(None)
    assert "sterna_has_no_such_module" in caplog.text
