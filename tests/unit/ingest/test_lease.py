"""Who reads for long keeps his batch meanwhile."""

from __future__ import annotations

import threading

import pytest

from sterna.errors import DatabaseUnreachable, LeaseLost
from sterna.ingest.lease import kept


def test_a_lease_is_renewed_until_the_block_ends_whatever_the_tracker_does_in_between() -> None:
    renewed, calls = threading.Event(), [0]

    def renew() -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise DatabaseUnreachable("not now")
        renewed.set()

    with kept(renew, 0.001):
        assert renewed.wait(30)
    after = calls[0]
    assert not [thread for thread in threading.enumerate() if thread.name == "sterna-ingest-lease"]
    assert calls[0] == after


def test_one_that_is_lost_is_told_once_the_block_ends() -> None:
    lost = threading.Event()

    def renew() -> None:
        lost.set()
        raise LeaseLost("somebody else has it")

    with pytest.raises(LeaseLost), kept(renew, 0.001):
        assert lost.wait(30)


def test_what_the_block_raises_goes_first() -> None:
    with pytest.raises(ValueError, match="mine"), kept(lambda: None, 60):
        raise ValueError("mine")
