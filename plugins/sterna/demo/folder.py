"""The demo's folder: one that stays, or one that goes. Those of demos that were killed go, too."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sterna.embedded.process import remove_folder
from sterna.errors import UsageError

LOCK = "demo.lock"
NEEDED = 10**9  # bytes
_YOUNG_SECONDS = 60.0


@contextmanager
def work_folder(work: Path | None, prefix: str) -> Iterator[Path]:
    """Make the folder, and remove it at the end if nobody named it.

    Args:
        work: the folder that was named, new or empty; None: a temporary one.
        prefix: how temporary ones begin. Those whose demo was killed are removed first.

    Raises:
        UsageError: the folder holds something, can't be written, or its disk is full.
    """
    if work is not None and work.exists() and (not work.is_dir() or any(work.iterdir())):
        raise UsageError(
            f"{work} is not empty: the demo starts from nothing", hint="name a new folder, or remove this one"
        )
    with ExitStack() as stack:
        try:
            folder = _made(stack, work, prefix)
            lock = _locked(folder / LOCK)
        except OSError as error:
            hint = "name a folder that you may write with --work"
            raise UsageError(
                f"the demo's folder can't be made: {error.filename}: {error.strerror}", hint=hint
            ) from None
        stack.callback(os.close, lock)
        free = shutil.disk_usage(folder).free
        if free < NEEDED:
            hint = "name a folder on another disk with --work"
            raise UsageError(f"{folder} has {free / 1e9:.1f} GB free, the demo needs {NEEDED / 1e9:.0f}", hint=hint)
        yield folder


def _made(stack: ExitStack, work: Path | None, prefix: str) -> Path:
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        return work
    for earlier in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_dead(earlier)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    stack.callback(remove_folder, folder)
    return folder


def _locked(file: Path) -> int:
    """Return a file that stays locked for as long as this process lives; its children don't have it."""
    opened = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        raise
    return opened


def _remove_if_dead(folder: Path) -> None:
    with suppress(OSError):
        about = (folder / LOCK).lstat()  # another demo may just be making it
        if about.st_uid != os.getuid() or time.time() - about.st_mtime < _YOUNG_SECONDS:
            return
        lock = _locked(folder / LOCK)
        try:
            remove_folder(folder)
        finally:
            os.close(lock)
