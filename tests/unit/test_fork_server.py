"""Jobs in forked processes: what ends them is told apart, and none outlives its giver, or gets its secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sterna.concurrency import fork_server
from sterna.concurrency.fork_server import ForkServer, JobFailure
from sterna.errors import EngineError
from tests.support import fork_jobs
from tests.support.patching import replace_functions

_MEMORY = 1 << 30
_DEADLINE_SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    running = ForkServer(fork_jobs.__name__, "does jobs for tests")
    yield running
    running.stop()


def job(folder: Path, kind: str) -> Path:
    (folder / "job").write_text(kind)
    return folder


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    return False


def test_a_job_gets_no_credentials(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AIRFLOW_CONN_LAKE_EU",
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "db_token",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("PLAIN", "kept")
    assert server.run(job(tmp_path, "environment"), _MEMORY, 60.0) is None
    written = (tmp_path / "result").read_text()
    assert "hunter2" not in written and "PLAIN=kept" in written


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("crash", JobFailure("died of signal 6")),
        ("killed", JobFailure("died of signal 9", is_killed=True)),
        ("memory", JobFailure("needed more memory than it may have", is_out_of_memory=True)),
        ("sleep", JobFailure("took more than 0.5 s", is_late=True)),
    ],
)
def test_how_a_job_ended(server: ForkServer, tmp_path: Path, kind: str, failure: JobFailure) -> None:
    assert server.run(job(tmp_path, kind), _MEMORY, 0.5 if kind == "sleep" else 60.0) == failure
    assert server.run(job(tmp_path, "environment"), _MEMORY, 60.0) is None, "the server goes on"


def test_stopping_ends_a_job_under_way(server: ForkServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run, job(tmp_path, "sleep"), _MEMORY, 600.0)
        wait_for(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        server.stop()
        with pytest.raises(EngineError, match="does jobs for tests failed"):
            running.result(_DEADLINE_SECONDS)
    wait_for(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_a_forked_process_ends_no_job_of_the_other(server: ForkServer, tmp_path: Path) -> None:
    """It has a copy of the server, and stops that at its own end."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.run, job(tmp_path, "sleep"), _MEMORY, 600.0)
        wait_for(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        if not (child := os.fork()):
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.2)  # a job that was killed ends within a poll of its server
        assert not running.done() and is_alive(int((tmp_path / "pid").read_text()))
        server.stop()
        with pytest.raises(EngineError):
            running.result(_DEADLINE_SECONDS)


def test_a_job_ends_with_the_process_that_gave_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sterna.concurrency.fork_server import ForkServer\n"
        f"ForkServer({fork_jobs.__name__!r}, 'does jobs').run(Path(sys.argv[1]), {_MEMORY}, 600.0)"
    )
    path = os.pathsep.join(sys.path)
    giver = subprocess.Popen(
        [sys.executable, "-c", code, str(job(tmp_path, "sleep"))], env={**os.environ, "PYTHONPATH": path}
    )
    wait_for(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    giver.send_signal(signal.SIGKILL)
    giver.wait()
    wait_for(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_a_machine_that_starts_no_process_is_an_engine_error(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    replace_functions(monkeypatch, fork_server, subprocess, Popen=fail)
    with pytest.raises(EngineError, match="can't be started: Cannot allocate memory"):
        server.run(job(tmp_path, "environment"), _MEMORY, 60.0)
