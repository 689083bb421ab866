"""What Spark's workers need before they can work.

Other packages, which must be there, and sterna's own code, which is sent.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Callable
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
        EngineError: workers lack packages, or none takes up a task.
    """
    application = None if connect else spark.sparkContext.applicationId
    if application in _slots_of_application:
        return _slots_of_application[application or ""]
    report = report_function(tuple(WORKER_PACKAGES))
    reports = _probe(spark, master, report)
    missing = sorted({name for each in reports for name in each["missing"]})
    if missing:
        hosts = ", ".join(sorted({each["host"] for each in reports if each["missing"]}))
        raise EngineError(
            f"Spark's workers at {master} ({hosts}) lack "
            f"{', '.join(_with_version(WORKER_PACKAGES[name]) for name in missing)}",
            hint="install them for the workers' Python; the versions are those of this machine",
        )
    own = json.loads(report())
    if any(each["sources"] != own["sources"] for each in reports):
        _ship(spark, master, connect=connect)
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


def _with_version(distribution: str) -> str:
    try:
        return f"{distribution} (here {version(distribution)})"
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
