"""What workers of ingestion did, for people."""

from __future__ import annotations

from sterna.errors import printable
from sterna.pipelines.ingest.add_files import FileAdditionOutcome
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.file_proof import ProvenFile
from sterna.pipelines.ingest.rebuild import RebuildOutcome
from sterna.pipelines.ingest.replay import ReplayOutcome
from sterna.pipelines.ingest.worker import WorkerSummary
from sterna.text.lines import NOTHING_CHANGED


def consolidated_text(batch: BatchOutcome) -> str:
    """Return what became of a batch as one line."""
    outcome = f"{batch.table} batch {batch.number}: {batch.state}"
    if batch.reason:
        return f"{outcome}: {batch.reason}"
    bad = f", {batch.bad} bad" if batch.bad else ""
    if not batch.files:
        return f"{outcome}: it was there already"
    return f"{outcome}: {batch.uploads} uploads, {batch.rows} rows{bad}, {batch.files} files"


def work_text(summary: WorkerSummary) -> str:
    """Return what a worker did as lines."""
    failed = f"{len(summary.failed)} given back" if summary.failed else ""
    remaining = "what waits is unknown" if summary.waiting is None else summary.waiting.text or "nothing waits"
    settled = ", ".join(part for part in (f"{sum(summary.counts.values())} batches settled", failed) if part)
    lines = [f"{settled}; {remaining}"]
    return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in summary.failed.items())])


def replayed_text(replayed: ReplayOutcome) -> str:
    """Return what a replay does as lines."""
    channel = f"{replayed.table}, channel {replayed.channel}"
    outcome = f"{replayed.uploads} uploads are replayed in a new batch" if replayed.uploads else ""
    outcome = f"{replayed.accepted} rows are not replayed" if replayed.accepted else outcome
    batches = (
        f"{len(replayed.batches)} batches that the table has lost; its applied position: {replayed.position or 'none'}"
    )
    lines = [f"{channel}: {outcome or batches}", *(f"  {id}" for id in replayed.batches)]
    return "\n".join(lines if replayed.done else [*lines, NOTHING_CHANGED])


def added_text(added: FileAdditionOutcome) -> str:
    """Return the outcome of adding files in place as lines."""
    if added.known:
        return f"{added.table}: all {added.known} files are its own already"
    size = f"{added.table}: {len(added.files)} files, {added.rows:,} rows, {added.bytes:,} bytes"
    lines = [f"  {printable(file.uri)}{_partition_text(file)}" for file in added.files]
    outcome = f"they are on main: snapshot {added.snapshot}" if added.done else NOTHING_CHANGED
    return "\n".join([size, *lines, outcome])


def _partition_text(file: ProvenFile) -> str:
    return f" [{printable(', '.join(file.partition))}]" if file.partition else ""


def rebuilt_text(rebuilt: RebuildOutcome) -> str:
    """Return the content of a rebuilt tracker as one line."""
    states = ", ".join(f"{count} {state}" for state, count in rebuilt.batches.items()) or "none"
    return f"{rebuilt.uploads} uploads, {rebuilt.buffered} of them without a batch; batches: {states}"
