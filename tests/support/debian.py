"""Programs that Debian packages and no Python package or jar carries: unpacked beside the project, not installed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from sterna.jvm.jars import cache_folder

_EDITION = "2"  # of what stands in a folder
_STATUS = Path("/var/lib/dpkg/status")
_FIELD = re.compile(r"^(Package|Source|Provides|Depends|Pre-Depends): (.*)$", re.MULTILINE)


def unpacked(*packages: str) -> Path:
    """Return a folder with some of Debian's packages, and what they need beyond what is installed; kept in a cache.

    It has them also where they are installed. Nothing is installed and no right is needed. A machine without apt, or
    without a mirror, skips the test.

    Args:
        packages: their names.

    Returns:
        The root below which the packages' `usr/` stands.
    """
    apt = shutil.which("apt-get")
    if not apt:
        pytest.skip(f"needs {', '.join(packages)} of Debian, and this machine has no apt-get")
    name = hashlib.sha256(" ".join([_EDITION, *packages]).encode()).hexdigest()[:12]
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
    libraries = sorted({str(library.parent) for library in root.rglob("*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")])}


def as_if_absent(status: str, packages: Collection[str]) -> str:
    """Return dpkg's record of what is installed, without some packages and without what is of the same source as they
    are, or needs one of them: else apt would fetch nothing of these, or call the others broken.

    Args:
        status: as `/var/lib/dpkg/status` has it.
        packages: their names.
    """
    stanzas = [stanza for stanza in status.split("\n\n") if stanza.strip()]
    fields = [dict(_FIELD.findall(stanza)) for stanza in stanzas]
    sources = {_source(stanza) for stanza in fields if stanza["Package"] in packages}
    absent = {stanza["Package"] for stanza in fields if stanza["Package"] in packages or _source(stanza) in sources}
    size = -1
    while size < len(absent):
        size = len(absent)
        names = absent.union(*(_names(stanza.get("Provides", "")) for stanza in fields if stanza["Package"] in absent))
        needed = (
            (stanza["Package"], f"{stanza.get('Depends', '')},{stanza.get('Pre-Depends', '')}") for stanza in fields
        )
        absent |= {package for package, others in needed if _names(others) & names}
    return "".join(
        f"{text}\n\n" for text, stanza in zip(stanzas, fields, strict=True) if stanza["Package"] not in absent
    )


def _source(stanza: Mapping[str, str]) -> str:
    return stanza.get("Source", stanza["Package"]).partition(" ")[0]


def _names(relations: str) -> set[str]:
    """Return the names in a field such as `Depends`, whichever of them would do."""
    return set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)", relations))


def _fetch(apt: str, folder: Path, packages: Sequence[str]) -> None:
    lists, archives = folder / "lists", folder / "archives"
    for directory in (lists, archives):
        (directory / "partial").mkdir(parents=True, exist_ok=True)
    status = folder / "status"
    status.write_text(as_if_absent(_STATUS.read_text(), packages))
    command = [
        *(apt, "-q", "-y", "-o", "Debug::NoLocking=true", "-o", f"Dir::State::Lists={lists}"),
        *("-o", f"Dir::Cache::Archives={archives}", "-o", f"Dir::Cache={folder}", "-o", "APT::Sandbox::User="),
        *("-o", f"Dir::State::status={status}"),
    ]
    for arguments in (["update"], ["install", "--download-only", "--no-install-recommends", *packages]):
        subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
    fetched = sorted(archives.glob("*.deb"))
    if missing := set(packages) - {fetched_file.name.partition("_")[0] for fetched_file in fetched}:
        raise RuntimeError(f"apt-get fetched nothing of {', '.join(sorted(missing))}")
    for archive in fetched:
        subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True, capture_output=True, text=True)
    shutil.rmtree(lists)
    shutil.rmtree(archives)
