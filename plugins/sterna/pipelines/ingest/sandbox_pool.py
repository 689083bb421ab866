"""Processes that read one batch each, forked from a server that has imported the modules beforehand.

The imports take half a second of a core, a fork some milliseconds. The fork server never reads uploaded content.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Lock

from sterna.errors import EngineError
from sterna.pipelines.ingest import read_rows

ERRORS_FILE = "errors"
_GRACE_SECONDS = 60.0  # seconds beyond a reader's own, after which the fork server counts as stuck


class ForkServer:
    """The process that forks readers, started at first use, and kept for the next batch.

    It ends with its parent process, since its input ends.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: tuple[str, subprocess.Popen[str]] | None = None  # and the owner's key
        atexit.register(self.stop)

    @property
    def pid(self) -> int | None:
        """The process that is kept; None: there is none."""
        process = self._process
        return process[1].pid if process is not None else None

    def run(self, folder: Path, memory: int, seconds: float) -> int:
        """Read by the job of a folder; return the reader's exit code, negative: the signal that it died of.

        Args:
            folder: as `read_rows.main` expects it; `ERRORS_FILE` in it gets the reader's output.
            memory: bytes that the reader may have.
            seconds: after which it is ended, by SIGALRM.

        Raises:
            EngineError: no reader can be made.
        """
        process = self._acquire()
        try:
            code = _send_request(process, json.dumps([str(folder), memory, seconds]), seconds + _GRACE_SECONDS)
        except BaseException:
            _kill(process)  # and its reader
            raise
        self._release(process)
        return code

    def stop(self) -> None:
        """End the process that is kept."""
        with self._lock:
            process, self._process = self._process, None
        _stop_own(process)

    def _acquire(self) -> subprocess.Popen[str]:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process[0] == _owner_key() and process[1].poll() is None:
            return process[1]
        _stop_own(process)
        return _start()

    def _release(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._process is None:
                self._process = _owner_key(), process
                return
        _kill(process)


def _send_request(process: subprocess.Popen[str], request: str, seconds: float) -> int:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with suppress(BrokenPipeError):  # the missing answer is handled below
        process.stdin.write(request + "\n")
        process.stdin.flush()
    if not select.select([process.stdout], [], [], seconds)[0]:
        raise EngineError(f"the process that reads uploads didn't answer within {seconds:g} s")
    if answer := process.stdout.readline().strip():
        return int(answer)
    lines = process.stderr.read().strip().splitlines()
    raise EngineError(f"the process that reads uploads failed: {lines[-1][:300] if lines else process.wait()}")


def _stop_own(process: tuple[str, subprocess.Popen[str]] | None) -> None:
    if process is not None and process[0].startswith(f"{os.getpid()} "):
        _kill(process[1])


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _owner_key() -> str:
    """Return a key of this process and its path: a forked process needs a server of its own."""
    return f"{os.getpid()} {_python_path()}"


def _python_path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _start() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": _python_path(), "OMP_NUM_THREADS": "1"}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to the worker, which ends it
    )


def _serve_forks() -> None:
    """Fork a reader for each line that comes, and answer how it ended."""
    import pyarrow.compute
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401

    for line in sys.stdin:
        reader = os.fork()
        if not reader:
            _run_reader(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]), flush=True)


def _run_reader(folder: str, memory: int, seconds: float) -> None:
    code = 1
    try:
        # Nothing of the one that forks is a reader's: neither the line after this one, nor the answer.
        null_input = os.open(os.devnull, os.O_RDONLY)
        errors = os.open(os.path.join(folder, ERRORS_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for source, target in ((null_input, 0), (errors, 1), (errors, 2)):
            os.dup2(source, target)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        read_rows.main(Path(folder))
        code = 0
    except BaseException:  # noqa: BLE001 - written to ERRORS_FILE
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve_forks()
