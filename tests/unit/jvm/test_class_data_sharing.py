"""A class archive is made once for a Java and a class path; whatever is wrong with it keeps nothing from starting."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sterna.errors import EngineError
from sterna.jvm.class_data_sharing import archive_options
from sterna.jvm.java import Java

_JAVA = '#!/bin/sh\nfor word do case "$word" in -XX:SharedArchiveFile=*) echo base > "${word#*=}";; esac; done\n'


class Rehearsals:
    """What was asked for, and what a rehearsal does."""

    def __init__(self, folder: Path) -> None:
        home = folder / "java"
        (home / "lib" / "server").mkdir(parents=True)
        (home / "lib" / "server" / "libjvm.so").touch()
        (home / "bin").mkdir()
        (home / "bin" / "java").write_text(_JAVA)
        (home / "bin" / "java").chmod(0o755)
        self.java = Java(home, 21, frozenset())
        self.jar = folder / "thing.jar"
        self.jar.write_text("classes")
        self.cache = folder / "cache"
        self.runs: list[list[str]] = []
        self.messages: list[str] = []
        self.fails: BaseException | None = None
        self.leaves = "archive"

    def rehearse(self, options: list[str], folder: Path) -> None:
        self.runs.append(options)
        (folder / "log").write_text("whatever it writes")
        if self.fails:
            raise self.fails
        (draft,) = [word.partition("=")[2] for word in options if word.startswith("-XX:ArchiveClassesAtExit=")]
        if self.leaves:
            Path(draft).write_text(self.leaves)

    def options(self) -> list[str]:
        return archive_options("thing", self.java, [self.jar], self.rehearse, self.messages.append)

    def archive(self) -> Path:
        """The archive that the options name."""
        (named,) = [word.partition("=")[2] for word in self.options() if word.startswith("-XX:SharedArchiveFile=")]
        return Path(named)

    def left(self) -> list[str]:
        """What stands in the cache beside the lock, without the archives' own names."""
        paths = (self.cache / "classes").iterdir()
        return sorted(path.suffix or path.name.rpartition("-")[0] for path in paths if path.suffix != ".lock")


@pytest.fixture
def rehearsals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsals:
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    return Rehearsals(tmp_path)


def test_it_is_made_once(rehearsals: Rehearsals) -> None:
    first = rehearsals.options()
    assert first == rehearsals.options()
    assert len(rehearsals.runs) == len(rehearsals.messages) == 1
    archive, base = rehearsals.archive(), Path(rehearsals.runs[0][0].partition("=")[2])
    assert (base.read_text(), archive.read_text()) == ("base\n", "archive")
    assert {path.name for path in archive.parent.iterdir()} == {"thing.jsa", "java.jsa"}


def test_another_jar_has_another(rehearsals: Rehearsals) -> None:
    first = rehearsals.options()
    os.utime(rehearsals.jar, (1, 1))
    assert rehearsals.options() != first
    assert len(rehearsals.runs) == 2


@pytest.mark.parametrize("fails", [EngineError("it did not start"), OSError("no space"), None])
def test_a_rehearsal_that_fails_is_tried_again_a_day_later(rehearsals: Rehearsals, fails: Exception | None) -> None:
    rehearsals.fails, rehearsals.leaves = fails, ""
    assert rehearsals.options() == rehearsals.options() == []
    assert len(rehearsals.runs) == 1
    assert rehearsals.left() == [".failed"], "nothing half-made is left"
    (mark,) = (rehearsals.cache / "classes").glob("*.failed")
    os.utime(mark, (time.time() - 86_500,) * 2)
    rehearsals.fails, rehearsals.leaves = None, "archive"
    assert rehearsals.options() != []


def test_a_java_that_can_not_dump_its_own_classes_is_no_error(rehearsals: Rehearsals) -> None:
    (rehearsals.java.home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert rehearsals.options() == []
    assert rehearsals.runs == []


def test_one_that_is_interrupted_leaves_nothing(rehearsals: Rehearsals) -> None:
    rehearsals.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        rehearsals.options()
    assert rehearsals.left() == []


def test_what_a_killed_one_left_goes(rehearsals: Rehearsals) -> None:
    archive = rehearsals.archive()
    archive.unlink()
    (archive.parent / "work").mkdir()
    (archive.parent / "draft.jsa").touch()
    assert rehearsals.archive() == archive
    assert {path.name for path in archive.parent.iterdir()} == {"thing.jsa", "java.jsa"}


def test_a_cache_that_can_not_be_written_to_is_no_error(rehearsals: Rehearsals) -> None:
    rehearsals.cache.write_text("a file")
    assert rehearsals.options() == []


def test_an_archive_of_somebody_else_is_used(rehearsals: Rehearsals, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    first = rehearsals.options()
    monkeypatch.setattr(os, "utime", refused)
    assert rehearsals.options() == first


def test_a_full_disk_is_left_alone(rehearsals: Rehearsals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    assert rehearsals.options() == []
    assert rehearsals.runs == []


def test_those_that_were_used_last_stay(rehearsals: Rehearsals) -> None:
    archives = []
    for second in range(6):
        os.utime(rehearsals.jar, (second, second))
        archives.append(rehearsals.archive().parent)
        os.utime(archives[-1], (second + 10, second + 10))
    assert [path.exists() for path in archives] == [False, False, True, True, True, True]
