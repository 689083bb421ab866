"""Processes that read for one batch each: forked from one that has imported beforehand what reading needs.

Importing it takes half a second of a core, a fork some milliseconds. The one that forks never sees what somebody sent.
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
from sterna.ingest import reading

ERRORS = "errors"
_GRACE = 60.0  # seconds beyond a reader's own, after which the one that forks counts as stuck


class Forks:
    """The process that forks readers, made at first use, and kept for the next batch.

    It ends with whoever made it, since its input ends.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: tuple[str, subprocess.Popen[str]] | None = None  # and whom it was made for
        atexit.register(self.end)

    @property
    def pid(self) -> int | None:
        """The process that is kept; None: there is none."""
        kept = self._kept
        return kept[1].pid if kept is not None else None

    def run(self, folder: Path, memory: int, seconds: float) -> int:
        """Read what a folder tells; return the reader's exit code, negative: the signal that it died of.

        Args:
            folder: as `reading.main` wants it; ERRORS in it gets what the reader says.
            memory: bytes that the reader may have.
            seconds: after which it is ended, by SIGALRM.

        Raises:
            EngineError: no reader can be made.
        """
        forks = self._take()
        try:
            code = _ask(forks, json.dumps([str(folder), memory, seconds]), seconds + _GRACE)
        except BaseException:
            _kill(forks)  # and its reader, which nobody waits for any more
            raise
        self._keep(forks)
        return code

    def end(self) -> None:
        """End the process that is kept."""
        with self._lock:
            kept, self._kept = self._kept, None
        _end(kept)

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and kept[0] == _made_for() and kept[1].poll() is None:
            return kept[1]
        _end(kept)
        return _start()

    def _keep(self, forks: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._kept is None:
                self._kept = _made_for(), forks
                return
        _kill(forks)


def _ask(forks: subprocess.Popen[str], told: str, seconds: float) -> int:
    assert forks.stdin is not None and forks.stdout is not None and forks.stderr is not None
    with suppress(BrokenPipeError):  # the answer, or that there is none, says it
        forks.stdin.write(told + "\n")
        forks.stdin.flush()
    if not select.select([forks.stdout], [], [], seconds)[0]:
        raise EngineError(f"the process that reads drops didn't answer within {seconds:g} s")
    if answer := forks.stdout.readline().strip():
        return int(answer)
    lines = forks.stderr.read().strip().splitlines()
    raise EngineError(f"the process that reads drops failed: {lines[-1][:300] if lines else forks.wait()}")


def _end(kept: tuple[str, subprocess.Popen[str]] | None) -> None:
    if kept is not None and kept[0].startswith(f"{os.getpid()} "):
        _kill(kept[1])


def _kill(forks: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(forks.pid, signal.SIGKILL)
    forks.communicate()


def _made_for() -> str:
    """Return who may use a process: whoever is forked has his own."""
    return f"{os.getpid()} {_path()}"


def _path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _start() -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"}
    environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the worker, who ends it
    )


def _serve() -> None:
    """Fork a reader for each line that comes, and answer how it ended."""
    import pyarrow.compute
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401

    for line in sys.stdin:
        reader = os.fork()
        if not reader:
            _become_reader(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]), flush=True)


def _become_reader(folder: str, memory: int, seconds: float) -> None:
    code = 1
    try:
        # Nothing of the one that forks is a reader's: neither the line after this one, nor the answer.
        nothing = os.open(os.devnull, os.O_RDONLY)
        errors = os.open(os.path.join(folder, ERRORS), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for mine, standard in ((nothing, 0), (errors, 1), (errors, 2)):
            os.dup2(mine, standard)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        reading.main(Path(folder))
        code = 0
    except BaseException:  # noqa: BLE001 - told, in ERRORS, whatever it is
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
