"""Loads files that come at a rate with dlt into Iceberg tables: run by a Python that has dlt, and nothing of sterna.

Standard input is JSON: `folder` with files `<table>-<number>.parquet`, `order` of their names, `rate` a second, `into`,
`every` so many seconds a load, and when to give `up`; `dataset`, the namespace; `store` and `catalog`, the credentials
of its bucket and the settings of PyIceberg's catalog. It prints the seconds of each file from when it was due until it
was committed.
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
    dlt.secrets["iceberg_catalog.iceberg_catalog_type"] = "rest"
    dlt.secrets["iceberg_catalog.iceberg_catalog_config"] = job["catalog"]
    target = dlt.destinations.filesystem(bucket_url=job["into"], credentials=job["store"])
    state = f"{job['folder']}-state"
    pipeline = dlt.pipeline("rival", pipelines_dir=state, destination=target, dataset_name=job["dataset"])
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
    resources = [dlt.resource(files, name=table, table_format="iceberg") for table, files in tables.items()]
    pipeline.run(resources).raise_on_failed_jobs()


if __name__ == "__main__":
    main()
