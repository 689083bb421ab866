"""Temporary folders that live as long as the process that made them: where it was killed, they go with a later one."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from sterna.servers.process import remove_folder

LOCK_FILE_NAME: Final = "demo.lock"
"""The file in a folder that stays locked for as long as the process lives that made it."""
_MIN_AGE_SECONDS: Final = 60.0
_locks: dict[Path, int] = {}


def make_temporary_folder(prefix: str) -> Path:
    """Create a folder that is deleted after this process: by `remove_temporary_folder`, or once another one is created.

    Folders of the same prefix whose process is dead are deleted first.

    Args:
        prefix: how its name begins.

    Raises:
        OSError: it can't be made.
    """
    for earlier in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_orphaned(earlier)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        _locks[folder] = lock_folder(folder)
    except OSError:
        remove_folder(folder)
        raise
    return folder


def remove_temporary_folder(folder: Path) -> None:
    """Remove a folder that `make_temporary_folder` made."""
    try:
        remove_folder(folder)
    finally:
        if (lock := _locks.pop(folder, None)) is not None:
            os.close(lock)


def lock_folder(folder: Path) -> int:
    """Return a file in a folder that stays locked for as long as this process lives; its children don't have it.

    Raises:
        OSError: the file can't be made, or another process has it.
    """
    descriptor = os.open(folder / LOCK_FILE_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_orphaned(folder: Path) -> None:
    with suppress(OSError):
        status = (folder / LOCK_FILE_NAME).lstat()  # another process may just be making it
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < _MIN_AGE_SECONDS:
            return
        lock = lock_folder(folder)
        try:
            remove_folder(folder)
        finally:
            os.close(lock)
