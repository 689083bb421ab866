"""A Spark in a process of its own that appends a row a commit: `python -m bench.appender`, controlled by standard
input.

The first line is JSON: `settings` of the catalog, `table`, `ids`, and `every` so many seconds. It prints `ready`, and
begins at the next line. At its end it prints the seconds of each append, from when it was due, and the failures.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from sterna.servers.spark import start_session
from sterna.spark.start import spark_errors


def main() -> None:
    """Append rows as the first line of standard input defines."""
    job = json.loads(sys.stdin.readline())
    spark = start_session(os.environ, name="rival")
    for key, value in job["settings"].items():
        spark.conf.set(key, value)
    spark.sql(f"SELECT count(*) FROM {job['table']}").collect()
    spark.sql(f"INSERT INTO {job['warm']} VALUES (0)").collect()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(_append(spark, job)), flush=True)
    spark.stop()


def _append(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    seconds, failed, began = [], [], time.monotonic()
    for place, id in enumerate(job["ids"]):
        due = began + place * job["every"]
        time.sleep(max(due - time.monotonic(), 0.0))
        try:
            spark.sql(f"INSERT INTO {job['table']} VALUES ({id})").collect()
        except spark_errors() as error:
            failed.append(str(error)[:200])
        seconds.append(time.monotonic() - due)
    return {"seconds": seconds, "failed": failed}


if __name__ == "__main__":
    main()
