"""`sterna services check`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sterna.cli.main import main
from sterna.config.sections.model import SECTIONS


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STERNA_SERVICES", raising=False)


def check(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["services", "check", *arguments])
    return ended.value.code


def write(path: str, text: str) -> str:
    Path(path).write_text(text)
    return path


def test_a_missing_file_means_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert check() == 0
    printed = capsys.readouterr().out
    assert "no sterna_services.yaml" in printed and "configured: none" in printed
    assert check("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"ok": True, "file": None, "version": 1, "configured": [], "empty": list(SECTIONS)}


def test_the_file_that_was_read_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("sterna_services.yaml", "transforms: [1]\n")
    monkeypatch.setenv("STERNA_SERVICES", write("given.yaml", "version: 1\ntransforms: []\n"))
    assert check() == 0
    assert "ok   given.yaml" in capsys.readouterr().out
    assert check("--services", write("option.json", "{}"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["file"] == "option.json"
    monkeypatch.setenv("STERNA_SERVICES", "")
    assert check() == 2  # the folder's own


def test_a_wrong_file_is_answered_with_all_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    path = write("wrong.yaml", "version: 2\nreaderz: []\ntransforms: [1]\n")
    assert check("--services", path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [
        f"wrong.yaml:{line}: {field}" in captured.err
        for line, field in enumerate(("version", "readerz", "transforms"), 1)
    ]
    assert "ServicesError: stop" in captured.err
    assert check("--services", path, "--json") == 2
    error = json.loads(capsys.readouterr().err)
    assert error["error"] == "ServicesError" and len(error["message"].splitlines()) == 3


def test_a_file_that_was_named_must_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--services", "absent.yaml") == 2
    assert "absent.yaml" in (message := capsys.readouterr().err) and "STERNA_SERVICES" in message


def test_its_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--help") == 0
    assert "Example: sterna services check" in capsys.readouterr().out
