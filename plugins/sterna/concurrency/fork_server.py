"""Processes that do one job each, forked from a server that has imported the modules beforehand.

For what reads untrusted content with libraries that may crash or take too much: a job has a limit of memory and of
time. The imports take half a second of a core, a fork some milliseconds. The fork server never reads such content.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from sterna.errors import EngineError

_ERRORS_FILE = "errors"
_GRACE_SECONDS = 60.0  # seconds beyond a job's own, after which the fork server counts as stuck
_POLL_SECONDS = 0.02
# A job needs none of them, and the content that it reads may take its process over.
_SECRET_VARIABLE = re.compile(r"^(AIRFLOW_CONN_|AIRFLOW__|AWS_|AZURE_|GOOGLE_|OTEL_)|SECRET|PASSWORD|TOKEN|CREDENTIAL")


@dataclass(frozen=True)
class JobFailure:
    """How a job's process ended, where that was no error of its program.

    Args:
        text: for messages, behind "the process".
        is_out_of_memory: it needed more memory than it may have.
        is_killed: it was ended from outside, so that its content may be blameless.
        is_late: it took more time than it may have.
    """

    text: str
    is_out_of_memory: bool = False
    is_killed: bool = False
    is_late: bool = False


class ForkServer:
    """The process that forks one for each job, started at first use, and kept for the next job.

    It ends with its parent process, since its input ends.

    Args:
        module: its function `main` does a job: it takes the job's folder.
        activity: what its processes do, for errors.
        preload: the modules to import before the first fork, besides `module`.
    """

    def __init__(self, module: str, activity: str, preload: Sequence[str] = ()) -> None:
        self._modules = (module, *preload)
        self._activity = activity
        self._lock = Lock()
        self._process: tuple[str, subprocess.Popen[str]] | None = None  # and the owner's key
        self._busy: set[tuple[str, subprocess.Popen[str]]] = set()
        atexit.register(self.stop)

    @property
    def pid(self) -> int | None:
        """The process that is kept; None: there is none."""
        process = self._process
        return process[1].pid if process is not None else None

    def run(self, folder: Path, memory: int, seconds: float) -> JobFailure | None:
        """Do the job of a folder; return how its process ended if its content ended it, None: as it should.

        Args:
            folder: as the module's `main` expects it; the file `errors` in it gets the process's output.
            memory: bytes that the process may have.
            seconds: after which it is ended, by SIGALRM.

        Raises:
            EngineError: no process can be made, or it failed for another reason than what it read.
        """
        code = self._fork(folder, memory, seconds)
        if code == 0:
            return None
        if code == -signal.SIGALRM:
            return JobFailure(f"took more than {seconds:g} s", is_late=True)
        if code < 0:
            return JobFailure(f"died of signal {-code}", is_killed=-code in (signal.SIGKILL, signal.SIGTERM))
        errors = folder / _ERRORS_FILE
        lines = errors.read_text(errors="replace").strip().splitlines() if errors.exists() else []
        if lines and "MemoryError" in lines[-1]:
            return JobFailure("needed more memory than it may have", is_out_of_memory=True)
        raise self._failed(lines, code)

    def _fork(self, folder: Path, memory: int, seconds: float) -> int:
        """Return the exit code of a job's process, negative: the signal that it died of."""
        process = self._acquire()
        owned = _owner_key(), process
        with self._lock:
            self._busy.add(owned)
        try:
            answer = _send_request(process, json.dumps([str(folder), memory, seconds]), seconds + _GRACE_SECONDS)
            if answer is None:
                raise EngineError(
                    f"the process that {self._activity} didn't answer within {seconds + _GRACE_SECONDS:g} s"
                )
            if not answer:
                assert process.stderr is not None
                raise self._failed(process.stderr.read().strip().splitlines(), process.wait())
        except BaseException:
            _kill(process)  # and its job's
            raise
        finally:
            with self._lock:
                self._busy.discard(owned)
        self._release(process)
        return int(answer)

    def _failed(self, lines: Sequence[str], code: int) -> EngineError:
        return EngineError(f"the process that {self._activity} failed: {lines[-1][:300] if lines else code}")

    def stop(self) -> None:
        """End its processes and their jobs, which fail with an `EngineError`."""
        with self._lock:
            process, self._process = self._process, None
            # Whoever waits for a job reaps its process; one that was forked has a copy of this set, and none of them.
            for owner, working in self._busy:
                if _is_own(owner):
                    _kill_group(working)
        _stop_own(process)

    def _acquire(self) -> subprocess.Popen[str]:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process[0] == _owner_key() and process[1].poll() is None:
            return process[1]
        _stop_own(process)
        try:
            return _start(self._modules)
        except OSError as error:
            raise EngineError(f"the process that {self._activity} can't be started: {error.strerror}") from None

    def _release(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._process is None:
                self._process = _owner_key(), process
                return
        _kill(process)


def _send_request(process: subprocess.Popen[str], request: str, seconds: float) -> str | None:
    """Return the answer, "" when the process has ended, None when the time is up."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):  # the missing answer is handled by the caller
        process.stdin.write(request + "\n")
        process.stdin.flush()
    answered = select.poll()  # `select.select` takes no file descriptor beyond 1,023
    answered.register(process.stdout, select.POLLIN | select.POLLHUP)
    if not answered.poll(seconds * 1000):
        return None
    return process.stdout.readline().strip()


def _stop_own(process: tuple[str, subprocess.Popen[str]] | None) -> None:
    if process is not None and _is_own(process[0]):
        _kill(process[1])


def _is_own(owner_key: str) -> bool:
    return owner_key.startswith(f"{os.getpid()} ")


def _kill(process: subprocess.Popen[str]) -> None:
    _kill_group(process)
    process.communicate()


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _owner_key() -> str:
    """Return a key of this process and its path: a forked process needs a server of its own."""
    return f"{os.getpid()} {_python_path()}"


def _python_path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _start(modules: Sequence[str]) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not _SECRET_VARIABLE.search(name.upper())}
    environment |= {"PYTHONPATH": _python_path(), "OMP_NUM_THREADS": "1"}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *modules],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to the worker, which ends it
    )


def _serve_forks(module: str, *preload: str) -> None:
    """Fork a process for each line that comes, and answer how it ended."""
    main: Callable[[Path], None] = importlib.import_module(module).main
    for name in preload:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run_job(main, *json.loads(line))
        print(os.waitstatus_to_exitcode(_wait(child)), flush=True)


def _wait(child: int) -> int:
    """Return a job's status; where the process that gave it has died, end the job, and this server."""
    parent, pause = select.poll(), 0.001
    parent.register(sys.stdin, select.POLLHUP)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if parent.poll(0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            sys.exit()
        time.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS)


def _run_job(main: Callable[[Path], None], folder: str, memory: int, seconds: float) -> None:
    code = 1
    try:
        # Nothing of the one that forks is a job's: neither the line after this one, nor the answer.
        null_input = os.open(os.devnull, os.O_RDONLY)
        errors = os.open(os.path.join(folder, _ERRORS_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for source, target in ((null_input, 0), (errors, 1), (errors, 2)):
            os.dup2(source, target)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        main(Path(folder))
        code = 0
    except BaseException:  # noqa: BLE001 - written to the file of errors
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve_forks(*sys.argv[1:])
