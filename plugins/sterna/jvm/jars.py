"""Java libraries that no Python package carries: the pinned list, and the cache of fetched ones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class Jar:
    """One file of a Maven repository.

    Args:
        organisation: the coordinate's group.
        name: the coordinate's artifact.
        revision: the coordinate's version.
        size: its length in bytes.
        sha256: its digest in hex: what runs here is what was tested, whichever mirror it came from.
        classifier: the coordinate's classifier, or "".
        extension: how its name ends.
    """

    organisation: str
    name: str
    revision: str
    size: int
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """Its name in the repository and in the cache."""
        return f"{self.name}-{self.revision}{'-' if self.classifier else ''}{self.classifier}.{self.extension}"


def cache_folder() -> Path:
    """Return the folder for what is downloaded once: STERNA_CACHE, else `sterna` in the user's cache folder."""
    if os.environ.get("STERNA_CACHE"):
        return Path(os.environ["STERNA_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sterna"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pinned_jars(package: str, name: str) -> tuple[Jar, ...]:
    """Return the jars that a list names, a line each: group, artifact, version, bytes and SHA-256.

    Args:
        package: the package that has the list.
        name: its file.
    """
    lines = (files(package) / name).read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return tuple(Jar(group, artifact, version, int(size), digest) for group, artifact, version, size, digest in rows)
