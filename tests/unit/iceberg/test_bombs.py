"""A few kilobytes that would take a worker's memory: refused, with the limit and the file, in little memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each takes its measure in a process of its own, and prints the error and by how much the peak of memory grew, in MiB.
CHILD = """
import gzip, json, resource, sys
from sterna.errors import TableError
from sterna.iceberg.manifests.manifest import read_entries
from sterna.iceberg.metadata.table import read_table_metadata
sys.path.insert(0, {tests!r})
{make}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read(data, "s3://us-lake/t/metadata/a")
    print("read")
except TableError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
HEAD = '{"format-version":2,"table-uuid":"u","location":"s3://us-lake/t","last-updated-ms":1,'
JSON = "read = read_table_metadata; text = lambda: b'%s' + b'\"snapshots\":[' + {body} + b']}'; ".replace("%s", HEAD)
EMPTY = "b','.join([b'{}'] * {count})"
CASES = {
    "zipped objects": (
        JSON.replace("{body}", EMPTY.replace("{count}", "2_700_000")) + "data = gzip.compress(text())",
        "times its size",
    ),
    "plain objects": (
        JSON.replace("{body}", EMPTY.replace("{count}", "20_000_000")) + "data = text()",
        "JSON objects are over the limit of 500000",
    ),
    "as many objects as may be": (
        JSON.replace("{body}", EMPTY.replace("{count}", "499_000")) + "data = text()",
        "a snapshot without manifests",
    ),
    "arrays in arrays": (
        JSON.replace("{body}", "b','.join([b'[]'] * 20_000_000)") + "data = text()",
        "JSON objects are over the limit",
    ),
    "plain numbers": (
        JSON.replace("{body}", "b','.join([b'1'] * 60_000_000)") + "data = text()",
        "JSON values are over",
    ),
}
LONGEST = ("plain objects", "arrays in arrays", "plain numbers")


@pytest.mark.parametrize("name", CASES)
def test_a_bomb_takes_little_memory(name: str, request: pytest.FixtureRequest) -> None:
    if name in LONGEST and request.config.getoption("quick"):
        pytest.skip("half a minute: without --quick alone")
    make, expected = CASES[name]
    code = CHILD.format(tests=".", make=make)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    error, grown = done.stdout.splitlines()
    assert expected in error
    assert "s3://us-lake/t/metadata/a" in error
    assert int(grown) < 500, f"{grown} MiB"
