"""Ingestion, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.errors import printable
from sterna.text.lines import join_lines
from sterna.text.plain import to_plain
from sterna.text.reconcilers import condition_text, status_text

if TYPE_CHECKING:
    from sterna.pipelines.ingest.heartbeat import WorkerStatus
    from sterna.pipelines.ingest.model import Batch
    from sterna.pipelines.ingest.status import IngestStatus
    from sterna.runtime.status import ReconcilerStatus


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
        "conditions": list(status.conditions),
        "exit_code": status.exit_code,
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
    lines += [f"  {condition_text(condition)}" for condition in status.conditions]
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


def topics_text(region: str, partitions: Sequence[ReconcilerStatus]) -> str:
    """Return how far topics are read as lines for people."""
    lines = [f"{region}: {len(partitions)} partitions of topics are read"]
    return join_lines([*lines, *(f"  {line}" for line in status_text(partitions).splitlines())])


def batches_text(region: str, batches: Sequence[Batch], state: str = "") -> str:
    """Return batches as lines for people; `state` is what became of them just now."""
    return join_lines([f"{region}: {len(batches)} batches{state}", *(f"  {_batch_text(batch)}" for batch in batches)])


def _batch_text(batch: Batch) -> str:
    destination = batch.destination
    position = f"{destination.table} {destination.channel} {batch.number}" + (
        f" [{printable(destination.partition)}]" if destination.partition else ""
    )
    size = f"{batch.files} uploads, {batch.rows:,} rows, {batch.bytes:,} bytes"
    commit = f" in {batch.commit[:12]}" if batch.commit else ""
    reason = f": {printable(batch.reason, 200)}" if batch.reason else ""
    return f"{batch.closed:%Y-%m-%dT%H:%M:%SZ} {position}: {batch.state.value}{commit}, {size}{reason}"
