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

from sterna.errors import EngineError
from sterna.spark.start import RESUME_HINT, cancel, job_tag, run_with_timeout, spark_errors, summarize_error
from sterna.spark.worker import PROBE_SCHEMA, probe_function, report_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    "pyorc": "pyorc",
    "yaml": "pyyaml",
}
_PLAIN_PROBE_TASKS = 16  # tasks of the probe without pyarrow
_PROBE_SECONDS = 300.0  # a cluster with dynamic allocation starts executors only when a job waits
_slots_of_application: dict[str, int] = {}


def prepare_workers(spark: SparkSession, master: str, *, connect: bool) -> int:
    """Check the workers once for each application, and send them sterna's code where theirs differs.

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
        raise _explain_failure(spark, master, report, error) from error
    _require_packages(master, reports)
    own = json.loads(report())
    if any(worker["sources"] != own["sources"] for worker in reports):
        _send_code(spark, master, connect=connect)
        _require_own_code(master, own, _probe(spark, master, report))
    if application:
        _slots_of_application[application] = len(reports)
    return len(reports)


def _probe(spark: SparkSession, master: str, report: Callable[[], str]) -> list[dict[str, Any]]:
    # As many partitions as Spark would run at once: this reaches all workers, and warms them up.
    return _read_reports(spark, master, lambda: spark.range(0, 1024).mapInArrow(probe_function(report), PROBE_SCHEMA))


def _read_reports(spark: SparkSession, master: str, query: Callable[[], DataFrame]) -> list[dict[str, Any]]:
    tag = f"sterna-{uuid.uuid4().hex}"

    def probe() -> list[dict[str, Any]]:
        with job_tag(spark, tag):
            return [json.loads(row["report"]) for row in query().collect()]

    return run_with_timeout(
        _PROBE_SECONDS, probe, lambda: cancel(spark, tag), f"a first task for Spark's workers at {master}"
    )


def _require_packages(master: str, reports: Iterable[dict[str, Any]]) -> None:
    """Raise EngineError, with their names, if workers lack packages."""
    unfit = sorted(
        {
            (worker["host"], worker["python"], worker["version"], *worker["missing"])
            for worker in reports
            if worker["missing"]
        }
    )
    if not unfit:
        return
    lines = [
        f"{host} ({python}, Python {python_version}) lacks {', '.join(WORKER_PACKAGES[name] for name in missing)}"
        for host, python, python_version, *missing in unfit
    ]
    missing = sorted({WORKER_PACKAGES[name] for _, _, _, *names in unfit for name in names})
    requirements = " ".join(map(_with_version, missing))
    raise EngineError(
        f"Spark's workers at {master} lack packages: {'; '.join(lines)}",
        hint=f"there: {unfit[0][1]} -m pip install {requirements}, which are the versions of this machine",
    )


def _require_own_code(master: str, own: dict[str, Any], reports: Iterable[dict[str, Any]]) -> None:
    """Raise EngineError where workers still find another sterna after this one was sent."""
    others = sorted({(worker["host"], worker["place"]) for worker in reports if worker["sources"] != own["sources"]})
    if others:
        listing = "; ".join(f"{host} finds {path or 'none'}" for host, path in others)
        raise EngineError(
            f"Spark's workers at {master} don't use the code of sterna that was sent to them: {listing}",
            hint="remove that one from the workers' PYTHONPATH, or install this version there",
        )


def _explain_failure(spark: SparkSession, master: str, report: Callable[[], str], error: EngineError) -> EngineError:
    """Return why workers could not take the first task, if that can be determined.

    Without pyarrow none of our tasks begins: workers that lack it are probed by PySpark alone.
    """
    host_match = re.search(r"\(TID \d+\) \((\S+) executor \S+\)", error.message)
    on_host = f" on {host_match[1]}" if host_match else ""
    own_version = ".".join(map(str, sys.version_info[:2]))
    hint = f"name a Python {own_version} that has sterna's packages by PYSPARK_PYTHON, or by spark.pyspark.python"
    if other := re.search(r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)", error.message, re.DOTALL):
        return EngineError(
            f"Spark's workers at {master}{on_host} have Python {other[1]}, and this machine {own_version}", hint=hint
        )
    if program := re.search(r'Cannot run program "([^"]+)"', error.message):
        return EngineError(f"Spark's workers at {master}{on_host} have no Python at {program[1]}", hint=hint)
    try:
        _require_packages(master, _plain_probe(spark, master, report))
    except EngineError as packages_error:
        return packages_error if "lack packages" in packages_error.message else error
    return error


def _plain_probe(spark: SparkSession, master: str, report: Callable[[], str]) -> list[dict[str, Any]]:
    from pyspark.sql.functions import udf

    def query() -> DataFrame:
        report_udf: Any = udf(lambda _: report(), "string", useArrow=False)
        rows = spark.range(0, _PLAIN_PROBE_TASKS, numPartitions=_PLAIN_PROBE_TASKS)
        return rows.select(report_udf("id").alias("report"))

    return _read_reports(spark, master, query)


def _with_version(distribution: str) -> str:
    try:
        return f"{distribution}=={version(distribution)}"
    except PackageNotFoundError:
        return distribution


def _send_code(spark: SparkSession, master: str, *, connect: bool) -> None:
    path = str(_source_zip())
    try:
        if connect:
            spark.addArtifacts(path, pyfile=True)
        else:
            spark.sparkContext.addPyFile(path)
    except spark_errors() as error:
        raise EngineError(
            f"sterna's code could not be sent to Spark at {master}: {summarize_error(error)}", hint=RESUME_HINT
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
