"""Ingestion, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.errors import printable
from sterna.text.lines import join_lines
from sterna.text.plain import to_plain
from sterna.text.reconcilers import status_text

if TYPE_CHECKING:
    from sterna.pipelines.ingest.counts import Counts
    from sterna.pipelines.ingest.heartbeat import WorkerStatus
    from sterna.pipelines.ingest.model import Batch
    from sterna.pipelines.ingest.status import IngestStatus
    from sterna.pipelines.ingest.topic_offsets import PartitionStatus


def ingest_fields(status: IngestStatus) -> dict[str, Any]:
    """Return the status of ingestion as data for JSON."""
    return {
        "region": status.region,
        "inbox": status.inbox,
        "begun": status.is_initialized,
        "oldest_seconds": round(status.oldest_age, 3),
        "tables": [table.fields() for table in status.tables],
        "counts": {**vars(status.counts), "waiting": status.counts.waiting},
        "rejected": list(status.rejected),
        "dead": [{**to_plain(dead.batch), "bad": dead.rows} for dead in status.dead],
        "workers": list(status.workers),
        "unserved": list(status.replica_backlogs),
    }


def ingest_text(status: IngestStatus) -> str:
    """Return the status of ingestion as lines."""
    if not status.is_initialized:
        return f"{status.region}: no upload was accepted yet; the inbox is {status.inbox}"
    waiting = sum(table.details["bytes"] for table in status.tables)
    backlog = f"{waiting:,} bytes wait, the oldest for {status.oldest_age:.0f} s" if status.tables else "nothing waits"
    lines = [f"{status.region}: {backlog}; the inbox is {status.inbox}"]
    lines += [f"  {line}" for line in status_text(status.tables).splitlines()]
    lines += [f"  rejected batch {batch.id}: {_batch_text(batch)}" for batch in status.rejected]
    lines += [
        f"  {dead.rows:,} rows in the dead letters of batch {dead.batch.id}: {_batch_text(dead.batch)}"
        for dead in status.dead
    ]
    if status.counts.unacknowledged:
        lines.append(
            f"  ALARM {_unanswered_text(status.counts)}: sterna ingest replay --batch ID, or --batch ID --accept"
        )
    lines += [_worker_line(worker) for worker in status.workers]
    if status.counts.waiting and not status.counts.claimed and not any(worker.alive for worker in status.workers):
        lines.append("  no worker runs: sterna ingest run, or the DAG sterna_ingest")
    lines += [
        f"  {replica.region}'s replica: {replica.batches} batches are on main and not seen there yet, since "
        f"{replica.since:%Y-%m-%dT%H:%M:%SZ}"
        for replica in status.replica_backlogs
    ]
    return join_lines(lines)


def _worker_line(worker: WorkerStatus) -> str:
    identity = f"  worker {printable(worker.host)} pid {worker.pid}"
    if worker.alive:
        return f"{identity}, since {worker.begun:%Y-%m-%dT%H:%M:%SZ}: has {len(worker.batches)} batches"
    abandoned = f"; it left {printable(', '.join(worker.batches), 200)}" if worker.batches else ""
    since = f"{worker.seen:%Y-%m-%dT%H:%M:%SZ}, {worker.silent:.0f} s"
    return f"{identity} died or hangs: no heartbeat since {since}{abandoned}"


def counts_text(counts: Counts) -> str:
    """Return how many are in which state, of those that are not 0; "" where all are."""
    parts = [f"{counts.buffered} uploads without a batch"] if counts.buffered else []
    parts += [f"{counts.waiting} batches wait ({counts.states})"] if counts.waiting else []
    return ", ".join([*parts, *([_unanswered_text(counts)] if counts.unacknowledged else [])])


def _unanswered_text(counts: Counts) -> str:
    rejected = [f"{counts.rejected} batches rejected"] if counts.rejected else []
    dead = [f"{counts.dead_rows:,} rows of {counts.dead} batches in the dead letters"] if counts.dead else []
    return ", ".join(rejected + dead)


def topics_fields(region: str, partitions: Sequence[PartitionStatus]) -> dict[str, Any]:
    """Return how far topics are read, as data for JSON."""
    return {
        "region": region,
        "partitions": [{**vars(partition), "behind": partition.behind} for partition in partitions],
    }


def topics_text(region: str, partitions: Sequence[PartitionStatus]) -> str:
    """Return how far topics are read as lines for people."""
    return join_lines([f"{region}: {len(partitions)} partitions of topics are read", *map(_partition_line, partitions)])


def _partition_line(partition: PartitionStatus) -> str:
    position = "nothing yet" if partition.position is None else f"offset {partition.position}"
    line = f"  {partition.topic} {partition.partition}: {position} of {partition.end}, {partition.behind} behind"
    line = f"{line}; {states}" if (states := counts_text(partition.counts)) else line
    return f"{line}: {printable(partition.problem)}" if partition.problem else line


def batches_text(region: str, batches: Sequence[Batch]) -> str:
    """Return batches as lines for people."""
    return join_lines([f"{region}: {len(batches)} batches", *(f"  {_batch_text(batch)}" for batch in batches)])


def closed_text(region: str, batches: Sequence[Batch]) -> str:
    """Return batches that were closed just now as lines for people."""
    return join_lines(
        [f"{region}: {len(batches)} batches are closed", *(f"  {_batch_text(batch)}" for batch in batches)]
    )


def _batch_text(batch: Batch) -> str:
    destination = batch.destination
    position = f"{destination.table} {destination.channel} {batch.number}" + (
        f" [{printable(destination.partition)}]" if destination.partition else ""
    )
    size = f"{batch.files} uploads, {batch.rows:,} rows, {batch.bytes:,} bytes"
    commit = f" in {batch.commit[:12]}" if batch.commit else ""
    reason = f": {printable(batch.reason, 200)}" if batch.reason else ""
    return f"{batch.closed:%Y-%m-%dT%H:%M:%SZ} {position}: {batch.state.value}{commit}, {size}{reason}"
