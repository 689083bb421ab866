"""Which transactions a snapshot sees, as those of a table that is read again; by their last 32 bits.

And for which a table waits before it is read: those that were open when it was published. Where commits wait for a
standby the log has them, and a snapshot doesn't see them yet: whoever was open counts there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from sterna.pipelines.cdc import table_resync
from sterna.pipelines.cdc.table_resync import PgSnapshot, publish_table
from tests.support.patching import replace_functions

_TURN = 1 << 32


@pytest.mark.parametrize("turn", [0, _TURN, 7 * _TURN])
def test_a_snapshot_sees_what_was_committed_before_it(turn: int) -> None:
    snapshot = PgSnapshot.parse(f"{turn + 100}:{turn + 110}:{turn + 100},{turn + 105}")
    seen = [number for number in range(95, 115) if snapshot.is_visible(number)]
    assert seen == [95, 96, 97, 98, 99, 101, 102, 103, 104, 106, 107, 108, 109]


def test_numbers_begin_anew_amid_a_snapshot() -> None:
    snapshot = PgSnapshot.parse(f"{_TURN - 3}:{_TURN + 4}:{_TURN - 2},{_TURN + 1}")
    near = [*range(_TURN - 5, _TURN), *range(6)]
    assert [number for number in near if snapshot.is_visible(number)] == [
        _TURN - 5, _TURN - 4, _TURN - 3, _TURN - 1, 0, 2, 3
    ]  # fmt: skip


def test_a_snapshot_beside_which_nothing_is_open() -> None:
    snapshot = PgSnapshot.parse("700:700:")
    assert [number for number in range(698, 703) if snapshot.is_visible(number)] == [698, 699]


class Server:
    """A Postgres that answers what `publish` asks; its snapshots come one after another, and the last one stays.

    After some looks the table isn't published any more.
    """

    def __init__(self, standbys: str, published: tuple[int, int], snapshots: Sequence[str], looks: int = 99) -> None:
        self.standbys, self.published, self.snapshots, self.rows = standbys, published, list(snapshots), [("",)]
        self.looks = looks

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> Server:
        if "pg_publication" in str(statement):
            self.looks -= 1
            self.rows = cast(Any, [self.published] if self.looks >= 0 else [])
        elif "synchronous_standby_names" in str(statement):
            self.rows = [(self.standbys,)]
        elif "pg_current_snapshot" in str(statement):
            self.rows = [(self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0],)]
        return self

    def fetchall(self) -> list[Any]:
        return self.rows


@pytest.mark.parametrize(
    ("standbys", "snapshots", "is_read"),
    [
        ("", ["700:710:700"], True),  # 700 goes on, and its changes come
        ("any 1 (a, b)", ["700:710:700"], False),  # its commit may be in the log already, and waits for a standby
        ("any 1 (a, b)", ["700:710:700", "700:712:700", "709:715:709,711"], False),
        ("any 1 (a, b)", ["700:710:700", "700:712:700", "711:715:711"], True),
        ("", ["80:710:80"], False),  # open since before the publication was changed
        ("", ["80:710:80", "101:710:105"], True),
    ],
)
def test_a_table_is_read_once_those_are_over_whose_changes_would_be_nowhere(
    standbys: str, snapshots: list[str], is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_functions(monkeypatch, table_resync, time, sleep=lambda seconds: None)
    server = Server(standbys, (100, 100), snapshots)
    assert publish_table(cast(Any, server), "p", "public.a", "public.a") is is_read


@pytest.mark.parametrize("looks", [1, 2])
def test_a_table_that_is_dropped_while_others_are_waited_for_is_looked_at_later(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_functions(monkeypatch, table_resync, time, sleep=lambda seconds: None)
    server = Server("", (100, 100), ["80:710:80"], looks)
    assert publish_table(cast(Any, server), "p", "public.a", "public.a") is False
