"""ORC's run lengths: the specification's examples, and what is written is read back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.iceberg.orc.proto import OrcDamaged
from sterna.iceberg.orc.runs import read_bits, read_bytes, read_integers, write_bits, write_bytes, write_integers

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(0, 3000)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ("0a2710", [10000] * 5),
        ("5e035ca1ab1edeadbeef", [23713, 43806, 57005, 48879]),
        (
            "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8",
            [2030, 2000, 2020, 1000000, *range(2040, 2191, 10)],
        ),
        ("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    ],
)
def test_examples_of_the_specification(data: str, values: list[int]):
    assert read_integers(bytes.fromhex(data), len(values), signed=False).tolist() == values
    assert read_integers(bytes.fromhex(data), len(values) - 1, signed=False).tolist() == values[:-1]
    with pytest.raises(OrcDamaged):
        read_integers(bytes.fromhex(data), len(values) + 1, signed=False)


def test_examples_of_bytes_and_bits():
    assert read_bytes(bytes.fromhex("6100"), 100).tolist() == [0] * 100
    assert read_bytes(bytes.fromhex("fe4445"), 2).tolist() == [0x44, 0x45]
    assert read_bits(bytes.fromhex("ff80"), 8).tolist() == [True] + [False] * 7


@given(st.lists(INTEGERS, max_size=1200), st.booleans(), st.sampled_from([0, 1, -1]))
def test_runs_come_back(numbers: list[int], signed: bool, direction: int):
    values = np.array(sorted(numbers)[::direction] if direction else numbers, np.int64)
    assert read_integers(write_integers(values, signed), len(values), signed).tolist() == values.tolist()
    small = (values & 3).astype(np.uint8)
    assert read_bytes(write_bytes(small), len(small)).tolist() == small.tolist()
    assert read_bits(write_bits(small > 1), len(small)).tolist() == (small > 1).tolist()
