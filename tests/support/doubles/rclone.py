"""What rclone does between two folders of this machine, without a process, which takes 0.3 s."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from sterna.config.registry.credential import store_address
from sterna.storage.rclone.transfer import Folder, Transfer


def copy_here(
    origin: Folder,
    replica: Folder,
    names: Sequence[str],
    *,
    progress: Callable[[int, int], None],
    timeout: float | None = None,
    stall: float | None = None,
    leases: Folder | None = None,
) -> Transfer:
    """Copy files as `sterna.storage.rclone.transfer.copy_files` does; both locations are local."""
    sent, errors = [], []
    for name in names:
        source, target = _path(origin, name), _path(replica, name)
        if not source.exists():
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # As rclone does: another sync that copies the same file never sees a part of it.
            partial = target.with_name(f"{target.name}.{uuid4().hex}.partial")
            shutil.copy2(source, partial)
            partial.replace(target)
        except OSError as error:
            errors.append(f"{name}: {error.strerror}")
            continue
        sent.append(target.stat().st_size)
        progress(sum(sent), len(sent))
    return Transfer(sum(sent), len(sent), "\n".join(errors))


def _path(side: Folder, name: str) -> Path:
    assert side.location.remote.type == "local", "only folders of this machine"
    return Path("/", store_address(side.location).path, side.path, name)
