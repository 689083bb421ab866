"""Promotion with tables: tables continue from a region's replica when their own storage is lost.

The entries of `main` are pointed at the region's localized metadata, in one commit. From then on `main` names files
below that region's replica root; other regions take each of them back to its origin (`sterna.config.mapping`), so
that nothing is copied twice.

Which tables those are is decided by all files that they name, not by where their metadata.json lies: a table of another
region has files in a lost one where writers there, `add_files` or ingestion added them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from sterna.catalog.main_branch import commit_to_main
from sterna.catalog.model import ICEBERG_TABLE, NAMESPACE, Commit, Content, Key, Put, key_name
from sterna.catalog.reader import CatalogReader
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogConflict, SternaError, TableError, UsageError
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.desired_state import desired_content
from sterna.replication.replica.head import MOVE_ID, MOVED_TABLES, REGION, load_held_list, read_head
from sterna.replication.replica.reachability import AllUris, ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext

_MAX_ATTEMPTS = 5
_CHANGED_REASON = "it has changed since it was read: repeat this"


@dataclass(frozen=True)
class Move:
    """One table or view that continues from the region's replica.

    Args:
        key: key name.
        now: its metadata.json on `main`.
        to: the region's localized one.
        lost: commits of `main` that changed it and that the region does not have, newest first.
        untold: the region has an older version, and which commits it lacks is unknown.
    """

    key: str
    now: str
    to: str
    lost: tuple[Commit, ...] = ()
    untold: bool = False


@dataclass(frozen=True)
class MovePlan:
    """What a promotion with tables would do to `main`, or did.

    Args:
        region: where the tables continue.
        lost: regions whose storage is lost.
        moves: tables and views that continue there.
        left: by key name, why a table or view is not moved.
    """

    region: str
    lost: tuple[str, ...]
    moves: tuple[Move, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


def plan_moves(context: RegionContext, lost: Collection[str]) -> MovePlan:
    """Plan which tables continue from a region's replica, by its own catalog; changes nothing.

    Args:
        lost: regions whose storage is lost: tables that name a file there continue here.

    Raises:
        UsageError: no region is named, or one that there isn't, or this one.
        ReferenceNotFound: the region has no replica branch.
        CatalogError: the catalog does not answer.
    """
    regions, own = context.registry.region_names, context.region.name
    if not lost or own in lost or not set(lost) <= set(regions):
        others = ", ".join(name for name in regions if name != own)
        raise UsageError(
            f"tables continue from {own}'s replica when another region's storage is lost: name it",
            hint=f"--lost, of {others}",
        )
    return _plan_at(context, context.catalog, tuple(sorted(lost)), context.catalog.reference(SOURCE_BRANCH).hash, {})[0]


def apply_moves(context: RegionContext, approved: MovePlan, progress: Callable[[str], None]) -> MovePlan:
    """Point entries of `main` at the region's localized metadata, in one commit; safe to repeat.

    Args:
        context: the region, whose catalog is the primary now.
        approved: the approved plan; a table that differs from it by now is not moved.
        progress: receives a message when it is done.

    Returns:
        What was moved and what was left.

    Raises:
        CatalogConflict: `main` changes faster than this commits; repeating it is safe.
        CatalogError: the catalog does not answer; repeating it is safe.
    """
    # A walk takes longer than writers leave `main` alone: what is answered once holds for a version of a table.
    answers = {(table_move.now, table_move.to): True for table_move in approved.moves}
    approved_moves = {(table_move.key, table_move.now, table_move.to) for table_move in approved.moves}
    for is_last_attempt in (attempt == _MAX_ATTEMPTS - 1 for attempt in range(_MAX_ATTEMPTS)):
        main = context.primary.reference(SOURCE_BRANCH).hash
        current, contents = _plan_at(context, context.primary, approved.lost, main, answers)
        confirmed = tuple(
            table_move
            for table_move in current.moves
            if (table_move.key, table_move.now, table_move.to) in approved_moves
        )
        changed = {table_move.key for table_move in current.moves} - {table_move.key for table_move in confirmed}
        applied = replace(current, moves=confirmed, left={**current.left, **dict.fromkeys(changed, _CHANGED_REASON)})
        if not confirmed:
            return applied
        puts = [Put(*contents[table_move.key]) for table_move in confirmed]
        properties = {REGION: current.region, MOVED_TABLES: str(len(puts)), MOVE_ID: uuid4().hex}
        message = f"{len(puts)} tables and views continue from the replica in {current.region}"
        try:
            hash = commit_to_main(writer(context), main, puts, message, properties, identified_by=[MOVE_ID])
        except CatalogConflict:
            if is_last_attempt:
                raise
            continue
        progress(f"{message}: commit {hash[:12]} on {SOURCE_BRANCH}")
        return applied
    raise AssertionError("unreachable")


def _plan_at(
    context: RegionContext,
    catalog: CatalogReader,
    lost: tuple[str, ...],
    main: str,
    answers: dict[tuple[str, str], bool],
) -> tuple[MovePlan, dict[str, tuple[Key, Content]]]:
    """Return the moves at one commit of `main`, and by key name what would be put.

    Args:
        answers: whether a version names a file in a lost region, by its metadata.json on `main` and here; is added to.
    """
    head = load_held_list(context.objects, read_head(catalog, context.region.replica_branch))
    replica = {
        key: content
        for key, content in catalog.entries(context.region.replica_branch, head.hash)
        if content.kind != NAMESPACE
    }
    outdated: dict[str, Move] = {}
    moves: dict[str, Move] = {}
    skipped: dict[str, str] = {}
    contents: dict[str, tuple[Key, Content]] = {}
    for key, content in catalog.entries(SOURCE_BRANCH, main):
        name, replica_content = key_name(key), replica.get(key)
        try:
            version = content.metadata_location or "", (replica_content and replica_content.metadata_location) or ""
            if version not in answers:
                answers[version] = _names_file_in(context, name, content, replica_content, lost)
            if not answers[version]:
                continue
        except SternaError as error:
            skipped[name] = f"whether it has files in {', '.join(lost)} can't be told: {error.message}"
            continue
        if refusal := context.registry.exclusion_reason(name, context.region.name):
            skipped[name] = f"it may not be here: {refusal}"
            continue
        if replica_content is None or replica_content.kind != content.kind:
            skipped[name] = f"it is not on {context.region.replica_branch}"
            continue
        contents[name] = key, replica_content.with_id(content.id)
        table_move = Move(name, content.metadata_location or "", replica_content.metadata_location or "")
        (moves if _is_current(context, name, content, replica_content) else outdated)[name] = table_move
    last_good = {held.key: held.good for held in head.held}
    # Where the list of held tables can't be read, which commits a table has is unknown.
    default_commit = "" if head.held_list.read_error else head.watermark
    since = {name: last_good.get(name) or default_commit for name in outdated}
    recreated = _recreated_keys(catalog, {name: contents[name] for name in outdated}, since)
    skipped |= dict.fromkeys(recreated, f"it is another table than the one on {context.region.replica_branch}")
    moves |= _with_lost_commits(
        catalog, {name: table_move for name, table_move in outdated.items() if name not in recreated}, since, main
    )
    return MovePlan(context.region.name, lost, tuple(moves[name] for name in sorted(moves)), skipped), contents


class _FileInRegion(Exception):
    """Ends a walk over a table's files: one is in a region that was looked for."""


def _names_file_in(
    context: RegionContext, name: str, content: Content, replica_content: Content | None, regions: Collection[str]
) -> bool:
    """Return whether a table or view names a file in one of some regions; their stores aren't read.

    Raises:
        SternaError: a file in another region can't be read.
    """
    metadata = content.metadata_location or ""
    if _is_located_in(context, metadata, regions):
        return True
    if content.kind != ICEBERG_TABLE or not metadata:
        return False
    replica_metadata = (replica_content and replica_content.metadata_location) or ""
    if replica_metadata == metadata:
        return False  # only a table with all its files in this region has its own metadata.json on the replica branch

    is_moved = context.mapping.below_replica_root(metadata)  # its files are where `main` names them, not at the origin
    if replica_content is not None and not is_moved and _is_current(context, name, content, replica_content):
        # The replica has it whole, so that this region's own store alone is read.
        return _reaches(context, name, replica_metadata, regions, of_replica=True)
    return _reaches(context, name, metadata, regions)


def _reaches(
    context: RegionContext,
    name: str,
    metadata: str,
    regions: Collection[str],
    *,
    of_replica: bool = False,
) -> bool:
    """Return whether a version of a table has its location or a file in one of some regions, which aren't read.

    Args:
        metadata: the version's metadata.json.
        of_replica: it is this region's localized one: what counts is where its files come from.
    """
    from sterna.iceberg.metadata.table import read_table_metadata

    def stop_at_region(uris: Iterable[str]) -> None:
        sources = map(context.mapping.origin_uri, uris) if of_replica else uris
        if any(_is_located_in(context, uri, regions) for uri in sources):
            raise _FileInRegion

    walk = ReachabilityWalk(context, stop_at_region, scope=None if of_replica else AllUris(), with_metadata_log=False)
    try:
        location = read_table_metadata(context.objects.read(metadata), metadata, context.region.limits).location
        stop_at_region([location.rstrip("/")])
        walk.visit([TableVersion(name, ICEBERG_TABLE, metadata)])
    except _FileInRegion:
        return True
    return False


def _is_located_in(context: RegionContext, uri: str, regions: Collection[str]) -> bool:
    try:
        return context.mapping.locate(uri).location.region in regions
    except TableError:
        return False  # in no location, so in no region's storage


def _is_current(context: RegionContext, name: str, content: Content, replica_content: Content) -> bool:
    try:
        return desired_content(context, name, content, replica_content) == replica_content.with_id(None)
    except TableError:
        return False


def _recreated_keys(
    catalog: CatalogReader, contents: Mapping[str, tuple[Key, Content]], since: Mapping[str, str]
) -> set[str]:
    """Return the keys under which `main` holds another table or view by now than the one that the region has a
    version of.
    """
    recreated = set()
    for hash in {hash for hash in since.values() if hash}:
        at_commit = {name: contents[name] for name, commit_hash in since.items() if commit_hash == hash}
        main_contents = catalog.contents(SOURCE_BRANCH, hash, [key for key, _ in at_commit.values()])
        recreated |= {
            name
            for name, (key, content) in at_commit.items()
            if key not in main_contents or main_contents[key].id != content.id
        }
    return recreated


def _with_lost_commits(
    catalog: CatalogReader, outdated: Mapping[str, Move], since: Mapping[str, str], main: str
) -> dict[str, Move]:
    """Add to moves the commits of `main` after the version that the region has."""
    commits_by_name: dict[str, list[Commit]] = {name: [] for name in outdated if since[name]}
    pending = set(commits_by_name)
    for commit in catalog.history(f"{SOURCE_BRANCH}@{main}", operations=True) if commits_by_name else ():
        pending -= {name for name in pending if since[name] == commit.hash}
        if not pending:
            break
        for name in _changed_keys(commit) & pending:
            commits_by_name[name].append(commit)
    return {
        name: replace(
            table_move, lost=tuple(commits_by_name.get(name, ())), untold=name not in commits_by_name or name in pending
        )
        for name, table_move in outdated.items()
    }


def _changed_keys(commit: Commit) -> set[str]:
    return {key_name(put.key) for put in commit.puts}
