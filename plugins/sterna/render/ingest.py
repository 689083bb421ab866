"""Ingestion, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.errors import printable
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.ingest.counts import Counts
    from sterna.ingest.heartbeat import WorkerStanding
    from sterna.ingest.model import Batch
    from sterna.ingest.status import IngestStatus, TableStanding
    from sterna.ingest.topic_places import PartitionStanding


def ingest_fields(found: IngestStatus) -> dict[str, Any]:
    """Return how ingestion stands, as data for JSON."""
    return {
        "region": found.region,
        "inbox": found.inbox,
        "begun": found.begun,
        "oldest_seconds": round(found.oldest, 3),
        "tables": [
            {
                **vars(each.backlog),
                **vars(each.counts),
                "age": round(each.backlog.age, 3),
                "patience": each.patience,
                "alarm": each.too_long,
            }
            for each in found.tables
        ],
        "counts": {**vars(found.counts), "waiting": found.counts.waiting},
        "rejected": list(found.rejected),
        "dead": [{**vars(each.batch), "bad": each.rows} for each in found.dead],
        "workers": list(found.workers),
        "unserved": list(found.unserved),
    }


def ingest_text(found: IngestStatus) -> str:
    """Return how ingestion stands as lines for people."""
    if not found.begun:
        return f"{found.region}: nothing came in yet; the inbox is {found.inbox}"
    waiting = sum(each.backlog.bytes for each in found.tables)
    what = f"{waiting:,} bytes wait, the oldest for {found.oldest:.0f} s" if found.tables else "nothing waits"
    lines = [f"{found.region}: {what}; the inbox is {found.inbox}"]
    lines += [_table(each) for each in found.tables]
    lines += [f"  rejected batch {batch.id}: {_batch(batch)}" for batch in found.rejected]
    lines += [
        f"  {each.rows:,} rows in the dead letters of batch {each.batch.id}: {_batch(each.batch)}"
        for each in found.dead
    ]
    if found.counts.unanswered:
        lines.append(f"  ALARM {_unanswered(found.counts)}: sterna ingest replay --batch ID, or --batch ID --accept")
    lines += [_worker(each) for each in found.workers]
    if found.counts.waiting and not found.counts.claimed and not any(each.alive for each in found.workers):
        lines.append("  no worker runs: sterna ingest run, or the DAG sterna_ingest")
    lines += [
        f"  {each.region}'s replica: {each.batches} batches are on main and not seen there yet, since "
        f"{each.since:%Y-%m-%dT%H:%M:%SZ}"
        for each in found.unserved
    ]
    return joined(lines)


def _worker(each: WorkerStanding) -> str:
    who = f"  worker {printable(each.host)} pid {each.pid}"
    if each.alive:
        return f"{who}, since {each.begun:%Y-%m-%dT%H:%M:%SZ}: has {len(each.batches)} batches"
    left = f"; it left {printable(', '.join(each.batches), 200)}" if each.batches else ""
    return f"{who} died or hangs: no sign since {each.seen:%Y-%m-%dT%H:%M:%SZ}, {each.silent:.0f} s{left}"


def counts_text(counts: Counts) -> str:
    """Return how many are in which state, of those that are not 0; "" where all are."""
    parts = [f"{counts.buffered} drops without a batch"] if counts.buffered else []
    parts += [f"{counts.waiting} batches wait{_states(counts)}"] if counts.waiting else []
    return ", ".join([*parts, *([_unanswered(counts)] if counts.unanswered else [])])


def _states(counts: Counts) -> str:
    batches = {
        "ready": counts.ready,
        "tried again later": counts.delayed,
        "claimed by a worker": counts.claimed,
        "left by a worker without a sign": counts.abandoned,
    }
    said = ", ".join(f"{number} {state}" for state, number in batches.items() if number)
    return f" ({said})" if said else ""


def _unanswered(counts: Counts) -> str:
    rejected = [f"{counts.rejected} batches rejected"] if counts.rejected else []
    dead = [f"{counts.dead_rows:,} rows of {counts.dead} batches in the dead letters"] if counts.dead else []
    return ", ".join(rejected + dead)


def topics_fields(region: str, found: Sequence[PartitionStanding]) -> dict[str, Any]:
    """Return how far topics are read, as data for JSON."""
    return {"region": region, "partitions": [{**vars(each), "behind": each.behind} for each in found]}


def topics_text(region: str, found: Sequence[PartitionStanding]) -> str:
    """Return how far topics are read as lines for people."""
    return joined([f"{region}: {len(found)} partitions of topics are read", *map(_partition, found)])


def _partition(each: PartitionStanding) -> str:
    place = "nothing yet" if each.position is None else f"offset {each.position}"
    said = f"  {each.topic} {each.partition}: {place} of {each.end}, {each.behind} behind"
    said = f"{said}; {states}" if (states := counts_text(each.counts)) else said
    return f"{said}: {printable(each.problem)}" if each.problem else said


def batches_text(region: str, batches: Sequence[Batch]) -> str:
    """Return batches as lines for people."""
    return joined([f"{region}: {len(batches)} batches", *(f"  {_batch(batch)}" for batch in batches)])


def closed_text(region: str, batches: Sequence[Batch]) -> str:
    """Return batches that were closed just now as lines for people."""
    return joined([f"{region}: {len(batches)} batches are closed", *(f"  {_batch(batch)}" for batch in batches)])


def _table(each: TableStanding) -> str:
    found = each.backlog
    alarm = f"  ALARM (more than {each.patience} s)" if each.too_long else ""
    why = f": {printable(found.reason, 200)}" if found.reason else ""
    batches = f"{found.waiting} batches{_states(each.counts)}"
    what = f"{found.buffered} drops without a batch, {batches}, {found.bytes:,} bytes"
    return f"  {found.table}: {what}, the oldest for {found.age:.0f} s{why}{alarm}"


def _batch(batch: Batch) -> str:
    lane = batch.lane
    where = f"{lane.table} {lane.channel} {batch.number}" + (
        f" [{printable(lane.partition)}]" if lane.partition else ""
    )
    what = f"{batch.files} drops, {batch.rows:,} rows, {batch.bytes:,} bytes"
    result = f" in {batch.commit[:12]}" if batch.commit else ""
    why = f": {printable(batch.reason, 200)}" if batch.reason else ""
    return f"{batch.closed:%Y-%m-%dT%H:%M:%SZ} {where}: {batch.state.value}{result}, {what}{why}"
