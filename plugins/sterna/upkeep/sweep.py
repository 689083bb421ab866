"""A sweep: of a region's own files of `main`, what nothing needs goes once it has been so for long enough."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sterna.cleaning.deleting import Garbage, Tally
from sterna.cleaning.files import Files, chunks, filtered, table, total, without
from sterna.cleaning.model import NOTHING, Amount, refuse_short
from sterna.cleaning.passes import found_by_all, older, read_passes, save_pass
from sterna.errors import SternaError, TableError, UpkeepBlocked, UsageError
from sterna.ha.certain import refuse_other_epoch
from sterna.registry.model import canonical, inside
from sterna.registry.sweeping import may_sweep, swept_locations
from sterna.replica.ids import SWEEP_ID, new_id
from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep
from sterna.upkeep.facts import Facts
from sterna.upkeep.gather import References, gather
from sterna.upkeep.horizon import Block, horizon
from sterna.upkeep.needed import Needed
from sterna.upkeep.records import forget_older, save_swept, store_time, sweep_folder
from sterna.upkeep.results import Folder, Swept

_FOLDERS = 20
_DEPTH = 2  # names below a location's prefix that tell a folder from others
_LEASE_SECONDS = 30.0  # of deleting after a look at all references
# What writers of tables call their files; whatever else lies in a bucket is no table's.
_ENDINGS = (".parquet", ".orc", ".avro", ".puffin", ".stats", ".metadata.json", ".metadata.json.gz")


def sweep(
    context: RegionContext,
    settings: Upkeep,
    *,
    delete: bool,
    spared: Collection[str] = (),
    progress: Callable[[str], None] = lambda line: None,
    now: datetime | None = None,
) -> Swept:
    """Find what nothing needs in a region's own locations that the registry opts in, and delete it where asked.

    A file is deleted when no version of a table that is needed reaches it, every pass since one that is at least the
    settings' grace old found it so, and the file itself is as old.

    Args:
        context: the region.
        settings: of upkeep.
        delete: delete; otherwise only say what would be, and write it down for later.
        spared: URI prefixes below which nothing is a table's file, whatever its name: the inboxes of ingestion.
        progress: called with lines for people.
        now: the time; default: by the clock of the region's store.

    Raises:
        UsageError: no location of the region is opted in, or the grace is too short.
        UpkeepBlocked: a region has to be waited for, a file that is needed can't be read, or who is the primary isn't
            certain: nothing is deleted.
        Busy: the primary was switched meanwhile.
        CatalogError, StoreError: something doesn't answer; a later run goes on.
        EngineError: very much is reached, and there is no room on local disk for it; a later run goes on.
    """
    grace = timedelta(seconds=settings.grace)
    refuse_short(grace)
    _refuse_nothing(context)
    began = now or datetime.now(UTC)
    pass_id = new_id(began, SWEEP_ID)
    began = now or min(began, store_time(context, pass_id) or began)
    facts, references = gather(context, settings, began)
    found = horizon(facts, patience=timedelta(seconds=settings.patience), without=settings.left_out)
    _refuse_blocked(found.blocks)
    needed = Needed(context, progress)
    needed.of(found)
    listed = _listed(context, needed, spared)
    needed.news(references.look())
    unreachable = Files(without(listed.unreachable.parts(), needed.files))
    passes = read_passes(context, sweep_folder(context), began - grace)
    doomed = found_by_all(Files(older(part, began - grace) for part in unreachable.parts()), passes)
    report = report_of(context, pass_id, facts, listed, unreachable, doomed, delete=delete)
    remaining, stopped = unreachable, None
    if delete:
        tally = _Deletion(context, settings.gone, facts.epoch, references, needed, progress).run(doomed)
        stopped = tally.stopped
        report = replace(report, deleted=tally.done, failed=tally.failed, failures=tally.failures)
        remaining = tally.remaining(unreachable, needed.files)
    save_pass(context, sweep_folder(context), pass_id, remaining)
    if stopped:  # with its record: else what can't be deleted would be all that later passes have in common
        raise stopped
    report = replace(report, left=remaining.amount)
    save_swept(context, report)
    if delete:
        forget_older(context, passes)
    return report


@dataclass
class _Listed:
    objects: Amount
    strange: Amount
    unreachable: Files


@dataclass
class _Deletion:
    """A deletion that is under way: each part of it after a fresh look at who the primary is, and at all references."""

    context: RegionContext
    gone: Collection[str]
    epoch: str
    references: References
    needed: Needed
    progress: Callable[[str], None]

    def run(self, doomed: Files) -> Tally:
        tally, garbage = Tally(), Garbage(doomed.parts(), self.needed.files)
        while garbage.more():
            refuse_other_epoch(self.context, self.gone, self.epoch)
            self.needed.news(self.references.look())
            if not garbage.more():
                break
            garbage.delete_part(tally, partial(self._delete, time.monotonic() + _LEASE_SECONDS))
            self.progress(str(tally))
        return tally

    def _delete(self, lease: float, uris: Sequence[str]) -> dict[str, SternaError]:
        return self.context.objects.sweep(uris, proceed=lambda: time.monotonic() < lease)


def _refuse_nothing(context: RegionContext) -> None:
    if not swept_locations(context.mapping):
        raise UsageError(
            f"no location of region {context.region.name} may be swept",
            hint="sweep: true at a location of the registry says that all tables' files there are this catalog's",
        )


def _refuse_blocked(blocks: tuple[Block, ...]) -> None:
    if blocks:
        said = "; ".join(f"{block.region}: {block.reason}" for block in blocks)
        raise UpkeepBlocked(
            f"nothing is deleted while a region has to be waited for: {said}",
            hint="bring it up to date, or name it in the services file: in upkeep.without if it has no replica, in "
            "upkeep.gone if it is gone for good",
        )


def _listed(context: RegionContext, needed: Needed, spared: Collection[str]) -> _Listed:
    """List this region's locations that are swept, and tell what of it isn't needed."""
    objects = strange = NOTHING
    unreachable = Files()
    for location in swept_locations(context.mapping):
        own = _Here(context, location.id, spared)
        for chunk in chunks(context.objects.list(location.prefix)):
            here = [item for item in chunk if own.has(item[0])]
            files = [item for item in here if item[0].endswith(_ENDINGS)]
            objects += total(here)
            strange += total(here) - total(files)
            unreachable.add(table(filtered(files, needed.files, wanted=False)))
    return _Listed(objects, strange, unreachable)


class _Here:
    """Tells whether an object belongs to a location, and not to one within it, nor to what is sterna's."""

    def __init__(self, context: RegionContext, id: str, spared: Collection[str]) -> None:
        self._mapping, self._id = context.mapping, id
        self._spared = [canonical(prefix) for prefix in spared]
        self._folders: dict[str, bool] = {}

    def has(self, uri: str) -> bool:
        folder, _, name = uri.rpartition("/")
        if not self._mapping.like_its_folder(uri, name):
            return self._look_up(uri)
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._look_up(uri)
        return known

    def _look_up(self, uri: str) -> bool:
        try:
            location = self._mapping.locate(uri).location
        except TableError:
            return False  # it has a name that nobody could follow: whoever made it takes it away
        if any(inside(canonical(uri), prefix) for prefix in self._spared):
            return False
        return location.id == self._id and may_sweep(self._mapping, uri, location)


def report_of(
    context: RegionContext,
    pass_id: str,
    facts: Facts,
    listed: _Listed,
    unreachable: Files,
    doomed: Files,
    *,
    delete: bool,
) -> Swept:
    """Return what was found, before anything is deleted."""
    return Swept(
        region=context.region.name,
        pass_id=pass_id,
        dry_run=not delete,
        at=facts.now.isoformat(),
        main=facts.head,
        epoch=facts.epoch,
        locations=tuple(location.id for location in swept_locations(context.mapping)),
        objects=listed.objects,
        strange=listed.strange,
        unreachable=unreachable.amount,
        garbage=doomed.amount,
        folders=_folders(context, doomed if doomed.amount.files else unreachable),
    )


def _folders(context: RegionContext, files: Files) -> tuple[Folder, ...]:
    """Return where most of some files is: so that a person sees what he may not have meant."""
    prefixes = [location.prefix for location in swept_locations(context.mapping)]
    found: dict[str, Amount] = defaultdict(Amount)
    for part in files.parts():
        for uri, size in zip(part.column("uri").to_pylist(), part.column("size").to_pylist(), strict=True):
            prefix = max((each for each in prefixes if uri.startswith(f"{each}/")), key=len)
            names = uri[len(prefix) + 1 :].split("/")[:-1][:_DEPTH]
            found["/".join((prefix, *names))] += Amount(1, size)
    largest = sorted(found.items(), key=lambda item: (-item[1].bytes, item[0]))
    return tuple(Folder(uri, garbage) for uri, garbage in largest[:_FOLDERS])
