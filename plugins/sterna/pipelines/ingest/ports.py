"""What a worker needs of the tracker: batches to take, and where he says how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sterna.pipelines.ingest.heartbeat import Heartbeat
from sterna.pipelines.ingest.model import Batch, Upload


class WorkQueue(Protocol):
    """The tracker as a worker sees it. It is an index and a queue: whether a batch is on `main` the table tells."""

    def claim(self, worker: str, lease: float, *, table: str | None = None) -> Batch | None:
        """Return the oldest batch that is closed or staged and that nobody has, and give it to a worker for a while.

        Two who take at once get two batches. A batch whose lease is over may be taken again, and whoever had it finds
        that out by `LeaseLost`.

        Args:
            worker: who takes it.
            lease: for how many seconds.
            table: of this table alone; None: of any.
        """
        ...

    def renew(self, batch: str, worker: str, lease: float) -> None:
        """Keep a batch for longer; raises `LeaseLost` where somebody else has it, or it is settled."""
        ...

    def clear_delays(self) -> None:
        """Let batches that were given back be taken at once: what they waited for may be mended."""
        ...

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Say that a worker lives, and keep the batches that it works on, unless another has taken them."""
        ...

    def deregister(self, worker: str) -> None:
        """Say that a worker ends in order."""
        ...

    def list_uploads(self, batch: str) -> Sequence[Upload]:
        """Return the drops of a batch, in the order in which they were taken."""
        ...

    def lock_publishing(self, table: str) -> AbstractContextManager[bool]:
        """Become the one publisher of a table in this region; False where somebody else is.

        A hint, held by an advisory lock for as long as the block runs: compare-and-swap at the table is the truth.
        """
        ...

    def next_number(self, table: str, channel: str) -> int:
        """Return the lowest number of a channel that is not settled: the one that may be published now."""
        ...

    def mark_staged(self, batch: str, worker: str, snapshot: int) -> None:
        """Say that a batch is staged; raises `LeaseLost` where somebody else has it."""
        ...

    def mark_published(self, batch: str, snapshot: int, commit: str, bad_rows: int = 0) -> None:
        """Say that a batch is on `main`, less so many bad rows.

        That is a fact, whoever says it: no lease is needed, saying it twice is fine.

        Raises `TrackerContradicts` where the tracker has it as rejected.
        """
        ...

    def mark_rejected(self, batch: str, reason: str) -> None:
        """Say that a batch never will be; raises `TrackerContradicts` where the tracker has it as published."""
        ...

    def requeue(self, batch: str, worker: str, reason: str, *, delay: float = 0.0) -> None:
        """Give a batch back: somebody may take it after so many seconds. One that he has no more is left alone."""
        ...
