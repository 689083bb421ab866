"""Position deletes in ORC, read and written in a process of their own, with a limit of memory and of time.

ORC's library is C++: a damaged file that crashes it holds its table, and neither ends the sync nor a Spark worker.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from sterna.concurrency.fork_server import ForkServer
from sterna.config.limits import MIB, Limits
from sterna.errors import BrokenMetadata, EngineError
from sterna.replication.execution.work_items import parse_error, run_as_json

_JOB_FILE: Final = "job.json"
_REPORT_FILE: Final = "report.json"
_SOURCE_FILE: Final = "source.orc"
_LOCALIZED_FILE: Final = "localized.orc"
BASE_BYTES: Final = 512 * MIB  # Python and the library, before any row
_JOB_SECONDS: Final = 900.0
_FORK_SERVER: Final = ForkServer(__name__, "reads position deletes in ORC", ("numpy", "sterna.iceberg.deletes.orc"))
_one_at_a_time = Lock()  # a second fork server would cost more than it saves, and a second file more memory


def localize_orc_in_subprocess(
    data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits
) -> bytes | None:
    """Do what `sterna.iceberg.deletes.orc.localize_orc` does; `map_content` is called in this process.

    Raises:
        Unsupported: an encrypted file, or a version, codec or type that is not written back.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file, or one that ended the process.
        EngineError: no process can be made, or it was killed.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="sterna-orc-") as name:
            folder = Path(name)
            (folder / _SOURCE_FILE).write_bytes(data)
            old_paths = _run(folder, uri, limits, None)["paths"]
            new_paths = [map_content(path) for path in old_paths]
            if new_paths == old_paths:
                return None
            _run(folder, uri, limits, new_paths)
            return (folder / _LOCALIZED_FILE).read_bytes()
    except OSError as error:  # of this machine, and not of the file
        raise EngineError(f"position deletes in ORC can't be read in a process: {error.strerror}", file=uri) from error


def stop_jobs() -> None:
    """End the jobs that are under way, for an interrupt."""
    _FORK_SERVER.stop()


def main(folder: Path) -> None:
    """Do the job of a folder: read a file's paths, or write it with other paths."""
    job = json.loads((folder / _JOB_FILE).read_text())
    report = run_as_json(lambda: _do_job(folder, job), "reading position deletes in ORC", job["uri"], "")
    (folder / _REPORT_FILE).write_text(report)


def _do_job(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    from sterna.iceberg.deletes.orc import read_orc_paths, rewrite_orc

    data, limits = (folder / _SOURCE_FILE).read_bytes(), Limits(**job["limits"])
    if job["new_paths"] is None:
        return {"paths": read_orc_paths(data, job["uri"], limits)}
    (folder / _LOCALIZED_FILE).write_bytes(rewrite_orc(data, job["uri"], job["new_paths"], limits))
    return {}


def _run(folder: Path, uri: str, limits: Limits, new_paths: Sequence[str] | None) -> dict[str, Any]:
    job = {"uri": uri, "limits": limits.model_dump(), "new_paths": new_paths}
    (folder / _JOB_FILE).write_text(json.dumps(job))
    with _one_at_a_time:
        failure = _FORK_SERVER.run(folder, BASE_BYTES + limits.delete_bytes, _JOB_SECONDS)
    if failure is not None and failure.is_out_of_memory:
        raise limits.over_limit("delete_bytes", "more memory than position deletes may take", uri)
    if failure is not None:
        kind = EngineError if failure.is_killed else BrokenMetadata
        raise kind(f"an ORC file that can't be read: the process that read it {failure.text}", file=uri)
    report: dict[str, Any] = json.loads((folder / _REPORT_FILE).read_text())
    if error := parse_error(report, ""):
        raise error
    return report
