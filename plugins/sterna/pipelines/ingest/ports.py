"""What a worker needs of the tracker: batches to claim, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sterna.pipelines.ingest.heartbeat import Heartbeat
from sterna.pipelines.ingest.model import Batch, Upload


class WorkQueue(Protocol):
    """The tracker as a worker sees it: an index and a queue. Whether a batch is on `main` is decided by the table."""

    def claim(self, worker: str, lease: float, *, table: str | None = None) -> Batch | None:
        """Lease the oldest batch that is closed or staged and not leased; None: there is none.

        Concurrent calls get different batches. One whose lease has expired may be claimed again: its former worker gets
        `LeaseLost`.

        Args:
            worker: its name.
            lease: seconds.
            table: of this table alone; None: of any.
        """
        ...

    def renew(self, batch: str, worker: str, lease: float) -> None:
        """Renew a lease.

        Raises:
            LeaseLost: another worker holds the batch, or it is settled.
        """
        ...

    def clear_delays(self) -> None:
        """Let requeued batches be claimed at once: what they waited for may be fixed."""
        ...

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Record that a worker is alive, and renew the leases that no other worker has claimed since."""
        ...

    def deregister(self, worker: str) -> None:
        """Remove a worker that ends in order."""
        ...

    def list_uploads(self, batch: str) -> Sequence[Upload]:
        """Return the uploads of a batch, in the order in which they were taken."""
        ...

    def lock_publishing(self, table: str) -> AbstractContextManager[bool]:
        """Become the one publisher of a table in this region; False where another worker is.

        A hint, held by an advisory lock for as long as the block runs: compare-and-swap at the table is the truth.
        """
        ...

    def next_number(self, table: str, channel: str) -> int:
        """Return the lowest number of a channel that is not settled: the one that may be published now."""
        ...

    def mark_staged(self, batch: str, worker: str, snapshot: int) -> None:
        """Record that a batch is staged.

        Raises:
            LeaseLost: another worker holds it.
        """
        ...

    def mark_published(self, batch: str, snapshot: int, commit: str, bad_rows: int = 0) -> None:
        """Record that a batch is on `main`, without so many bad rows; idempotent, and no lease is needed.

        Raises:
            TrackerContradicts: the tracker has it as rejected.
        """
        ...

    def mark_rejected(self, batch: str, reason: str) -> None:
        """Record that a batch is rejected.

        Raises:
            TrackerContradicts: the tracker has it as published.
        """
        ...

    def requeue(self, batch: str, worker: str, reason: str, *, delay: float = 0.0) -> None:
        """Give up a lease: the batch may be claimed after `delay` seconds. Without the lease nothing is changed."""
        ...
