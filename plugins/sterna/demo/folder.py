"""The demo's folder: kept, or temporary. Temporary ones of killed demos are removed, too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sterna.errors import UsageError
from sterna.servers.temporary import lock_folder, make_temporary_folder, remove_temporary_folder

MIN_FREE_BYTES = 10**9  # bytes


@contextmanager
def work_folder(work: Path | None, prefix: str) -> Iterator[Path]:
    """Make the folder, and remove it at the end unless it was named.

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
            folder = _create_folder(stack, work, prefix)
        except OSError as error:
            hint = "name a folder that you may write with --work"
            raise UsageError(
                f"the demo's folder can't be made: {error.filename}: {error.strerror}", hint=hint
            ) from None
        free = shutil.disk_usage(folder).free
        if free < MIN_FREE_BYTES:
            hint = "name a folder on another disk with --work"
            raise UsageError(
                f"{folder} has {free / 1e9:.1f} GB free, the demo needs {MIN_FREE_BYTES / 1e9:.0f}", hint=hint
            )
        yield folder


def _create_folder(stack: ExitStack, work: Path | None, prefix: str) -> Path:
    if work is None:
        folder = make_temporary_folder(prefix)
        stack.callback(remove_temporary_folder, folder)
        return folder
    work.mkdir(parents=True, exist_ok=True)
    stack.callback(os.close, lock_folder(work))
    return work
