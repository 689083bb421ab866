"""One stage of a sync, or verify, in a process of its own, as an Airflow task or the command line has it; it reports
how much memory it took.

`python -m bench.stage {"stage": "plan", "registry": "…"}` prints one JSON line; see `bench.memory`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.replica.region import open_region
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure


def main() -> None:
    """Run the stage that the argument names."""
    job = json.loads(sys.argv[1])
    with open_region(job["registry"], "eu", environment_secrets()) as context:
        outcome = _run(job, context)
    print(json.dumps({**outcome, "peak": peak()}), flush=True)


def peak() -> float:
    """Return the most memory that this process ever had, in MiB."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) / 1024


def _run(job: dict[str, Any], context: Any) -> dict[str, Any]:
    run = job.get("run", "")
    if job["stage"] == "sync":
        done = sync(context, SyncOptions(), _report_progress)
        return {"outcome": done.outcome, "held": len(done.held)}
    if job["stage"] == "verify":
        started = time.monotonic()
        verified = verify_structure(context)
        return {"seconds": time.monotonic() - started, "files": verified.files, "faults": verified.faults}
    if job["stage"] == "plan":
        planned = stages.plan(context, SyncOptions(), _report_progress)
        return {
            "run": planned.run,
            "batches": len(planned.batches),
            "files": sum(batch.files for batch in planned.batches),
        }
    if job["stage"] == "copy":
        copied = stages.copy(context, run, 0, lambda line: None)
        return {"files": copied.files, "missing": copied.missing}
    if job["stage"] == "localize":
        localized = stages.localize(context, run, StageReport(), _report_progress)
        return {"files": localized.files, "failed": localized.failed}
    # All batches count as copied: only one was.
    published = stages.publish(context, run, StageReport(files=job["files"]), StageReport(), _report_progress)
    return {"outcome": published.outcome, "held": len(published.held)}


def _report_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
