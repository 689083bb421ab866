"""Libraries that are imported at their first use."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow
import pytest

from sterna.libraries import pa, pc


def test_a_library_is_imported_at_its_first_use() -> None:
    code = (
        "import sys; from sterna.libraries import pa; print('pyarrow' in sys.modules); "
        "print(pa.int64(), 'pyarrow' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "int64", "True"]


def test_its_names_are_the_library_s_own() -> None:
    assert pa.Table is pyarrow.Table
    assert pc.sum(pa.array([1, 2])).as_py() == 3
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pa.no_such_name


def test_it_is_pickled_as_the_library() -> None:
    assert pickle.loads(pickle.dumps(pa)) is pyarrow
