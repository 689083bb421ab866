"""What is garbage: pure, from a listing, from what is reached, and from what earlier passes found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sterna.config.mapping import Mapping
from sterna.config.metadata_names import without_digest
from sterna.config.registry import folders
from sterna.config.registry.fingerprint import split_metadata_version
from sterna.config.registry.folders import (
    DELAYS,
    FEATURES,
    GC,
    RUNS,
    SWEEP,
    TRANSFORMS,
    VERBATIM,
    state_folder,
    state_path,
    state_root,
)
from sterna.config.registry.replica_paths import folder_location, split_replica_path
from sterna.config.registry.run_names import is_intermediate
from sterna.errors import TableError
from sterna.libraries import pa, pc
from sterna.maintenance.deletion.collect import Listing
from sterna.maintenance.deletion.file_lists import (
    Files,
    ListedObject,
    exclude_reached,
    filter_reached,
    split_chunks,
    sum_amount,
    to_table,
)
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount
from sterna.maintenance.deletion.passes import Pass, modified_until, unreachable_in_all
from sterna.replication.replica.bulk_state import bulk_run_uri
from sterna.replication.replica.delay_hours import HORIZON
from sterna.replication.replica.reachability import ReachedFiles

FILE, EVIDENCE, KEPT, UNKNOWN = "file", "evidence", "kept", "strange"


@dataclass(frozen=True)
class Rules:
    """What the decision depends on beside the files.

    Args:
        location_ids: ids of the locations whose copies are stored below the replica root, including those that the
            registry no longer has.
        keep, grace: as in `GcOptions`.
        passes: earlier passes, oldest first: the newest that is at least `grace` old, and all after it; empty where
            none is so old.
        in_transit_since: since when a table is in transit: younger files may belong to it, however long its copy takes.
            None where no table is in transit.
    """

    mapping: Mapping
    location_ids: frozenset[str]
    now: datetime
    keep: timedelta
    grace: timedelta
    passes: Sequence[Pass] = ()
    in_transit_since: datetime | None = None

    @property
    def verbatim_folder(self) -> str:
        """Where verbatim copies are, with a slash at its end."""
        return f"{state_folder(self.mapping.region.replica_root, VERBATIM)}/"

    def is_marker(self, uri: str) -> bool:
        """Return whether an object marks that all verbatim copies of a table's version are here."""
        return uri.startswith(self.verbatim_folder) and without_digest(uri) != uri

    def classify(self, uri: str) -> str:
        """Return the kind of an object, by its path.

        A file of a table, evidence of runs or passes, what only an operator removes (a dead letter, or the marker of a
        paused table), or unknown: not written by sterna.
        """
        root = f"{self.mapping.region.replica_root}/"
        if not uri.startswith(root):
            return UNKNOWN
        path = split_metadata_version(uri.removeprefix(root))[1]
        own_path = state_path(path.split("/"))
        if own_path is not None:
            if own_path[:1] != [VERBATIM]:
                return _classify_own(own_path)
            path = "/".join(own_path[1:])  # as below the replica root
        folder, rest = split_replica_path(path)
        if not rest or folder_location(folder) not in self.location_ids:
            return UNKNOWN
        try:
            self.mapping.locate(uri)
        except TableError:
            return UNKNOWN
        return FILE

    def is_working_file(self, uri: str) -> bool:
        """Return whether an object is intermediate: written by one stage of a run for the next."""
        runs = f"{state_folder(self.mapping.region.replica_root, RUNS)}/"
        return uri.startswith(runs) and is_intermediate(uri.removeprefix(runs).partition("/")[2])

    def is_expired(self, uri: str, modified: datetime) -> bool:
        """Return whether evidence is older than `keep`, and not the record of a pass that is still needed.

        Intermediate objects of a run expire after `grace`, and those of the index of delays not before its horizon.
        """
        root = self.mapping.region.replica_root
        state_folders = (f"{state_folder(root, name)}/" for name in (SWEEP, FEATURES, TRANSFORMS))
        if uri.startswith((*state_folders, bulk_run_uri(self.mapping.region))):
            # A sweep deletes its own records; a view may have no change for long; a transform may fail for long, and
            # would look healthy without its file; a bulk run may begin any time.
            return False
        if self.is_working_file(uri):
            return modified <= self.now - min(self.grace, self.keep)
        if uri.startswith(f"{state_folder(root, DELAYS)}/"):
            return modified <= self.now - max(self.keep, HORIZON)
        is_pass = uri.startswith(f"{state_folder(root, GC)}/")
        is_needed = is_pass and (not self.passes or modified >= self.passes[0].written_at)
        return not is_needed and modified <= self.now - self.keep


def _classify_own(path: Sequence[str]) -> str:
    """Return the kind of an object in one of sterna's own folders."""
    folder = path[0] if path else ""
    if folder == folders.HELD:
        return FILE if len(path) == 2 else UNKNOWN
    if (folder, len(path)) in ((folders.DEAD_LETTERS, 3), (folders.PAUSED, 2)):
        return KEPT
    return EVIDENCE if len(path) > 1 and folder in folders.AGE_EXPIRED_FOLDERS else UNKNOWN


@dataclass
class ClassifiedFiles(Listing):
    """The objects below a replica root, by kind; those that sterna did not write are unknown.

    Args:
        refused: what only refused tables reach.
        evidence: plans, reports and records of runs and passes.
        superseded: metadata.json that only older heads name.
        verbatim: verbatim copies.
        dropped: what only tables reach that were dropped and are kept for a while.
    """

    refused: Files
    evidence: Amount
    superseded: Amount
    verbatim: Amount = ZERO_AMOUNT
    dropped: Amount = ZERO_AMOUNT

    def exclude(self, reached: ReachedFiles) -> None:
        """Take out what is reached by now, of refused tables too."""
        super().exclude(reached)
        self.refused = Files(exclude_reached(self.refused.parts(), reached))


def classify_files(
    listing: Iterable[ListedObject],
    rules: Rules,
    kept: ReachedFiles,
    refused: ReachedFiles,
    superseded: Collection[str] = frozenset(),
    dropped: ReachedFiles | None = None,
) -> ClassifiedFiles:
    """Classify a listing by kind and by reachability.

    Args:
        listing: everything below the replica root.
        rules: what else it depends on.
        kept: what kept heads reach.
        refused: what refused tables reach; what `kept` has is kept nevertheless.
        superseded: metadata.json that is kept only for older heads.
        dropped: what dropped tables reach that are kept for a while.
    """
    objects = unknown = evidence = superseded_amount = verbatim = kept_for_dropped = Amount()
    dropped = dropped or ReachedFiles()
    unreachable, only_refused = Files(), Files()
    for chunk in split_chunks(listing):
        objects += Amount(len(chunk), sum(size for _, size, _ in chunk))
        kinds = [rules.classify(uri) for uri, _, _ in chunk]
        unknown += sum_amount(item for item, kind in zip(chunk, kinds, strict=True) if kind == UNKNOWN)
        evidence += sum_amount(item for item, kind in zip(chunk, kinds, strict=True) if kind == EVIDENCE)
        superseded_amount += sum_amount(item for item in chunk if item[0] in superseded)
        verbatim += sum_amount(item for item in chunk if item[0].startswith(rules.verbatim_folder))
        files = [item for item, kind in zip(chunk, kinds, strict=True) if kind == FILE]
        expired = [
            item
            for item, kind in zip(chunk, kinds, strict=True)
            if kind == EVIDENCE and rules.is_expired(item[0], item[2])
        ]
        unreached = filter_reached(files, kept, wanted=False)
        kept_for_dropped += sum_amount(filter_reached(unreached, dropped, wanted=True))
        unreached = filter_reached(unreached, dropped, wanted=False)
        only_refused.add(to_table(filter_reached(unreached, refused, wanted=True)))
        # No head names evidence; if one should, it stays.
        unreachable.add(
            to_table(filter_reached([*unreached, *filter_reached(expired, kept, wanted=False)], refused, wanted=False))
        )
    return ClassifiedFiles(
        objects, unknown, unreachable, only_refused, evidence, superseded_amount, verbatim, kept_for_dropped
    )


def select_garbage(unreachable: Files, rules: Rules) -> Files:
    """Return what may be deleted of the unreachable.

    Files older than `grace` that every pass since one of that age found unreachable; while a table is in transit, none
    that may have been copied for it. Intermediate objects of a run need no earlier pass: only a live run reads them,
    and it can read the source instead.
    """
    in_transit_since = pa.scalar(rules.in_transit_since or rules.now, pa.timestamp("us", "UTC"))
    waiting, deletable = Files(), Files()
    for part in unreachable.parts():
        old = modified_until(part, rules.now - rules.grace)
        is_working_file = pa.array([rules.is_working_file(uri) for uri in old.column("uri").to_pylist()], pa.bool_())
        waiting.add(old.filter(pc.invert(is_working_file)))
        deletable.add(old.filter(pc.and_(is_working_file, pc.less(old.column("modified"), in_transit_since))))
    for part in unreachable_in_all(waiting, rules.passes).parts():
        is_own = pc.starts_with(part.column("uri"), state_root(rules.mapping.region.replica_root))
        is_verbatim = pc.starts_with(part.column("uri"), rules.verbatim_folder)
        is_older = pc.less(part.column("modified"), in_transit_since)
        deletable.add(part.filter(pc.or_(pc.and_not(is_own, is_verbatim), is_older)))
    return deletable
