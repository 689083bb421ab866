"""What is garbage: pure, from a listing, from what is reached, and from what earlier passes found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sterna.cleaning.files import Files, Listed, chunks, filtered, table, total
from sterna.cleaning.model import Amount
from sterna.cleaning.passes import Pass, found_by_all, older
from sterna.errors import TableError
from sterna.registry import folders
from sterna.registry.edition import split_edition
from sterna.registry.folders import COLLECT, FEATURES, FLOWS, RUNS, SWEEP, own_folder, own_place, own_root
from sterna.registry.mapping import Mapping
from sterna.registry.run_names import is_working
from sterna.replica.reach import ReachedFiles
from sterna.replica.transit import round_uri

FILE, EVIDENCE, LETTER, STRANGE = "file", "evidence", "letter", "strange"


@dataclass(frozen=True)
class Rules:
    """What the decision depends on beside the files.

    Args:
        mapping: the region's mapping.
        ids: ids of the locations whose files stand below the replica root, those that the registry no longer has
            included.
        now: the time.
        keep, grace: as in `Options`.
        passes: earlier passes, oldest first: the newest that is at least `grace` old, and all after it; empty where
            none is so old.
        moving: since when a table is in transit: files that are younger may be its, however long that takes. None where
            none is.
    """

    mapping: Mapping
    ids: frozenset[str]
    now: datetime
    keep: timedelta
    grace: timedelta
    passes: Sequence[Pass] = ()
    moving: datetime | None = None

    def kind(self, uri: str) -> str:
        """Tell what an object is by its place.

        A file of tables, evidence of runs or passes, a dead letter, which waits for an operator, or nothing that sterna
        writes.
        """
        root = f"{self.mapping.region.replica_root}/"
        if not uri.startswith(root):
            return STRANGE
        first, *rest = split_edition(uri.removeprefix(root))[1].split("/")
        own = own_place([first, *rest])
        if own is not None:
            return _kind_of_own(own)
        if not rest or first.partition("~")[0] not in self.ids:
            return STRANGE
        try:
            self.mapping.locate(uri)
        except TableError:
            return STRANGE
        return FILE

    def working(self, uri: str) -> bool:
        """Tell whether the stages of a run hand an object on to one another."""
        runs = f"{own_folder(self.mapping.region.replica_root, RUNS)}/"
        return uri.startswith(runs) and is_working(uri.removeprefix(runs).partition("/")[2])

    def spent(self, uri: str, modified: datetime) -> bool:
        """Tell whether evidence is older than `keep`, and no record of a pass that is still needed.

        What the stages of a run hand on to one another has had its time after `grace`.
        """
        root = self.mapping.region.replica_root
        folders_of_state = (f"{own_folder(root, name)}/" for name in (SWEEP, FEATURES, FLOWS))
        if uri.startswith((*folders_of_state, round_uri(self.mapping.region))):
            # A sweep knows which of its records it needs, a view may stand still for long, a flow may fail for long and
            # would look well without its file, a round begins any time.
            return False
        if self.working(uri):
            return modified <= self.now - min(self.grace, self.keep)
        is_pass = uri.startswith(f"{own_folder(root, COLLECT)}/")
        needed = is_pass and (not self.passes or modified >= self.passes[0].at)
        return not needed and modified <= self.now - self.keep


def _kind_of_own(place: Sequence[str]) -> str:
    """Tell what an object is that sterna wrote down for itself."""
    folder = place[0] if place else ""
    if folder == folders.HELD:
        return FILE if len(place) == 2 else STRANGE
    if folder == folders.DEAD:
        return LETTER if len(place) == 3 else STRANGE
    return EVIDENCE if len(place) > 1 and folder in folders.EVIDENCE else STRANGE


@dataclass
class SortedOut:
    """What lies below a replica root.

    Args:
        objects: everything.
        strange: what sterna did not write.
        evidence: what runs and passes wrote down.
        superseded: metadata.json that older heads alone name.
        unreachable: what no kept head reaches.
        refused: what only refused tables reach.
    """

    objects: Amount
    strange: Amount
    unreachable: Files
    refused: Files
    evidence: Amount
    superseded: Amount


def sort_out(
    listing: Iterable[Listed],
    rules: Rules,
    kept: ReachedFiles,
    refused: ReachedFiles,
    superseded: Collection[str] = frozenset(),
) -> SortedOut:
    """Tell what is reachable of a listing.

    Args:
        listing: everything below the replica root.
        rules: what else it depends on.
        kept: what kept heads reach.
        refused: what refused tables reach; what is kept is kept nevertheless.
        superseded: metadata.json that is kept for older heads alone.
    """
    objects = strange = evidence = superseded_ones = Amount()
    unreachable, only_refused = Files(), Files()
    for chunk in chunks(listing):
        objects += Amount(len(chunk), sum(size for _, size, _ in chunk))
        kinds = [rules.kind(uri) for uri, _, _ in chunk]
        strange += total(item for item, kind in zip(chunk, kinds, strict=True) if kind == STRANGE)
        evidence += total(item for item, kind in zip(chunk, kinds, strict=True) if kind == EVIDENCE)
        superseded_ones += total(item for item in chunk if item[0] in superseded)
        files = [item for item, kind in zip(chunk, kinds, strict=True) if kind == FILE]
        spent = [
            item for item, kind in zip(chunk, kinds, strict=True) if kind == EVIDENCE and rules.spent(item[0], item[2])
        ]
        lost = filtered(files, kept, wanted=False)
        only_refused.add(table(filtered(lost, refused, wanted=True)))
        # No head names evidence; if one should, it stays.
        unreachable.add(table(filtered([*lost, *filtered(spent, kept, wanted=False)], refused, wanted=False)))
    return SortedOut(objects, strange, unreachable, only_refused, evidence, superseded_ones)


def garbage(unreachable: Files, rules: Rules) -> Files:
    """Return what may be deleted of the unreachable.

    Older than `grace`, and unreachable in every pass since one that is as old. While a table is in transit nothing that
    may have been brought for it. What stages of a run hand on to one another waits for no pass: nobody but a living run
    reads it, and that would read at the source.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    moving = pa.scalar(rules.moving or rules.now, pa.timestamp("us", "UTC"))
    waiting, found = Files(), Files()
    for part in unreachable.parts():
        old = older(part, rules.now - rules.grace)
        at_work = pa.array([rules.working(uri) for uri in old.column("uri").to_pylist()], pa.bool_())
        waiting.add(old.filter(pc.invert(at_work)))
        found.add(old.filter(pc.and_(at_work, pc.less(old.column("modified"), moving))))
    for part in found_by_all(waiting, rules.passes).parts():
        written = pc.starts_with(part.column("uri"), own_root(rules.mapping.region.replica_root))
        found.add(part.filter(pc.or_(written, pc.less(part.column("modified"), moving))))
    return found
