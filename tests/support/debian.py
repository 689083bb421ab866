"""Programs that Debian packages and no Python package or jar carries: unpacked beside the project, not installed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sterna.edges.jars import cache_folder


def unpacked(*packages: str) -> Path:
    """Return a folder with some of Debian's packages, and what they need beyond what is installed; kept in a cache.

    Nothing is installed and no right is needed. A machine without apt, or without a mirror, skips the test.

    Args:
        packages: their names.

    Returns:
        The root below which the packages' `usr/` stands.
    """
    apt = shutil.which("apt-get")
    if not apt:
        pytest.skip(f"needs {', '.join(packages)} of Debian, and this machine has no apt-get")
    name = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    folder = cache_folder() / "debian" / f"{packages[0]}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            try:
                _fetch(apt, folder, packages)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"needs {', '.join(packages)} of Debian: {error.stderr.strip().splitlines()[-1:]}")
            (folder / "done").touch()
    return folder / "root"


def environment(root: Path) -> dict[str, str]:
    """Return an environment in which what was unpacked finds its libraries.

    Args:
        root: as `unpacked` returned it.
    """
    libraries = sorted({str(each.parent) for each in root.rglob("*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")])}


def _fetch(apt: str, folder: Path, packages: Sequence[str]) -> None:
    lists, archives = folder / "lists", folder / "archives"
    for each in (lists, archives):
        (each / "partial").mkdir(parents=True, exist_ok=True)
    command = [
        *(apt, "-q", "-y", "-o", "Debug::NoLocking=true", "-o", f"Dir::State::Lists={lists}"),
        *("-o", f"Dir::Cache::Archives={archives}", "-o", f"Dir::Cache={folder}", "-o", "APT::Sandbox::User="),
    ]
    for arguments in (["update"], ["install", "--download-only", "--no-install-recommends", *packages]):
        subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True, capture_output=True, text=True)
    shutil.rmtree(lists)
    shutil.rmtree(archives)
