"""Leaving pandas out of a process, and letting it in again.

In a process of its own, where nobody has imported it yet.
"""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from sterna.spark.pandas_import import block_pandas, unblock_pandas

block_pandas()
import pyarrow, pyarrow.compute
assert pyarrow.compute.equal(pyarrow.array(["a"]), "a").to_pylist() == [True]
assert "pandas" not in sys.modules
unblock_pandas()
import pandas
assert pyarrow.table({"x": [1]}).to_pandas()["x"].tolist() == [1]
print("both ways")
"""


def test_pyarrow_works_without_pandas_and_pandas_works_afterwards() -> None:
    assert (
        subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True).stdout
        == "both ways\n"
    )
