"""Which transactions a snapshot sees, as those of a table that is read again; by their last 32 bits."""

from __future__ import annotations

import pytest

from sterna.cdc.again import Snapshot

_TURN = 1 << 32


@pytest.mark.parametrize("turn", [0, _TURN, 7 * _TURN])
def test_a_snapshot_sees_what_was_committed_before_it(turn: int) -> None:
    snapshot = Snapshot.of(f"{turn + 100}:{turn + 110}:{turn + 100},{turn + 105}")
    seen = [number for number in range(95, 115) if snapshot.sees(number)]
    assert seen == [95, 96, 97, 98, 99, 101, 102, 103, 104, 106, 107, 108, 109]


def test_numbers_begin_anew_amid_a_snapshot() -> None:
    snapshot = Snapshot.of(f"{_TURN - 3}:{_TURN + 4}:{_TURN - 2},{_TURN + 1}")
    near = [*range(_TURN - 5, _TURN), *range(6)]
    assert [number for number in near if snapshot.sees(number)] == [
        _TURN - 5, _TURN - 4, _TURN - 3, _TURN - 1, 0, 2, 3
    ]  # fmt: skip


def test_a_snapshot_beside_which_nothing_is_open() -> None:
    snapshot = Snapshot.of("700:700:")
    assert [number for number in range(698, 703) if snapshot.sees(number)] == [698, 699]
