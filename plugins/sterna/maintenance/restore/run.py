"""Restoring: what `main` held at an earlier commit is put on `main` again, in one commit.

Files are taken where they lie: at home, or as a region's copies, on which `main` goes on as after a promotion with
tables (`sterna.replication.failover.tables`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sterna.catalog.model import Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH, Region
from sterna.errors import OUTAGES, FilesGone, NoSuchMoment, NothingToRestore, UsageError, list_some
from sterna.maintenance.restore.commit import commit_restored
from sterna.maintenance.restore.files import (
    PlaceFault,
    ReplicaVersions,
    find_replica_versions,
    home_fault,
    replica_fault,
)
from sterna.maintenance.restore.model import HOME, RestoredTable, RestoreReport, RestoreRequest, Selected, Selection
from sterna.maintenance.restore.pins import Pins
from sterna.maintenance.restore.positions import find_rewound, write_rewound
from sterna.maintenance.restore.select import select
from sterna.maintenance.restore.summary import read_counts
from sterna.replication.replica.point_in_time import PastMain, read_past
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.tags import LOST_PREFIX


@dataclass(frozen=True)
class _Place:
    """Where a table's files are.

    Args:
        content: what `main` is to hold.
        source: `HOME`, or the region.
        not_at_home: why it isn't `HOME`; "" where it is, or wasn't looked at.
        rewinds: whole names of the channels whose applied position goes back.
    """

    content: Content
    source: str
    not_at_home: str = ""
    rewinds: tuple[str, ...] = ()


@dataclass
class _Search:
    """Where the tables' files are, as far as it was looked.

    Args:
        progress: receives a message a table.
        faults: by the key that each table gets, why a place isn't taken.
        places: where all files are.
        spare: where nothing but checksums of deletion vectors is wrong.
    """

    progress: Progress
    faults: dict[Key, dict[str, str]]
    places: dict[Key, _Place] = field(default_factory=dict)
    spare: dict[Key, _Place] = field(default_factory=dict)

    def add(self, target: Key, place: _Place, fault: PlaceFault | None) -> None:
        """Take down what was seen of a table at a place."""
        name, at_home = key_name(target), place.source == HOME
        if fault is None:
            self.places[target] = place
            self.progress(f"{name}: all files are {'at home' if at_home else f'in {place.source}'}")
            return
        self.faults[target][place.source] = fault.message
        if at_home:
            self.progress(f"{name}: not from home: {fault.message}")
        if fault.is_checksum:
            self.spare.setdefault(target, place)

    def take_spare(self) -> None:
        """Take a place with wrong checksums where none has right ones: the table's writer got them wrong."""
        for target in self.spare.keys() - self.places.keys():
            self.places[target] = self.spare[target]
            self.progress(f"{key_name(target)}: from {self.spare[target].source}: no place has right checksums")


def restore(
    context: RegionContext, request: RestoreRequest, progress: Progress, *, apply: bool, now: datetime | None = None
) -> RestoreReport:
    """Bring tables back as they were at an earlier commit of `main`; a dry run changes nothing.

    Args:
        context: the region that it is run for, whose copies are preferred.
        request: what is to be restored.
        progress: receives a message a table.
        apply: commit it.
        now: the time; default: the clock's.

    Raises:
        NoSuchMoment: the request's moment is none of `main`'s.
        NothingToRestore, TableLives: as `select`; or a residency rule keeps the tables where they were.
        FilesGone: no region has all files of a table; nothing was committed, or, where a clean-up of `main` deleted
            some meanwhile, the message says so.
        CatalogConflict: `main` changed what was to be replaced; nothing was committed.
        Busy: a clean-up deleted copies meanwhile; nothing was committed.
        CatalogError, StoreError, CredentialError: something doesn't answer. Where that is after the commit, the message
            says so.
    """
    _validate_source(context, request.source)
    started_at = now or datetime.now(UTC)
    past, old_contents, selection = _read_selection(context, request, started_at)
    _require_residency(context, selection)
    with Pins(started_at, progress) as pins:
        places = _find_files(context, request, past, selection.tables, progress, pins if apply else None)
        places |= _with_rewinds(context, past, selection.tables, places)
        is_change = apply and bool(selection.tables or selection.namespaces)
        if is_change:
            pins.require_intact()
            places = {target: _write_rewound(context, place, started_at) for target, place in places.items()}
        report = _report(context, past, selection, places)
        if not is_change:
            return report
        contents = {target: place.content for target, place in places.items()}
        copies = sum(place.source != HOME for place in places.values())
        report = commit_restored(context, request, old_contents, selection, contents, report, copies, progress)
        progress(f"{len(report.tables)} tables and views are back: commit {report.commit[:12]} on {SOURCE_BRANCH}")
        _require_files(context, selection.tables, places)
    return report


def _read_selection(
    context: RegionContext, request: RestoreRequest, now: datetime
) -> tuple[PastMain, dict[Key, Content], Selection]:
    """Return the commit of `main`, what it had, and what of that is to be restored.

    Raises:
        NoSuchMoment, NothingToRestore, TableLives: as `read_past` and `select`; where `main` has lost commits, the
            message names the branches that keep these.
    """
    try:
        past = read_past(context.primary, request.as_of, now)
        old_contents = dict(context.primary.entries(SOURCE_BRANCH, past.commit.hash))
        present = dict(context.primary.entries(SOURCE_BRANCH, past.head))
        return past, old_contents, select(request, old_contents, present)
    except (NoSuchMoment, NothingToRestore) as error:
        lost = [it.name for it in context.primary.references() if it.name.startswith(LOST_PREFIX)]
        if not lost:
            raise
        message = f"{error.message}; commits that main has lost are on {list_some(lost)}"
        raise type(error)(message, table=error.table, hint=error.hint) from error


def _find_files(
    context: RegionContext,
    request: RestoreRequest,
    past: PastMain,
    tables: Sequence[Selected],
    progress: Progress,
    pins: Pins | None,
) -> dict[Key, _Place]:
    """Return, by the key that each table gets, where all of its files are.

    Args:
        pins: keep what is found in a replica; None: nothing is to be committed.

    Raises:
        FilesGone: a table's files are nowhere; the message says of each place which one isn't.
        StoreUnreachable, StoreDenied, CredentialError: as `_look_at_home`.
    """
    search = _Search(progress, {selected.target: {} for selected in tables})
    if not request.takes_copies:
        if pins is not None and tables:
            pins.hold_home(context, past.commit.hash, [it.content.metadata_location or "" for it in tables])
        for selected in tables:
            search.add(selected.target, _Place(selected.content, HOME), _look_at_home(context, selected))
    for region in _regions(context, request.source):
        missing = [selected for selected in tables if selected.target not in search.places]
        if not missing:
            break
        versions = find_replica_versions(context, region, past, missing)
        if pins is not None:
            pins.hold(versions.context, {version.commit for version in versions.versions.values()})
        for selected in missing:
            _look_in_region(search, versions, selected, at_home=request.takes_copies)
    search.take_spare()
    if gone := [selected for selected in tables if selected.target not in search.places]:
        raise _files_gone(gone, search.faults)
    return search.places


def _look_in_region(search: _Search, versions: ReplicaVersions, selected: Selected, *, at_home: bool) -> None:
    """Look for a table's files among a region's copies.

    Args:
        at_home: where checksums are wrong, look whether they are right at home, which wasn't looked at.
    """
    context, faults, version = versions.context, search.faults[selected.target], versions.versions.get(selected.source)
    if version is None:
        faults[context.region.name] = versions.absent[selected.source]
        return
    fault = replica_fault(context, key_name(selected.source), version.content)
    if at_home and fault is not None and fault.is_checksum and _is_whole_at_home(context, selected):
        fault = replace(fault, is_checksum=False)
    search.add(selected.target, _Place(version.content, context.region.name, faults.get(HOME, "")), fault)


def _is_whole_at_home(context: RegionContext, selected: Selected) -> bool:
    """Return whether a table's files are seen to be at home, with right checksums."""
    try:
        return home_fault(context, key_name(selected.source), selected.content) is None
    except OUTAGES:
        return False


def _look_at_home(context: RegionContext, selected: Selected) -> PlaceFault | None:
    """Return why a table's files aren't all at home; None where they are.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: that can't be seen: `main` isn't put onto copies for that alone.
    """
    try:
        return home_fault(context, key_name(selected.source), selected.content)
    except OUTAGES as error:
        way = "--from REGION takes that region's copies, on which main goes on"
        raise type(error)(
            f"whether its files are at home can't be seen, and nothing was committed: {error.message}",
            table=key_name(selected.source),
            file=error.file,
            hint=f"{error.hint}; or {way}" if error.hint else way,
        ) from error


def _with_rewinds(
    context: RegionContext, past: PastMain, tables: Sequence[Selected], places: dict[Key, _Place]
) -> dict[Key, _Place]:
    """Return the places with the channels that each table rewinds."""
    return {
        selected.target: replace(place, rewinds=find_rewound(context, past, selected, place.content))
        for selected, place in ((selected, places[selected.target]) for selected in tables)
    }


def _write_rewound(context: RegionContext, place: _Place, now: datetime) -> _Place:
    """Return the place with a metadata.json that stops the channels that a table rewinds."""
    if not place.rewinds:
        return place
    return replace(place, content=write_rewound(context, place.content, place.rewinds, now))


def _files_gone(gone: Sequence[Selected], faults: dict[Key, dict[str, str]]) -> FilesGone:
    lines = []
    for selected in gone:
        reasons = "; ".join(f"{place}: {why}" for place, why in faults[selected.target].items())
        lines.append(f"{key_name(selected.target)}: {reasons}")
    return FilesGone(
        "no region has all files of what was to be restored; nothing was committed\n" + "\n".join(lines),
        table=key_name(gone[0].source),
        hint="another moment, see sterna restore --list; or name the tables that can be had",
    )


def _report(context: RegionContext, past: PastMain, selection: Selection, places: dict[Key, _Place]) -> RestoreReport:
    tables = []
    for selected in selection.tables:
        place, drop = places[selected.target], past.drops.get(selected.target)
        uri = place.content.metadata_location or ""
        counts = read_counts(context, place.content)
        tables.append(
            RestoredTable(
                key_name(selected.target),
                key_name(selected.source),
                selected.content.kind,
                uri,
                place.source,
                counts.rows,
                counts.data_files,
                (selected.present.metadata_location or "") if selected.present else "",
                past.changes.get(selected.target, 0),
                drop.commit_time.isoformat() if drop and selected.present is None else "",
                place.rewinds,
                place.not_at_home,
            )
        )
    return RestoreReport(
        context.region.name,
        past.commit.hash,
        past.commit.commit_time.isoformat(),
        tuple(tables),
        tuple(key_name(put.key) for put in selection.namespaces),
        selection.left,
    )


def _require_files(context: RegionContext, tables: Sequence[Selected], places: dict[Key, _Place]) -> None:
    """See that the files are still there: a clean-up may have begun before they were `main`'s again.

    Raises:
        FilesGone: one isn't, or that can't be seen.
    """
    for selected in tables:
        fault = _present_fault(context, key_name(selected.source), places[selected.target])
        if fault is not None and not fault.is_checksum:
            raise FilesGone(
                f"it was restored, and not all of its files are seen to be there any more: {fault.message}",
                table=key_name(selected.target),
                hint="a clean-up may have deleted them meanwhile: --over --from REGION takes that region's copies",
            )


def _present_fault(context: RegionContext, name: str, place: _Place) -> PlaceFault | None:
    if place.source != HOME:
        return replica_fault(context.of_region(context.registry.region(place.source)), name, place.content)
    try:
        return home_fault(context, name, place.content)
    except OUTAGES as error:
        return PlaceFault(str(error))


def _require_residency(context: RegionContext, selection: Selection) -> None:
    """Refuse a new name under which a table could reach a region that a rule keeps it out of.

    Raises:
        NothingToRestore: there is such a region.
    """
    for selected in selection.tables:
        old, new = key_name(selected.source), key_name(selected.target)
        for region in context.registry.region_names:
            reason = context.registry.exclusion_reason(old, region, namespace=True)
            if reason and not context.registry.exclusion_reason(new, region, namespace=True):
                raise NothingToRestore(
                    f"as {new} it could reach {region}, where {old} may not be: {reason}",
                    table=old,
                    hint="choose a name that the same rule covers",
                )


def _validate_source(context: RegionContext, source: str) -> None:
    names = (HOME, *context.registry.region_names)
    if source and source not in names:
        raise UsageError(f"files are taken from {', '.join(names)}, not from {source}")


def _regions(context: RegionContext, source: str) -> list[Region]:
    """Return the regions whose copies are taken, this one first."""
    own = context.region
    regions = [own, *(region for region in context.registry.regions if region.name != own.name)]
    return [region for region in regions if source in ("", region.name)]
