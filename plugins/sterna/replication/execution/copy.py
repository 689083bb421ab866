"""The second stage of a sync.

Foreign content files are copied to their places here, and every one is proven present.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sterna.config.mapping import Mapping
from sterna.config.registry.folders import BANDWIDTH, state_folder
from sterna.config.registry.model import is_inside
from sterna.config.secrets import Secrets
from sterna.errors import (
    EngineError,
    NotCopied,
    ObjectMissing,
    SizeDiffers,
    SourceGone,
    SternaError,
    TableError,
    UnsafeUri,
)
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.source_sizes import Unavailable, source_sizes
from sterna.storage.objects import Objects
from sterna.storage.rclone.transfer import Folder, Transfer, copy_files

DEFAULT_DEADLINE_SECONDS = 6 * 3600.0  # seconds
_MAX_TABLE_FAILURES = 100
_MAX_ATTEMPTS = 2


@dataclass(frozen=True)
class CopyFile:
    """A foreign content file that a table needs here.

    Args:
        table: the table's key.
        source: its URI on `main`.
        target: its URI in this region.
        size: bytes, as the metadata says.
    """

    table: str
    source: str
    target: str
    size: int


@dataclass(frozen=True)
class CopyProgress:
    """How far the copy of a batch is.

    Args:
        files: sent so far.
        bytes: sent so far; what rclone had to send again doesn't make it more than the total.
        files_total: in the batch, those included that are here already and won't be sent.
        bytes_total: in the batch, likewise.
    """

    files: int
    bytes: int
    files_total: int
    bytes_total: int

    def __str__(self) -> str:
        return f"{self.files} of {self.files_total} files, {self.bytes} of {self.bytes_total} bytes sent"


@dataclass(frozen=True)
class CopyResult:
    """What a batch came to.

    Args:
        files: proven present with their size.
        bytes: of those files.
        sent: bytes really sent.
        failures: one a file and table that can't be copied, at most 100 a table; each names both. Beside the tables'
            own faults these are stores of others that can't be used.
        failed: how many failures there are, those included that are not kept.
    """

    files: int
    bytes: int
    sent: int
    failures: tuple[SternaError, ...] = ()
    failed: int = 0


def copy_batch(
    files: Sequence[CopyFile],
    mapping: Mapping,
    secrets: Secrets,
    objects: Objects,
    *,
    progress: Callable[[CopyProgress], None] = lambda _: None,
    deadline: float = DEFAULT_DEADLINE_SECONDS,
    overwrite: bool = False,
    unavailable: Unavailable | None = None,
) -> CopyResult:
    """Copy files to their places here and prove every one of them present with its size.

    Args:
        files: what to copy; a target that is listed twice is copied once.
        mapping: maps targets to their origins.
        objects: reads the sizes of the copies.
        progress: called now and then.
        deadline: seconds after which the copy is ended.
        overwrite: send every file, whatever is at its target (for `repair` alone).
        unavailable: stores that don't answer, which are skipped; those found so are added.

    Returns:
        What was copied, and the files that can't be: they are gone or other than their metadata says, or the store that
        they come from can't be used.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
        EngineError: rclone can't run, or the deadline passed; doing it again sends nothing twice that arrived.
    """
    end = time.monotonic() + deadline
    run = CopyRun(mapping, secrets, objects, progress, end, files, {} if unavailable is None else unavailable)
    # An earlier try may have sent some of them, and been killed.
    target_sizes = objects.sizes({file.target for file in files})
    existing = {} if overwrite else target_sizes
    root = mapping.region.replica_root
    complete = {file.target for file in files if existing.get(file.target) == file.size}
    pending = [file for file in files if existing.get(file.target) != file.size]
    failures = run.misplaced(pending)
    failures |= run.source_failures([file for file in pending if file.target in complete])
    originals = (file for file in pending if existing.get(file.target) is not None and not is_inside(file.target, root))
    failures |= {(file.table, file.target): original_mismatch(file) for file in originals}
    missing, sent = {file.target: file for file in pending if (file.table, file.target) not in failures}, 0
    for is_last in (attempt == _MAX_ATTEMPTS - 1 for attempt in range(_MAX_ATTEMPTS if missing else 0)):
        transfers, failed = run.send(missing.values(), sent)
        sent += sum(transfer.bytes for transfer in transfers)
        sizes = objects.sizes(missing)
        incomplete = [file for file in files if file.target in missing and sizes[file.target] != file.size]
        # A size that is right by one table's metadata is wrong by another's that has a different one.
        failed |= run.source_failures([file for file in incomplete if (file.table, file.target) not in failed])
        failures |= failed
        # A file that fails for one table may be needed by another one that has no fault.
        missing = {file.target: file for file in incomplete if (file.table, file.target) not in failures}
        if not missing:
            break
        if is_last:
            failures = run.unexplained_failures(missing, transfers) | failures
    failed_targets = {target for _, target in failures}
    proven = {file.target: file.size for file in files if file.target not in failed_targets}
    return CopyResult(len(proven), sum(proven.values()), sent, _capped_failures(failures.values()), len(failures))


def original_mismatch(file: CopyFile) -> SizeDiffers:
    """Return the fault of a file whose target, outside the replica root, has another file.

    That is never written over.
    """
    return SizeDiffers(
        f"an original of this region hasn't the {file.size} bytes that main says", table=file.table, file=file.target
    )


_Failures = dict[tuple[str, str], SternaError]
"""By table and target, why a file could not be copied."""


@dataclass(frozen=True)
class CopyRun:
    """What copying one batch needs."""

    mapping: Mapping
    secrets: Secrets
    objects: Objects
    progress: Callable[[CopyProgress], None]
    end: float
    files: Sequence[CopyFile]
    unavailable: Unavailable = field(default_factory=dict)

    def misplaced(self, files: Iterable[CopyFile]) -> _Failures:
        """Return the failures of files that would be copied to where they don't belong."""
        return {
            (file.table, file.target): UnsafeUri(
                f"the copy would go to {file.target}, which is not its place", table=file.table, file=file.source
            )
            for file in files
            if file.target != self.mapping.content_uri(file.source)
        }

    def group_by_origin(self, files: Iterable[CopyFile]) -> list[list[CopyFile]]:
        groups: dict[tuple[str, str], list[CopyFile]] = defaultdict(list)
        for file in files:
            name = self._relative_path(file)
            groups[file.source.removesuffix(name), file.target.removesuffix(name)].append(file)
        return [groups[folders] for folders in sorted(groups)]

    def _relative_path(self, file: CopyFile) -> str:
        """Return the path that a file has below both its folders.

        That below the prefix of the location where it was born.
        """
        return self.mapping.locate(self.mapping.origin_uri(file.source)).path

    def send(self, files: Iterable[CopyFile], sent_before: int) -> tuple[list[Transfer], _Failures]:
        """Run rclone over files, origin by origin; what can't be used of the origins fails the tables that need it."""
        transfers: list[Transfer] = []
        failures: _Failures = {}
        for group in self.group_by_origin(files):
            # Read first, as the region's own was, so that an unreachable or denied store is reported at once and by its
            # address, not by rclone after all its retries. A credential that can't read one table's files may read
            # another's.
            samples = {file.table: file for file in reversed(group)}
            _, errors = source_sizes(
                self.objects, [(file.table, file.source) for file in samples.values()], self.unavailable
            )
            table_errors = {table: error for (table, _), error in errors.items()}
            failures |= self._failures_of([file for file in group if file.table in table_errors], table_errors)
            if remaining := [file for file in group if file.table not in table_errors]:
                try:
                    transfers.append(self.copy(remaining, sent_before))
                except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
                    fault = attribute_fault(error, self.mapping, "copying", remaining[0].source, remaining[0].table)
                    failures |= self._failures_of(remaining, {file.table: fault for file in remaining})
        return transfers, failures

    def _failures_of(self, files: Sequence[CopyFile], errors: dict[str, SternaError]) -> _Failures:
        """Return the failure of each of some files, for all tables that need them."""
        target_errors = {file.target: errors[file.table] for file in files}
        return {
            (file.table, file.target): _error_for_file(target_errors[file.target], file)
            for file in self.files
            if file.target in target_errors
        }

    def copy(self, files: list[CopyFile], sent_before: int) -> Transfer:
        """Run rclone over files of one origin; its failure is judged by what arrived."""
        names = [self._relative_path(file) for file in files]
        origin, replica = (self._folder(uri.removesuffix(f"/{names[0]}")) for uri in (files[0].source, files[0].target))
        target_sizes = {file.target: file.size for file in self.files}
        size, count = sum(target_sizes.values()), len(target_sizes)
        return copy_files(
            origin,
            replica,
            names,
            progress=lambda sent, done: self.progress(CopyProgress(done, min(sent_before + sent, size), count, size)),
            timeout=max(self.end - time.monotonic(), 0.0),
            leases=self._folder(state_folder(self.mapping.region.replica_root, BANDWIDTH)),
        )

    def source_failures(self, files: Sequence[CopyFile]) -> _Failures:
        """Return the failures of files whose source explains why they didn't arrive."""
        sizes, errors = source_sizes(self.objects, [(file.table, file.source) for file in files], self.unavailable)
        failures: _Failures = {}
        for file in files:
            if error := errors.get((file.table, file.source)):
                failures[file.table, file.target] = _error_for_file(error, file)
            elif fault := _source_fault(file, sizes[file.source]):
                failures[file.table, file.target] = fault
        return failures

    def unexplained_failures(self, missing: dict[str, CopyFile], transfers: list[Transfer]) -> _Failures:
        """Return a failure for each file that is at its source and did not arrive.

        A store may return sizes and deny contents. Where nothing at all arrived below the replica root the cause isn't
        the files, and a retry may help. Elsewhere in the region sterna may have no right to write.
        """
        reason = next((transfer.errors for transfer in transfers if transfer.errors), "rclone reported no error")
        root = self.mapping.region.replica_root
        none_arrived = missing.keys() >= {file.target for file in self.files} and any(
            is_inside(target, root) for target in missing
        )
        errors = self._read_errors(missing.values())
        return {
            (file.table, file.target): _error_for_file(errors[file.table], file)
            if file.table in errors
            else _not_copied(file, reason, len(missing) if none_arrived else 0)
            for file in self.files
            if file.target in missing
        }

    def _read_errors(self, files: Iterable[CopyFile]) -> dict[str, SternaError]:
        """Return, by table, why the content of its files can't be read, by the first one of each."""
        errors: dict[str, SternaError] = {}
        for table, file in {file.table: file for file in files if file.size}.items():
            try:
                self.objects.require_readable(file.source)
            except ObjectMissing:
                continue
            except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
                errors[table] = attribute_fault(error, self.mapping, "reading its files", file.source, table)
        return errors

    def _folder(self, uri: str) -> Folder:
        place = self.mapping.locate(uri)
        id = place.location.credential_id
        return Folder(place.location, self.secrets(id) if id else None, place.path)


def _source_fault(file: CopyFile, size: int | None) -> TableError | None:
    if size is None:
        return SourceGone(
            "the file is gone at its source and was not copied before", table=file.table, file=file.source
        )
    if size != file.size:
        return SizeDiffers(
            f"the file has {size} bytes, its metadata says {file.size}", table=file.table, file=file.source
        )
    return None


def _error_for_file(error: SternaError, file: CopyFile) -> SternaError:
    """Return a store's error as the failure of one of the files that need it."""
    uri = error.file if isinstance(error, TableError) and error.file else file.source
    return type(error)(error.message, table=file.table, file=uri, hint=error.hint)


def _not_copied(file: CopyFile, reason: str, missing_count: int) -> SternaError:
    if missing_count:
        message = f"{missing_count} files were not copied though they are at their source: {reason}"
        return EngineError(message, table=file.table, file=file.source, hint="a later run resumes")
    return NotCopied(f"the file is at its source and did not arrive: {reason}", table=file.table, file=file.source)


def _capped_failures(failures: Iterable[SternaError]) -> tuple[SternaError, ...]:
    tables: dict[str, list[SternaError]] = defaultdict(list)
    for failure in failures:
        if len(tables[failure.table]) < _MAX_TABLE_FAILURES:
            tables[failure.table].append(failure)
    return tuple(failure for group in tables.values() for failure in group)
