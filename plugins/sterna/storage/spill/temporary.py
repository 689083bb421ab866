"""Temporary files on local disk, in the folder that TMPDIR names."""

from __future__ import annotations

import tempfile
import weakref
from typing import Any

from sterna.errors import EngineError
from sterna.libraries import np, pa


def temp_folder() -> str:
    """Return the folder, if this process has determined it."""
    return tempfile.tempdir or "the folder for temporary files"


class SpillFile:
    """A file without a name: it is gone with its process, also where that was killed.

    Raises:
        EngineError: the folder takes no file.
    """

    def __init__(self) -> None:
        self._length = 0
        try:
            # Without a buffer: what didn't fit on the disk would be written again by closing the file.
            self._file: Any = tempfile.TemporaryFile(prefix="sterna-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._disk_error(error) from error
        weakref.finalize(self, self._file.close)

    def append(self, data: bytes | pa.Buffer) -> int:
        """Write at the end; return where that was.

        Raises:
            EngineError: the disk is full, or broken.
        """
        start, remaining = self._length, memoryview(data).cast("B")
        try:
            self._file.seek(start)
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            raise self._disk_error(error) from error
        self._length += memoryview(data).nbytes
        return start

    def read(self, start: int, length: int) -> bytes:
        """Read what was written.

        Raises:
            EngineError: the disk is broken.
        """
        try:
            self._file.seek(start)
            data: bytes = self._file.read(length)
        except OSError as error:
            raise self._disk_error(error) from error
        return data

    def map_buffer(self, start: int, length: int) -> pa.Buffer:
        """Return what was written, as a buffer whose pages the kernel may take back."""
        return pa.py_buffer(np.memmap(self._file, np.uint8, "r", start, (length,)))

    def map_int64(self, start: int, count: int) -> Any:
        """Return numbers of eight bytes that were written, as an array whose pages the kernel may take back."""
        return np.memmap(self._file, np.int64, "r", start, (count,))

    def _disk_error(self, error: OSError) -> EngineError:
        return EngineError(
            f"{temp_folder()} took {self._length} bytes of a temporary file, and no more: {error.strerror or error}",
            hint="free space there, or set TMPDIR to a folder with more: docs/operations.md, Local disk",
        )
