"""Loads files that come at a rate with dlt, as its rival does: run by a Python that has dlt, and nothing of sterna.

Standard input is JSON: `folder` with files `<table>-<number>.parquet`, `order` of their names, `rate` a second, `into`,
`every` so many seconds a load, and when to give `up`. It prints the seconds of each file from when it was due until it
was loaded.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import dlt  # type: ignore[import-not-found]
import pyarrow.parquet as pq


def main() -> None:
    """Load the files that standard input names."""
    job = json.load(sys.stdin)
    target = dlt.destinations.filesystem(bucket_url=f"file://{job['into']}")
    pipeline = dlt.pipeline("rival", pipelines_dir=f"{job['into']}-state", destination=target, dataset_name="bench")
    _load(pipeline, job, job["order"][:7])  # it warms up
    print(json.dumps(_follow(pipeline, job)), flush=True)


def _follow(pipeline: Any, job: dict[str, Any]) -> dict[str, Any]:
    order, late, done, loads = job["order"], [], 0, 0
    began = time.monotonic()
    while done < len(order) and time.monotonic() < began + job["up"]:
        time.sleep(max(began + loads * job["every"] - time.monotonic(), 0.0))
        come = min(len(order), int((time.monotonic() - began) * job["rate"]) + 1)
        if come > done:
            _load(pipeline, job, order[done:come])
            now = time.monotonic()
            late += [now - began - place / job["rate"] for place in range(done, come)]
            done = come
        loads += 1
    return {"late": late, "loaded": done}


def _load(pipeline: Any, job: dict[str, Any], names: list[str]) -> None:
    tables: dict[str, list[Any]] = {}
    for name in names:
        tables.setdefault(name.split("-")[0], []).append(pq.read_table(Path(job["folder"], name)))
    resources = [dlt.resource(files, name=table) for table, files in tables.items()]
    pipeline.run(resources, loader_file_format="parquet").raise_on_failed_jobs()


if __name__ == "__main__":
    main()
