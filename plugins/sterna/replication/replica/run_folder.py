"""A run's own folder beside the replica, `<replica root>/_sterna/runs/<run id>/`: the plan, its lists of files, the
report.

The stages of one run read their plan from it; no other run does, and deleting it loses nothing but evidence. Files that
only pass data between stages, above all what the plan has read of foreign metadata, are deleted when the run ends.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib

from sterna.codec import MalformedRecord
from sterna.config.registry import run_names
from sterna.config.registry.folders import RUNS, state_folder
from sterna.config.registry.run_names import COPY_LIST_PREFIX, copy_list_name, is_intermediate, part_name
from sterna.errors import CredentialError, ObjectMissing, StoreError, UsageError
from sterna.libraries import pa, pq
from sterna.replication.replica.codecs import PLAN, REPORT
from sterna.replication.replica.file_list import LOCALIZE_ORDER, filter_roles, schema, split_by_batch
from sterna.replication.replica.model import Plan, Report
from sterna.replication.replica.region import RegionContext

_MAX_DELETED_FILES = 5_000
_ROW_GROUP_ROWS = 4_096  # that one request reads
_MAX_UNCOMPRESSED_BYTES = 100_000  # a longer plan or report is compressed
_MAX_DECOMPRESSED_BYTES = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"


def compress(text: str) -> bytes:
    """Return a plan or a report as it is written, compressed where it is long: each run repeats all that is held."""
    data = text.encode()
    return data if len(data) <= _MAX_UNCOMPRESSED_BYTES else gzip.compress(data, mtime=0)


def decompress(data: bytes) -> bytes:
    """Return the JSON text that `packed` wrote.

    Raises:
        MalformedRecord: it is damaged.
    """
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, _MAX_DECOMPRESSED_BYTES)
    except zlib.error as error:
        raise MalformedRecord(f"it is damaged: {error}") from error


def runs_folder(context: RegionContext) -> str:
    """Return the URI of the folder of the runs' folders."""
    return state_folder(context.region.replica_root, RUNS)


def run_uri(context: RegionContext, run_id: str) -> str:
    """Return the URI of a run's folder."""
    return f"{runs_folder(context)}/{run_id}"


def run_id_from_uri(run: str) -> str:
    """Return the name of the run whose folder's URI is given."""
    return run.rstrip("/").rpartition("/")[2]


def save_plan(context: RegionContext, plan: Plan, files: pa.Table | None) -> str:
    """Write a plan and its lists of files beside the replica, a list a task; return the URI of the run's folder."""
    run = run_uri(context, plan.run_id)
    file_rows = schema().empty_table() if files is None else files
    _write_files(context, f"{run}/{run_names.TO_LOCALIZE}", filter_roles(file_rows, *LOCALIZE_ORDER))
    for batch, rows in split_by_batch(file_rows):
        _write_files(context, f"{run}/{copy_list_name(batch)}", rows)
    context.objects.write_new(f"{run}/{run_names.PLAN}", compress(PLAN.dumps(plan)))
    return run


def load_plan(context: RegionContext, run: str) -> Plan:
    """Read a run's plan back.

    Raises:
        UsageError: there is no such run.
        MalformedRecord: it has a plan of another version, or a damaged one.
    """
    return PLAN.loads(decompress(_read(context, f"{run}/{run_names.PLAN}")))


def load_files(context: RegionContext, run: str, *, batch: int | None = None, list_name: str = "") -> pa.Table:
    """Read a run's list of files back: those that are localized, or the content files of one batch.

    Args:
        run: URI of the run's folder.
        list_name: the name of its list, where it doesn't follow from the number.

    Raises:
        UsageError: there is no such run, or its list is damaged.
    """
    name = list_name or (run_names.TO_LOCALIZE if batch is None else copy_list_name(batch))
    uri = f"{run}/{name}"
    data = _read(context, uri)
    if list_name and list_name != _part_file_name(COPY_LIST_PREFIX, data):
        raise UsageError("a list of the run's files is damaged: start a new sync", file=uri)
    return pq.read_table(io.BytesIO(data))


def write_part(context: RegionContext, kind: str, rows: pa.Table) -> tuple[str, int]:
    """Write some rows below the run's folder, named by a digest of their content; return the name and the length.

    Writing the same rows twice, or concurrently, leaves one complete file.
    """
    name, data = encode_part(kind, rows)
    return name, context.objects.write_new(f"{context.run}/{name}", data)


def encode_part(kind: str, rows: pa.Table) -> tuple[str, bytes]:
    """Return some rows as a part of a list: a name with a digest of their content, and the bytes."""
    sink = io.BytesIO()
    encodings = {"source": "DELTA_BYTE_ARRAY", "target": "DELTA_BYTE_ARRAY"}  # sorted, neighbours differ at their ends
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        row_group_size=_ROW_GROUP_ROWS,
        use_dictionary=["table", "role"],
        column_encoding=encodings,
        write_page_checksum=True,
    )
    data = sink.getvalue()
    return _part_file_name(kind, data), data


def _part_file_name(kind: str, data: bytes) -> str:
    return part_name(kind, hashlib.sha256(data).hexdigest())


def _write_files(context: RegionContext, uri: str, files: pa.Table) -> None:
    sink = io.BytesIO()
    pq.write_table(files, sink, compression="zstd")
    context.objects.write_new(uri, sink.getvalue())


def delete_working_files(context: RegionContext, run: str, plan: Plan | None = None) -> None:
    """Delete the files that a run's stages handed on, as far as possible now: a clean-up deletes the rest.

    A stage that still needs one reads it at its source.

    Args:
        run: URI of the run's folder.
        plan: the run's, where one was written. Lists of what is copied that it doesn't name go, too: those of tables
            that were left out in the end.
    """
    folder = f"{run}/"
    planned_lists = {batch.list_name or copy_list_name(batch.number) for batch in plan.batches} if plan else set()
    try:
        paths = {uri: uri.removeprefix(folder) for uri, _, _ in context.objects.list(run)}
        unplanned_lists = {path for path in paths.values() if path.startswith(COPY_LIST_PREFIX)} - planned_lists
        working_uris = [uri for uri, path in paths.items() if is_intermediate(path) or path in unplanned_lists]
        for start in range(0, len(working_uris), _MAX_DELETED_FILES):
            context.objects.delete(working_uris[start : start + _MAX_DELETED_FILES])
    except (StoreError, CredentialError):
        return


def _read(context: RegionContext, uri: str) -> bytes:
    try:
        return context.objects.read(uri)
    except ObjectMissing as error:
        raise UsageError("the run's plan is gone: start a new sync", file=uri) from error


def save_report(context: RegionContext, report: Report) -> None:
    """Write a run's report beside its plan."""
    context.objects.write_new(f"{run_uri(context, report.run_id)}/{run_names.REPORT}", compress(REPORT.dumps(report)))
