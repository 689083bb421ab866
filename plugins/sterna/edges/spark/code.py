"""What Spark's workers need before they can work.

Other packages, which must be there, and sterna's own code, which is sent.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.edges.spark.start import LATER, cancel, failures, summary, tagged, within
from sterna.edges.spark.worker import PROBE_SCHEMA, probe_function, report_function
from sterna.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What localizing imports in the workers: the import's name and the distribution's.
WORKER_PACKAGES = {
    "cramjam": "cramjam",
    "fastavro": "fastavro",
    "isal": "isal",
    "numba": "numba",
    "numpy": "numpy",
    "obstore": "obstore",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "yaml": "pyyaml",
}
_FEW = 16  # tasks that ask once more
_WORKERS_SECONDS = 300.0  # a cluster with dynamic allocation starts executors only when a job waits
_slots_of_application: dict[str, int] = {}


def prepare_workers(spark: SparkSession, master: str, *, connect: bool) -> int:
    """Look at the workers once an application, and send them sterna's code where theirs is another.

    Args:
        spark: a session.
        master: what messages call its address.
        connect: whether it is a Spark Connect session.

    Returns:
        How many tasks run at the same time.

    Raises:
        EngineError: workers lack packages, have another Python or don't take up sterna's code, or none takes up a task.
    """
    application = None if connect else spark.sparkContext.applicationId
    if application in _slots_of_application:
        return _slots_of_application[application or ""]
    report = report_function(tuple(WORKER_PACKAGES))
    try:
        reports = _probe(spark, master, report)
    except EngineError as error:
        raise _named(spark, master, report, error) from error
    _refuse_unfit(master, reports)
    own = json.loads(report())
    if any(each["sources"] != own["sources"] for each in reports):
        _ship(spark, master, connect=connect)
        _refuse_others_code(master, own, _probe(spark, master, report))
    if application:
        _slots_of_application[application] = len(reports)
    return len(reports)


def _probe(spark: SparkSession, master: str, report: Callable[[], str]) -> list[dict[str, Any]]:
    tag = f"sterna-{uuid.uuid4().hex}"

    def look() -> list[dict[str, Any]]:
        # As many partitions as Spark would run at once: this reaches all workers, and warms them up.
        with tagged(spark, tag):
            return [
                json.loads(row["report"])
                for row in spark.range(0, 1024).mapInArrow(probe_function(report), PROBE_SCHEMA).collect()
            ]

    return within(_WORKERS_SECONDS, look, lambda: cancel(spark, tag), f"a first task for Spark's workers at {master}")


def _refuse_unfit(master: str, reports: Iterable[dict[str, Any]]) -> None:
    """Raise EngineError where workers lack packages: it says which of them lack what."""
    unfit = sorted(
        {(each["host"], each["python"], each["version"], *each["missing"]) for each in reports if each["missing"]}
    )
    if not unfit:
        return
    lines = [
        f"{host} ({python}, Python {number}) lacks {', '.join(WORKER_PACKAGES[name] for name in missing)}"
        for host, python, number, *missing in unfit
    ]
    missing = sorted({WORKER_PACKAGES[name] for _, _, _, *names in unfit for name in names})
    wanted = " ".join(map(_with_version, missing))
    raise EngineError(
        f"Spark's workers at {master} lack packages: {'; '.join(lines)}",
        hint=f"there: {unfit[0][1]} -m pip install {wanted}, which are the versions of this machine",
    )


def _refuse_others_code(master: str, own: dict[str, Any], reports: Iterable[dict[str, Any]]) -> None:
    """Raise EngineError where workers still find another sterna after this one was sent."""
    others = sorted({(each["host"], each["place"]) for each in reports if each["sources"] != own["sources"]})
    if others:
        found = "; ".join(f"{host} finds {place or 'none'}" for host, place in others)
        raise EngineError(
            f"Spark's workers at {master} don't use the code of sterna that was sent to them: {found}",
            hint="remove that one from the workers' PYTHONPATH, or install this version there",
        )


def _named(spark: SparkSession, master: str, report: Callable[[], str], error: EngineError) -> EngineError:
    """Return why workers could not even take the first task, where that can be told.

    Without pyarrow none of our tasks begins: those who lack it are asked in a way that needs nothing but PySpark.
    """
    where = re.search(r"\(TID \d+\) \((\S+) executor \S+\)", error.message)
    at = f" on {where[1]}" if where else ""
    here = ".".join(map(str, sys.version_info[:2]))
    hint = f"name a Python {here} that has sterna's packages by PYSPARK_PYTHON, or by spark.pyspark.python"
    if other := re.search(r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)", error.message, re.DOTALL):
        return EngineError(
            f"Spark's workers at {master}{at} have Python {other[1]}, and this machine {here}", hint=hint
        )
    if program := re.search(r'Cannot run program "([^"]+)"', error.message):
        return EngineError(f"Spark's workers at {master}{at} have no Python at {program[1]}", hint=hint)
    try:
        _refuse_unfit(master, _plain_probe(spark, master, report))
    except EngineError as found:
        return found if "lack packages" in found.message else error
    return error


def _plain_probe(spark: SparkSession, master: str, report: Callable[[], str]) -> list[dict[str, Any]]:
    from pyspark.sql.functions import udf

    tag = f"sterna-{uuid.uuid4().hex}"

    def look() -> list[dict[str, Any]]:
        told: Any = udf(lambda _: report(), "string", useArrow=False)
        with tagged(spark, tag):
            rows = spark.range(0, _FEW, numPartitions=_FEW).select(told("id").alias("report")).collect()
        return [json.loads(row["report"]) for row in rows]

    return within(_WORKERS_SECONDS, look, lambda: cancel(spark, tag), f"a first task for Spark's workers at {master}")


def _with_version(distribution: str) -> str:
    try:
        return f"{distribution}=={version(distribution)}"
    except PackageNotFoundError:
        return distribution


def _ship(spark: SparkSession, master: str, *, connect: bool) -> None:
    path = str(_source_zip())
    try:
        if connect:
            spark.addArtifacts(path, pyfile=True)
        else:
            spark.sparkContext.addPyFile(path)
    except failures() as error:
        raise EngineError(
            f"sterna's code could not be sent to Spark at {master}: {summary(error)}", hint=LATER
        ) from error


@lru_cache(maxsize=1)
def _source_zip() -> Path:
    """Return a zip of this package; executors may fetch it at any time, so it lives as long as this process."""
    import sterna

    folder = Path(tempfile.mkdtemp(prefix="sterna-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "sterna.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in map(Path, sterna.__path__):
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, Path("sterna") / path.relative_to(root))
    return target
