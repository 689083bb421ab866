"""README's first command, as a stranger runs it: without Java, Postgres, rclone or Maven on the PATH, and on a machine
whose variables and home folder are full of other programs' settings.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import STERNA
from tests.support.hostile import hostile_machine

HIDDEN = ("java", "psql", "postgres", "pg_", "rclone", "mvn", "docker")


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with this machine's programs, but for those that the demo brings itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    programs = {
        program.name: program
        for place in ("/bin", "/usr/bin")
        for program in Path(place).glob("*")
        if program.is_file()
    }
    for name, program in programs.items():
        if not name.startswith(HIDDEN):
            (folder / name).symlink_to(program)
    assert all(shutil.which(name, path=str(folder)) is None for name in ("java", "psql", "rclone", "mvn"))
    return str(folder)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files. Root's Postgres has an account of its own, which has to get there."""
    folder = Path(tempfile.mkdtemp(prefix="demo-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def demo(
    bare_path: str, work: Path | None, *more: str, temporary: Path | None = None, home: Path | None = None
) -> subprocess.Popen[str]:
    machine = hostile_machine(home) if home else {**os.environ, "JAVA_HOME": ""}
    environment = {**machine, "PATH": bare_path}
    if temporary:
        environment["TMPDIR"] = str(temporary)
    command = [*STERNA, "demo", "--json", *more]
    command += ["--work", str(work)] if work else []
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def left_running(work: Path, timeout: float = 30.0) -> list[str]:
    """Command lines of processes that name the demo's folder.

    Grandchildren get a while to notice that their parents are gone.
    """
    end = time.monotonic() + timeout
    while (commands := _processes_naming(str(work).encode())) and time.monotonic() < end:
        time.sleep(0.5)
    return commands


def _processes_naming(text: bytes) -> list[str]:
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if text in command + environ and int(process.name) != os.getpid():
            commands.append(f"{process.name} {command.replace(bytes(1), b' ').decode(errors='replace')}")
    return commands


def test_two_regions_replicate_and_one_answers_while_the_other_is_dark(bare_path: str, tmp_path: Path) -> None:
    work = tmp_path / "demo"
    process = demo(bare_path, work, home=tmp_path / "home")
    stdout, stderr = process.communicate(timeout=840)
    result = json.loads(stdout.splitlines()[-1])
    assert result["failures"] == [], stderr
    assert process.returncode == 0
    assert "eu answered 7 of 7 questions" in stderr
    for region in result["regions"]:
        assert region["foreign_uris"] == region["faults"] == 0
        assert region["files"] > 0
        assert all(main == replica for main, replica in region["rows"].values())
    assert {region["region"]: region["tables"] for region in result["regions"]} == {"us": 6, "eu": 6}
    for region in ("us", "eu"):
        assert f"{region}: 12 files posted became 1 on main" in stderr
        assert f"posted in {region}? published, batch 1 of 12 files; served in us since 2" in stderr
    assert stderr.count("2 files, 600 rows of 24 posted files") == 3
    story = result["story"]
    assert story["figure"] == {"users": "600", "first": "0", "last": "599"}
    assert (story["feature"]["user_id"], story["feature"]["city"]) == ("123", "Shanghai")
    assert re.fullmatch(r"[0-9a-f]{64}-\d+", story["event"])
    assert int(story["snapshot"]) > 0
    assert story["page"].endswith("/plugin/sterna")
    assert left_running(work) == []


def test_a_region_is_lost_another_takes_over_and_the_first_comes_back(bare_path: str, tmp_path: Path) -> None:
    work = tmp_path / "demo"
    process = demo(bare_path, work, "--disaster", home=tmp_path / "home")
    stdout, stderr = process.communicate(timeout=600)
    result = json.loads(stdout.splitlines()[-1])
    assert result["failures"] == [], stderr
    assert process.returncode == 0
    assert result["lost"] == 1
    assert "carriers from eu's copies, 16 rows in 1 files" in stderr
    assert "carriers is on main again, with its 16 rows" in stderr
    for region in ("us", "eu"):
        assert f"{region}: 32 airlines, 16 carriers" in stderr
    assert left_running(work) == []


@pytest.mark.long
def test_a_third_region_is_seeded_from_another_ones_copies_while_the_first_is_dark(
    bare_path: str, tmp_path: Path
) -> None:
    work = tmp_path / "demo"
    process = demo(bare_path, work, "--disaster", "--regions", "3", home=tmp_path / "home")
    stdout, stderr = process.communicate(timeout=840)
    result = json.loads(stdout.splitlines()[-1])
    assert result["failures"] == [], stderr
    assert process.returncode == 0
    assert "ap is seeded from eu's copies while us's store is down" in stderr
    assert "ap: 32 airlines, 16 carriers" in stderr
    assert left_running(work) == []


@pytest.mark.parametrize(
    ("number", "line", "seconds"),
    [(signal.SIGINT, "starting an Airflow", 3), (signal.SIGTERM, "starting Postgres", 0)],
)
def test_ctrl_c_and_sigterm_end_everything(
    bare_path: str, temporary: Path, number: signal.Signals, line: str, seconds: int
) -> None:
    process = demo(bare_path, None, temporary=temporary)
    assert process.stderr
    assert any(line in logged for logged in process.stderr)
    time.sleep(seconds)
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=180)
    # 130 to a shell either way: started by -m, Python dies of the signal where it interrupted an import's `exec`.
    assert process.returncode in (130, -signal.SIGINT)
    assert stderr.endswith("interrupted; all that it started has ended\n"), stderr
    assert left_running(temporary) == []
    assert list(temporary.glob("sterna-*")) == []


def test_a_folder_with_something_in_it_is_refused_before_anything_starts(bare_path: str, tmp_path: Path) -> None:
    work = tmp_path / "demo"
    work.mkdir()
    (work / "mine").write_text("x")
    process = demo(bare_path, work)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{work} is not empty" in json.loads(stderr.splitlines()[-1])["message"]
    assert [path.name for path in work.iterdir()] == ["mine"]
