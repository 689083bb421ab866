"""One stage of a sync, or verify, in a process of its own, as an Airflow task or the command line has it; it says how
much memory it took.

`python -m bench.stage {"stage": "plan", "registry": "…"}` prints one JSON line; see `bench.memory`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from sterna.edges.secrets import environment_secrets
from sterna.replica.records import StageReport
from sterna.replica.region import open_region
from sterna.sync import stages
from sterna.sync.options import SyncOptions
from sterna.sync.run import sync
from sterna.verify.structure import verify_structure


def main() -> None:
    """Run the stage that the argument names."""
    job = json.loads(sys.argv[1])
    with open_region(job["registry"], "eu", environment_secrets()) as context:
        said = _run(job, context)
    print(json.dumps({**said, "peak": peak()}), flush=True)


def peak() -> float:
    """Return the most memory that this process ever had, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def _run(job: dict[str, Any], context: Any) -> dict[str, Any]:
    run = job.get("run", "")
    if job["stage"] == "sync":
        done = sync(context, SyncOptions(), _say)
        return {"outcome": done.outcome, "held": len(done.held)}
    if job["stage"] == "verify":
        started = time.monotonic()
        found = verify_structure(context)
        return {"seconds": time.monotonic() - started, "files": found.files, "faults": found.faults}
    if job["stage"] == "plan":
        planned = stages.plan(context, SyncOptions(), _say)
        return {
            "run": planned.run,
            "batches": len(planned.batches),
            "files": sum(batch.files for batch in planned.batches),
        }
    if job["stage"] == "copy":
        copied = stages.copy(context, run, 0, lambda line: None)
        return {"files": copied.files, "missing": copied.missing}
    if job["stage"] == "localize":
        localized = stages.localize(context, run, StageReport(), _say)
        return {"files": localized.files, "failed": localized.failed}
    # All batches count as copied: only one was.
    published = stages.publish(context, run, StageReport(files=job["files"]), StageReport(), _say)
    return {"outcome": published.outcome, "held": len(published.held)}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
