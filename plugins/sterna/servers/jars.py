"""The Java libraries that no Python package contains, fetched once by the Ivy inside pyspark and cached."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sterna.errors import EngineError
from sterna.jvm.jars import Jar, cache_folder, file_lock
from sterna.jvm.java import find_java
from sterna.servers.java import network_options
from sterna.servers.process import Process, start_process

_DEADLINE_SECONDS = 3600.0
_PROGRESS_SECONDS = 0.2


NESSIE = Jar(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    245_069_033,
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
    classifier="runner",
)
ICEBERG_SPARK = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    48_309_426,
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
ICEBERG_AWS = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    69_034_612,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
ALL_JARS = (NESSIE, ICEBERG_SPARK, ICEBERG_AWS)


def fetch_jars(jars: Iterable[Jar] = ALL_JARS, *, console: Console | None = None) -> list[Path]:
    """Return the jars' paths in the cache, downloading those that are missing.

    A file in the cache is always complete: it is renamed into it after its digest is checked. Processes that want the
    same jars at the same time wait for one another.

    Args:
        console: where progress is shown; None for standard error.

    Raises:
        EngineError: a download failed, or has another digest.
    """
    requested = list(jars)
    folder = cache_folder() / "jars"
    if any(_missing_jars(requested, folder)):
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(folder / ".lock"):
            # Checked again: the lock's last holder may have fetched them.
            _download(list(_missing_jars(requested, folder)), folder, console or Console(stderr=True))
    return [folder / jar.file_name for jar in requested]


def pyspark_jars() -> list[Path]:
    """Return the jars of the package pyspark, by name; none where it is missing."""
    spec = find_spec("pyspark")
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar")) if spec and spec.origin else []


def _missing_jars(jars: Iterable[Jar], folder: Path) -> Iterator[Jar]:
    for jar in jars:
        path = folder / jar.file_name
        if not path.exists() or path.stat().st_size != jar.size:
            yield jar


def _download(jars: list[Jar], folder: Path, console: Console) -> None:
    if not jars:
        return
    for leftover in folder.glob("fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # a killed process': we hold the lock, so that it is unused
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as name:
        staging = Path(name)
        ivy = _start_ivy(jars, staging)
        try:
            _show_progress(ivy, jars, staging, console)
        finally:
            ivy.stop()
        for jar in jars:
            _verify_and_move(jar, staging / "out" / jar.file_name, folder, ivy)


def _start_ivy(jars: list[Jar], staging: Path) -> Process:
    (staging / "ivy.xml").write_text(_ivy_module(jars))
    (staging / "ivysettings.xml").write_text(_ivy_settings(staging))
    pattern = f"{staging}/out/[artifact]-[revision](-[classifier]).[ext]"
    command = [find_java().executable, "-Xmx256m", *network_options(cache_folder()), "-jar", _ivy_jar()]
    command += [
        "-settings",
        staging / "ivysettings.xml",
        "-ivy",
        staging / "ivy.xml",
        "-retrieve",
        pattern,
        "-types",
        "jar",
    ]
    return start_process("Ivy", [str(part) for part in command], log=staging / "ivy.log")


def _ivy_jar() -> Path:
    for path in pyspark_jars():
        if path.name.startswith("ivy-"):
            return path
    raise EngineError(
        "the package pyspark, whose Ivy fetches Java libraries, is not installed",
        hint="install sterna with the extra 'local'",
    )


def _ivy_module(jars: list[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)}"
        ' transitive="false" conf="default-&gt;*">'
        f'<artifact name={quoteattr(jar.name)} type="jar" ext={quoteattr(jar.extension)}'
        + (f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else "")
        + "/></dependency>"
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="sterna" module="jars"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_settings(staging: Path) -> str:
    # Without a root Ivy takes Maven's central repository.
    mirror = os.environ.get("STERNA_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        f'<ivysettings><settings defaultResolver="maven"/><caches defaultCacheDir={quoteattr(f"{staging}/cache")}/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>'
    )


def _show_progress(ivy: Process, jars: list[Jar], staging: Path, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    deadline = time.monotonic() + _DEADLINE_SECONDS
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Java libraries, once", total=sum(jar.size for jar in jars))
        while ivy.is_alive():
            if time.monotonic() > deadline:
                raise EngineError(f"the Java libraries did not arrive within {_DEADLINE_SECONDS / 60:.0f} minutes")
            progress.update(task, completed=_bytes_below(staging / "cache"))
            time.sleep(_PROGRESS_SECONDS)
        progress.update(task, completed=_bytes_below(staging / "cache"))


def _bytes_below(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*.jar*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue  # Ivy renames a finished part at this moment
    return sum(sizes)


def _verify_and_move(jar: Jar, downloaded: Path, folder: Path, ivy: Process) -> None:
    if not downloaded.exists():
        raise EngineError(
            f"{jar.file_name} could not be downloaded; the end of Ivy's log:\n{ivy.log_tail(40)}",
            hint="STERNA_MAVEN_REPOSITORY may name another Maven repository",
        )
    with downloaded.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != jar.sha256:
        raise EngineError(f"{jar.file_name} is not the file that was tested: its SHA-256 is {digest}")
    downloaded.replace(folder / jar.file_name)
