"""What workers of ingestion did, for people."""

from __future__ import annotations

from sterna.errors import printable
from sterna.ingest.adding import Added
from sterna.ingest.consolidate import Consolidated
from sterna.ingest.file_proof import ProvenFile
from sterna.ingest.rebuild import Rebuilt
from sterna.ingest.replay import Replayed
from sterna.ingest.worker import Worked
from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.ingest import counts_text


def consolidated_text(done: Consolidated) -> str:
    """Return what became of a batch as one line."""
    what = f"{done.table} batch {done.number}: {done.state}"
    if done.reason:
        return f"{what}: {done.reason}"
    bad = f", {done.bad} bad" if done.bad else ""
    how = f"{done.drops} drops, {done.rows} rows{bad}, {done.files} files" if done.files else "it was there already"
    return f"{what}: {how}"


def worked_text(worked: Worked) -> str:
    """Return what a worker did as lines."""
    failed = f"{len(worked.failed)} given back" if worked.failed else ""
    left = "what waits can't be told" if worked.counts is None else counts_text(worked.counts) or "nothing waits"
    what = ", ".join(part for part in (f"{len(worked.done)} batches settled", failed) if part)
    lines = [f"{what}; {left}"]
    return "\n".join([*lines, *(f"  {id}: {reason}" for id, reason in worked.failed.items())])


def replayed_text(replayed: Replayed) -> str:
    """Return what is told again as lines."""
    where = f"{replayed.table}, channel {replayed.channel}"
    what = f"{replayed.drops} drops come again in a new batch" if replayed.drops else ""
    what = f"{replayed.accepted} rows stay away" if replayed.accepted else what
    batches = f"{len(replayed.batches)} batches that the table has lost; its mark: {replayed.mark or 'none'}"
    lines = [f"{where}: {what or batches}", *(f"  {id}" for id in replayed.batches)]
    return "\n".join(lines if replayed.done else [*lines, NOTHING_CHANGED])


def added_text(added: Added) -> str:
    """Return what became of files that lie somewhere as lines."""
    if added.known:
        return f"{added.table}: all {added.known} files are its own already"
    what = f"{added.table}: {len(added.files)} files, {added.rows:,} rows, {added.bytes:,} bytes"
    lines = [f"  {printable(file.uri)}{_partition(file)}" for file in added.files]
    last = f"they are on main: snapshot {added.snapshot}" if added.done else NOTHING_CHANGED
    return "\n".join([what, *lines, last])


def _partition(file: ProvenFile) -> str:
    return f" [{printable(', '.join(file.partition))}]" if file.partition else ""


def rebuilt_text(rebuilt: Rebuilt) -> str:
    """Return what a tracker that was made anew knows, as one line."""
    states = ", ".join(f"{count} {state}" for state, count in rebuilt.batches.items()) or "none"
    return f"{rebuilt.drops} drops, {rebuilt.buffered} of them without a batch; batches: {states}"
