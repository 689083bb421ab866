"""The demo's folder, and that of a Postgres which runs as another account: neither outlives its demo by more than one.

The kind: folders outside a work folder that end with a process, and stay where it is killed. Those of the demo and of
its servers are made by one function, whichever account writes in them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest

from sterna.demo.folder import work_folder
from sterna.errors import UsageError
from sterna.servers.postgres import open_folder
from sterna.servers.process import remove_folder
from sterna.servers.temporary import LOCK_FILE_NAME, remove_temporary_folder

_HOLDS = """\
import sys, time
from sterna.demo.folder import work_folder
with work_folder(None, "sterna-demo-") as made:
    print(made, flush=True)
    time.sleep(600)
"""

_HOLDS_POSTGRES = """\
import os, sys, time
from pathlib import Path
from sterna.servers.postgres import open_folder
os.geteuid = lambda: 0
made = open_folder(Path(sys.argv[1]))
(made / "data").mkdir()
print(made, flush=True)
time.sleep(600)
"""

_WRITES = """\
import sys, time
print("writes", flush=True)
end = time.monotonic() + 2
while time.monotonic() < end:
    try:
        open(sys.argv[1] + f"/{time.monotonic()}", "w").close()
    except FileNotFoundError:
        break
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> None:
    os.utime(folder / LOCK_FILE_NAME, (0, 0))


def test_a_temporary_one_goes_and_a_named_one_stays(temporary: Path) -> None:
    with work_folder(None, "sterna-demo-") as folder:
        (folder / "data").write_text("x")
    assert list(temporary.iterdir()) == []
    with work_folder(temporary / "mine", "sterna-demo-") as named:
        (named / "data").write_text("x")
    assert (temporary / "mine" / "data").exists()


def test_what_a_killed_demo_left_goes_with_the_next_and_a_living_ones_stays(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )
    assert process.stdout
    left = Path(process.stdout.readline().strip())
    aged(left)
    with work_folder(None, "sterna-demo-"):
        assert left.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with work_folder(None, "sterna-demo-"):
        assert not left.exists()


def test_what_a_killed_demos_postgres_left_goes_with_the_next_one_and_a_living_ones_stays(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, whose own folders are closed to the account that Postgres runs as."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    work = temporary / "work"
    work.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_POSTGRES, work],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout
    left = Path(process.stdout.readline().strip())
    assert left.parent == temporary
    aged(left)
    live = open_folder(work)
    assert left.exists(), "its process lives"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    other = open_folder(work)
    assert not left.exists()
    aged(live)
    third = open_folder(work)
    assert live.exists(), "this process lives"
    for folder in (live, other, third):
        assert folder.stat().st_mode & 0o777 == 0o755
        remove_temporary_folder(folder)
    assert sorted(path.name for path in temporary.iterdir()) == ["work"]


def test_folders_of_others_stay(temporary: Path) -> None:
    (temporary / "sterna-demo-notes").mkdir()
    young = temporary / "sterna-demo-young"
    young.mkdir()
    (young / LOCK_FILE_NAME).touch()
    with work_folder(None, "sterna-demo-"):
        assert len(list(temporary.iterdir())) == 3


def test_where_it_can_not_be_made_is_told(temporary: Path) -> None:
    (temporary / "file").write_text("x")
    with pytest.raises(UsageError, match="can't be made"), work_folder(temporary / "file" / "below", "sterna-demo-"):
        pass
    with pytest.raises(UsageError, match="not empty"), work_folder(temporary, "sterna-demo-"):
        pass


def test_a_full_disk_is_told_before_anything_starts(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**8))
    with pytest.raises(UsageError, match=r"0\.1 GB free"), work_folder(None, "sterna-demo-"):
        pass
    assert list(temporary.iterdir()) == []


def test_a_folder_goes_though_what_was_killed_in_it_writes_a_moment_longer(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(2000):  # so that a file is written between a look and the removal
        (folder / f"{number}").touch()
    writer = subprocess.Popen([sys.executable, "-c", _WRITES, folder], stdout=subprocess.PIPE)
    assert writer.stdout
    assert writer.stdout.readline() == b"writes\n"
    remove_folder(folder, max_wait=60)
    assert writer.wait() == 0
    assert not folder.exists()
