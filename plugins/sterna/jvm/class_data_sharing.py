"""Class archives: a JVM that maps its classes, read and checked once before, starts in half the time.

Spark loads 14,000 classes before its first answer, Nessie half as many. Java can archive them as they are in memory
then (CDS, JEP 350). An archive is made for one Java and one class path, by a rehearsal: a JVM that does what later ones
will do, and writes the archive as it ends. It is in sterna's cache, beside one of Java's own classes, on which it
is built: some Javas come without theirs. Without an archive all works as well, only later.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sterna.errors import EngineError
from sterna.jvm.jars import cache_folder, file_lock
from sterna.jvm.java import Java

_log = logging.getLogger(__name__)
_MAX_ARCHIVES = 4  # of each name: of other clones, and of versions before
_RETRY_SECONDS = 86_400.0  # until a rehearsal that failed is tried again
_DUMP_SECONDS = 300.0
_MIN_FREE_BYTES = 1 << 30  # bytes that are free at least
# A JVM warns on its standard output: of each class that it can't keep, and of an archive that it can't use.
_TRAINING_LOG_OPTION, _LOG_OPTION = "-Xlog:disable", "-Xlog:cds*=off"
# Starts a JVM with the options that it is given, whatever it writes below the folder, and returns when it has ended by
# itself.
TrainingRun = Callable[[list[str], Path], None]


def archive_options(
    name: str, java: Java, jars: Sequence[Path], run_training: TrainingRun, report: Callable[[str], object]
) -> list[str]:
    """Return the options with which a JVM maps its classes; the archive is made first where there is none.

    Args:
        name: what the jars are, for the file's name and for people.
        java: the Java that will run them.
        jars: the whole class path, or its beginning.
        run_training: does what later JVMs will do.
        report: called with a line for people before the rehearsal, which takes a minute.

    Returns:
        The options; none where there is no archive: this Java makes none, the last rehearsal failed, or the cache can't
        be written to.
    """
    try:
        folder = cache_folder() / "classes" / f"{name}-{_archive_key(java, jars)}"
        archive = folder / f"{name}.jsa"
        if not archive.exists():
            _build_archive(archive, java, run_training, report)
        with suppress(OSError):  # another user's, which we may read
            os.utime(folder)
        return [f"-XX:SharedArchiveFile={archive}", _LOG_OPTION]
    except (OSError, subprocess.SubprocessError, EngineError) as error:
        _log.info("%s starts without a class archive: %s", name, error)
        return []


def _build_archive(archive: Path, java: Java, run_training: TrainingRun, report: Callable[[str], object]) -> None:
    name, folder, parent = archive.stem, archive.parent, archive.parent.parent
    failure_marker = folder.with_suffix(".failed")
    parent.mkdir(parents=True, exist_ok=True)
    with file_lock(parent / f"{name}.lock"):
        if archive.exists():  # the lock's last holder has made it
            return
        if failure_marker.exists() and time.time() - failure_marker.stat().st_mtime < _RETRY_SECONDS:
            raise EngineError("the last rehearsal failed")
        _prune_archives(folder)
        if shutil.disk_usage(parent).free < _MIN_FREE_BYTES:
            raise EngineError(f"less than {_MIN_FREE_BYTES} bytes are free in {parent}")
        report(f"preparing {name} to start faster from now on (once)")
        try:
            _train_archive(archive, java, run_training)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, Exception):
                failure_marker.touch()
            raise


def _train_archive(archive: Path, java: Java, run_training: TrainingRun) -> None:
    # In its place from the beginning: the other one names it.
    base, draft = archive.with_name("java.jsa"), archive.with_name("draft.jsa")
    work = archive.with_name("work")
    work.mkdir(parents=True)
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={base}", _TRAINING_LOG_OPTION]
    subprocess.run(command, check=True, capture_output=True, timeout=_DUMP_SECONDS)
    run_training([f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={draft}", _TRAINING_LOG_OPTION], work)
    if not draft.exists():
        raise EngineError(f"{java.executable} made no class archive")
    shutil.rmtree(work, ignore_errors=True)
    draft.replace(archive)


def _prune_archives(folder: Path) -> None:
    """Remove rarely used archives, and what a killed rehearsal left; the caller holds the name's lock."""
    name = folder.name.rpartition("-")[0]
    others = [path for path in folder.parent.glob(f"{name}-*") if path.is_dir() and path != folder]
    unused = sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[_MAX_ARCHIVES - 1 :]
    for path in (folder, *unused):
        shutil.rmtree(path, ignore_errors=True)


def _archive_key(java: Java, jars: Iterable[Path]) -> str:
    """Return what changes whenever an archive would be refused: it holds paths, sizes and times."""
    digest = hashlib.sha256()
    for path in ((java.home / "lib" / "server" / "libjvm.so").resolve(), *jars):
        stat = path.stat()
        digest.update(f"{path}\n{stat.st_size}\n{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
