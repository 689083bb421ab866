"""The second stage of a sync.

Foreign content files are copied to their places here, and every one is proven present.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from sterna.config.mapping import Mapping
from sterna.config.registry.folders import BANDWIDTH, state_folder
from sterna.config.registry.model import is_inside
from sterna.config.secrets import Secrets
from sterna.errors import (
    OUTAGES,
    EngineError,
    NotCopied,
    ObjectMissing,
    RegistryError,
    SourceGone,
    SternaError,
    UnsafeUri,
)
from sterna.replication.execution.copy_file import (
    CopyFile,
    error_for_file,
    not_copied,
    original_mismatch,
    source_fault,
)
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.source_regions import SourceOrder, SourceRegions
from sterna.replication.execution.source_sizes import Unavailable, source_sizes
from sterna.storage.objects import Objects
from sterna.storage.rclone.transfer import Folder, Transfer, copy_files

DEFAULT_DEADLINE_SECONDS = 6 * 3600.0  # seconds
_COPIES_STALL_SECONDS = 300.0  # without a byte, after which other sources of the files are used
_MAX_TABLE_FAILURES = 100
_MAX_ATTEMPTS = 2
_CURABLE_ELSEWHERE = (*OUTAGES, SourceGone, NotCopied)
"""Faults of an origin that a copy elsewhere makes up for. Another size is none: there `main` and its file differ."""
_log = logging.getLogger(__name__)


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
        sent_from: by region, how many of the bytes sent are copies that other regions keep; the rest are origins.
    """

    files: int
    bytes: int
    sent: int
    failures: tuple[SternaError, ...] = ()
    failed: int = 0
    sent_from: AbstractMapping[str, int] = field(default_factory=dict)


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
    order: SourceOrder = SourceOrder(),  # noqa: B008
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
        order: the regions whose copies are sent where they are there with their sizes.

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
    missing = {file.target: file for file in pending if (file.table, file.target) not in failures}
    for region in order.preferred:
        missing = run.send_copies(region, missing, failures)
    failures = run.send_origins(missing, failures)
    for region in order.fallbacks:
        failures = run.send_fallbacks(region, failures)
    failed_targets = {target for _, target in failures}
    proven = {file.target: file.size for file in files if file.target not in failed_targets}
    return CopyResult(
        len(proven),
        sum(proven.values()),
        run.sent.total(),
        _capped_failures(failures.values()),
        len(failures),
        {region: size for region, size in run.sent.items() if region and size},
    )


_Failures = dict[tuple[str, str], SternaError]
"""By table and target, why a file could not be copied."""


@dataclass(frozen=True)
class CopyRun:
    """What copying one batch needs.

    Args:
        sent: by region, the bytes that were sent of its copies; of origins under "".
    """

    mapping: Mapping
    secrets: Secrets
    objects: Objects
    progress: Callable[[CopyProgress], None]
    end: float
    files: Sequence[CopyFile]
    unavailable: Unavailable = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)

    @cached_property
    def regions(self) -> SourceRegions:
        """Where the regions have their copies."""
        return SourceRegions(self.mapping)

    def send_origins(self, missing: dict[str, CopyFile], failures: _Failures) -> _Failures:
        """Send files from their origins.

        Args:
            missing: by target, a file that is to be sent.
            failures: those of other files, or of the same ones for other tables.

        Returns:
            All failures.
        """
        for attempt in range(_MAX_ATTEMPTS if missing else 0):
            transfers, failed = self.send(missing.values())
            incomplete = self.incomplete(missing)
            # A size that is right by one table's metadata is wrong by another's that has a different one.
            failed |= self.source_failures([file for file in incomplete if (file.table, file.target) not in failed])
            failures |= failed
            # A file that fails for one table may be needed by another one that has no fault.
            missing = {file.target: file for file in incomplete if (file.table, file.target) not in failures}
            if not missing:
                break
            if attempt == _MAX_ATTEMPTS - 1:
                failures = self.unexplained_failures(missing, transfers) | failures
        return failures

    def send_copies(
        self, region: str, missing: dict[str, CopyFile], failures: Collection[tuple[str, str]]
    ) -> dict[str, CopyFile]:
        """Send the copies that a region has with the right sizes; return, by target, what is still missing.

        Args:
            region: its name.
            missing: by target, a file that is to be sent.
            failures: tables and targets that nothing more is done for.
        """
        copies = [
            replace(file, source=uri)
            for file in missing.values()
            if (uri := self.regions.copy_uri(region, file.table, file.source))
        ]
        sizes, errors = source_sizes(self.objects, [(copy.table, copy.source) for copy in copies], self.unavailable)
        for error in [*errors.values()][:1]:
            _log.warning("copies in %s can't be used: %s", region, error)
        present = [copy for copy in copies if sizes.get(copy.source) == copy.size]
        if not present:
            return missing
        for group in self.group_by_origin(present):
            try:
                transfers, _ = self._send_group(group, region)
            except (*OUTAGES, RegistryError, EngineError) as error:
                if time.monotonic() >= self.end:
                    raise
                # No reason to stop: the origin is left. Where it is about this region's own store, the next look tells.
                _log.warning("copies in %s can't be used: %s", region, error)
            else:
                for errors_text in filter(None, (transfer.errors for transfer in transfers)):
                    _log.warning("not all copies in %s were sent: %s", region, errors_text)
        return {file.target: file for file in self.incomplete(missing) if (file.table, file.target) not in failures}

    def send_fallbacks(self, region: str, failures: _Failures) -> _Failures:
        """Send a region's copies of files that could not be copied from their origins; return the failures left."""
        candidates = {key for key, error in failures.items() if isinstance(error, _CURABLE_ELSEWHERE)}
        # Only an origin replaces what is there: other tables may have it with that size, published ones too.
        sizes = self.objects.sizes({target for _, target in candidates})
        curable = {key for key in candidates if sizes[key[1]] is None}
        missing = {file.target: file for file in self.files if (file.table, file.target) in curable}
        left = self.send_copies(region, missing, failures.keys() - curable)
        return {key: error for key, error in failures.items() if key not in curable or key[1] in left}

    def incomplete(self, missing: Collection[str]) -> list[CopyFile]:
        """Return the files, those of each table, that aren't at some targets with their sizes."""
        sizes = self.objects.sizes(missing)
        return [file for file in self.files if file.target in missing and sizes[file.target] != file.size]

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

    def send(self, files: Iterable[CopyFile]) -> tuple[list[Transfer], _Failures]:
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
                sent, failed = self._send_group(remaining)
                transfers += sent
                failures |= failed
        return transfers, failures

    def _send_group(self, files: list[CopyFile], region: str = "") -> tuple[list[Transfer], _Failures]:
        """Run rclone over files of one folder.

        Args:
            region: whose copies they are; "": origins.
        """
        try:
            transfer = self.copy(files, _COPIES_STALL_SECONDS if region else None)
        except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
            fault = attribute_fault(error, self.mapping, "copying", files[0].source, files[0].table)
            return [], self._failures_of(files, {file.table: fault for file in files})
        self.sent[region] += transfer.bytes
        return [transfer], {}

    def _failures_of(self, files: Sequence[CopyFile], errors: dict[str, SternaError]) -> _Failures:
        """Return the failure of each of some files, for all tables that need them."""
        target_errors = {file.target: errors[file.table] for file in files}
        return {
            (file.table, file.target): error_for_file(target_errors[file.target], file)
            for file in self.files
            if file.target in target_errors
        }

    def copy(self, files: list[CopyFile], stall: float | None) -> Transfer:
        """Run rclone over files of one origin; its failure is judged by what arrived."""
        names = [self._relative_path(file) for file in files]
        origin, replica = (self._folder(uri.removesuffix(f"/{names[0]}")) for uri in (files[0].source, files[0].target))
        target_sizes = {file.target: file.size for file in self.files}
        size, count, sent_before = sum(target_sizes.values()), len(target_sizes), self.sent.total()
        return copy_files(
            origin,
            replica,
            names,
            progress=lambda sent, done: self.progress(CopyProgress(done, min(sent_before + sent, size), count, size)),
            timeout=max(self.end - time.monotonic(), 0.0),
            stall=stall,
            leases=self._folder(state_folder(self.mapping.region.replica_root, BANDWIDTH)),
        )

    def source_failures(self, files: Sequence[CopyFile]) -> _Failures:
        """Return the failures of files whose source explains why they didn't arrive."""
        sizes, errors = source_sizes(self.objects, [(file.table, file.source) for file in files], self.unavailable)
        failures: _Failures = {}
        for file in files:
            if error := errors.get((file.table, file.source)):
                failures[file.table, file.target] = error_for_file(error, file)
            elif fault := source_fault(file, sizes[file.source]):
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
            (file.table, file.target): error_for_file(errors[file.table], file)
            if file.table in errors
            else not_copied(file, reason, len(missing) if none_arrived else 0)
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


def _capped_failures(failures: Iterable[SternaError]) -> tuple[SternaError, ...]:
    tables: dict[str, list[SternaError]] = defaultdict(list)
    for failure in failures:
        if len(tables[failure.table]) < _MAX_TABLE_FAILURES:
            tables[failure.table].append(failure)
    return tuple(failure for group in tables.values() for failure in group)
