"""The second stage of a sync.

Foreign content files are copied to their places here, and every one is proven present.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sterna.edges.rclone.transfer import Folder, Transfer, copy_files
from sterna.edges.secrets import Secrets
from sterna.edges.stores.objects import Objects
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
from sterna.registry.folders import BANDWIDTH, own_folder
from sterna.registry.mapping import Mapping
from sterna.registry.model import inside
from sterna.sync.blame import fault_of
from sterna.sync.sizes import Dark, source_sizes

DEFAULT_DEADLINE = 6 * 3600.0  # seconds
_KEPT_FAILURES = 100
_TRIES = 2


@dataclass(frozen=True)
class CopyFile:
    """A foreign content file that a table needs here.

    Args:
        table: the table's key.
        source: its URI on `main`.
        target: its place here.
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
    deadline: float = DEFAULT_DEADLINE,
    anew: bool = False,
    dark: Dark | None = None,
) -> CopyResult:
    """Copy files to their places here and prove every one of them present with its size.

    Args:
        files: what to copy; a target that stands there twice is copied once.
        mapping: finds both sides.
        secrets: finds their credentials.
        objects: looks at what arrived.
        progress: called now and then.
        deadline: seconds after which the copy is ended.
        anew: send every file, whatever stands in its place (for `repair` alone).
        dark: stores that don't answer, which are not asked again; takes those that are found.

    Returns:
        What was copied, and the files that can't be: they are gone or other than their metadata says, or the store that
        they come from can't be used.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
        EngineError: rclone can't run, or the deadline passed; doing it again sends nothing twice that arrived.
    """
    end = time.monotonic() + deadline
    run = CopyRun(mapping, secrets, objects, progress, end, files, {} if dark is None else dark)
    # An earlier try may have sent some of them, and been killed.
    there = objects.sizes({file.target for file in files})
    here = {} if anew else there
    root = mapping.region.replica_root
    right = {file.target for file in files if here.get(file.target) == file.size}
    wanted = [file for file in files if here.get(file.target) != file.size]
    failures = run.misplaced(wanted)
    failures |= run.blame([file for file in wanted if file.target in right])
    originals = (file for file in wanted if here.get(file.target) is not None and not inside(file.target, root))
    failures |= {(file.table, file.target): other_original(file) for file in originals}
    missing, sent = {file.target: file for file in wanted if (file.table, file.target) not in failures}, 0
    for last in (attempt == _TRIES - 1 for attempt in range(_TRIES if missing else 0)):
        transfers, failed = run.send(missing.values(), sent)
        sent += sum(transfer.bytes for transfer in transfers)
        sizes = objects.sizes(missing)
        suspects = [file for file in files if file.target in missing and sizes[file.target] != file.size]
        # A size that is right for one table's metadata is wrong for another's that says otherwise.
        failed |= run.blame([file for file in suspects if (file.table, file.target) not in failed])
        failures |= failed
        # What one table's trouble explains may be another's, too, which has none.
        missing = {file.target: file for file in suspects if (file.table, file.target) not in failures}
        if not missing:
            break
        if last:
            failures = run.unexplained(missing, transfers) | failures
    bad = {target for _, target in failures}
    good = {file.target: file.size for file in files if file.target not in bad}
    return CopyResult(len(good), sum(good.values()), sent, _kept(failures.values()), len(failures))


def other_original(file: CopyFile) -> SizeDiffers:
    """Return the fault of a file in whose place, outside the replica root, another one stands.

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
    dark: Dark = field(default_factory=dict)

    def misplaced(self, files: Iterable[CopyFile]) -> _Failures:
        """Return the failures of files that would be copied to where they don't belong."""
        return {
            (file.table, file.target): UnsafeUri(
                f"the copy would go to {file.target}, which is not its place", table=file.table, file=file.source
            )
            for file in files
            if file.target != self.mapping.content(file.source)
        }

    def by_origin(self, files: Iterable[CopyFile]) -> list[list[CopyFile]]:
        groups: dict[tuple[str, str], list[CopyFile]] = defaultdict(list)
        for file in files:
            name = self._name(file)
            groups[file.source.removesuffix(name), file.target.removesuffix(name)].append(file)
        return [groups[folders] for folders in sorted(groups)]

    def _name(self, file: CopyFile) -> str:
        """Return the path that a file has below both its folders.

        That below the prefix of the location where it was born.
        """
        return self.mapping.locate(self.mapping.source(file.source)).path

    def send(self, files: Iterable[CopyFile], before: int) -> tuple[list[Transfer], _Failures]:
        """Run rclone over files, origin by origin; what can't be used of the origins fails the tables that need it."""
        transfers: list[Transfer] = []
        failures: _Failures = {}
        for group in self.by_origin(files):
            # Asked first, as the region's own was, so that a dark or closed store is named at once and by its address,
            # not by rclone after all its retries. Who may not read one table's files may read another's.
            firsts = {file.table: file for file in reversed(group)}
            _, closed = source_sizes(self.objects, [(file.table, file.source) for file in firsts.values()], self.dark)
            tables = {table: error for (table, _), error in closed.items()}
            failures |= self._failed([file for file in group if file.table in tables], tables)
            if left := [file for file in group if file.table not in tables]:
                try:
                    transfers.append(self.copy(left, before))
                except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
                    fault = fault_of(error, self.mapping, "copying", left[0].source, left[0].table)
                    failures |= self._failed(left, {file.table: fault for file in left})
        return transfers, failures

    def _failed(self, files: Sequence[CopyFile], errors: dict[str, SternaError]) -> _Failures:
        """Return the failure of each of some files, for all tables that need them."""
        why = {file.target: errors[file.table] for file in files}
        return {(file.table, file.target): _at(why[file.target], file) for file in self.files if file.target in why}

    def copy(self, files: list[CopyFile], before: int) -> Transfer:
        """Run rclone over files of one origin; its failure is judged by what arrived."""
        names = [self._name(file) for file in files]
        origin, replica = (self._folder(uri.removesuffix(f"/{names[0]}")) for uri in (files[0].source, files[0].target))
        size, count = (
            sum({file.target: file.size for file in self.files}.values()),
            len({file.target for file in self.files}),
        )
        return copy_files(
            origin,
            replica,
            names,
            progress=lambda sent, done: self.progress(CopyProgress(done, min(before + sent, size), count, size)),
            deadline=max(self.end - time.monotonic(), 0.0),
            leases=self._folder(own_folder(self.mapping.region.replica_root, BANDWIDTH)),
        )

    def blame(self, suspects: Sequence[CopyFile]) -> _Failures:
        """Return the failures of files whose source explains why they didn't arrive."""
        sizes, closed = source_sizes(self.objects, [(file.table, file.source) for file in suspects], self.dark)
        found: _Failures = {}
        for file in suspects:
            if error := closed.get((file.table, file.source)):
                found[file.table, file.target] = _at(error, file)
            elif fault := _fault(file, sizes[file.source]):
                found[file.table, file.target] = fault
        return found

    def unexplained(self, missing: dict[str, CopyFile], transfers: list[Transfer]) -> _Failures:
        """Return a failure for each file that is at its source and did not arrive.

        A store may tell sizes and refuse contents. Where nothing arrived at all below the replica root it isn't the
        files, and time may cure it. Elsewhere in the region sterna may have no right to write.
        """
        said = next((transfer.errors for transfer in transfers if transfer.errors), "rclone reported no error")
        root = self.mapping.region.replica_root
        nothing = missing.keys() >= {file.target for file in self.files} and any(
            inside(target, root) for target in missing
        )
        closed = self._closed(missing.values())
        return {
            (file.table, file.target): _at(closed[file.table], file)
            if file.table in closed
            else _not_copied(file, said, len(missing) if nothing else 0)
            for file in self.files
            if file.target in missing
        }

    def _closed(self, files: Iterable[CopyFile]) -> dict[str, SternaError]:
        """Return, by table, why the content of its files can't be read, as the first one of each tells."""
        found: dict[str, SternaError] = {}
        for table, file in {file.table: file for file in files if file.size}.items():
            try:
                self.objects.prove_readable(file.source)
            except ObjectMissing:
                continue
            except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
                found[table] = fault_of(error, self.mapping, "reading its files", file.source, table)
        return found

    def _folder(self, uri: str) -> Folder:
        place = self.mapping.locate(uri)
        id = place.location.credential_id
        return Folder(place.location, self.secrets(id) if id else None, place.path)


def _fault(file: CopyFile, size: int | None) -> TableError | None:
    if size is None:
        return SourceGone(
            "the file is gone at its source and was not copied before", table=file.table, file=file.source
        )
    if size != file.size:
        return SizeDiffers(
            f"the file has {size} bytes, its metadata says {file.size}", table=file.table, file=file.source
        )
    return None


def _at(error: SternaError, file: CopyFile) -> SternaError:
    """Return a store's error as the failure of one of the files that need it."""
    at = error.file if isinstance(error, TableError) and error.file else file.source
    return type(error)(error.message, table=file.table, file=at, hint=error.hint)


def _not_copied(file: CopyFile, said: str, with_all: int) -> SternaError:
    if with_all:
        message = f"{with_all} files were not copied though they are at their source: {said}"
        return EngineError(message, table=file.table, file=file.source, hint="a later run resumes")
    return NotCopied(f"the file is at its source and did not arrive: {said}", table=file.table, file=file.source)


def _kept(failures: Iterable[SternaError]) -> tuple[SternaError, ...]:
    tables: dict[str, list[SternaError]] = defaultdict(list)
    for failure in failures:
        if len(tables[failure.table]) < _KEPT_FAILURES:
            tables[failure.table].append(failure)
    return tuple(failure for group in tables.values() for failure in group)
