"""Letting tables go on from a region's replica when the storage that they live in is gone: promotion with tables.

The entries of `main` are pointed at the region's localized metadata, in one commit. From then on `main` names files
below that region's replica root; other regions take each of them back to its origin (`sterna.registry.mapping`), so
that nothing is copied twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

from sterna.catalog.main_branch import commit_to_main
from sterna.catalog.model import NAMESPACE, Commit, Content, Key, Put, key_name
from sterna.catalog.reader import CatalogReader
from sterna.errors import CatalogConflict, TableError, UsageError
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import MOVE_ID, MOVED, REGION, read_head, with_held
from sterna.replica.region import RegionContext
from sterna.replica.wanted import wanted_here
from sterna.replica.writing import writer

_TRIES = 5
_CHANGED = "it has changed since it was looked at: repeat this"


@dataclass(frozen=True)
class Move:
    """One table or view that goes on from the region's replica.

    Args:
        key: key name.
        now: its metadata.json on `main`.
        to: the region's localized one.
        lost: commits of `main` that changed it and that the region has not got, newest first.
        untold: the region has an older version, and nobody can tell which commits it lacks.
    """

    key: str
    now: str
    to: str
    lost: tuple[Commit, ...] = ()
    untold: bool = False


@dataclass(frozen=True)
class Moves:
    """What a promotion with tables would do to `main`, or did.

    Args:
        region: where the tables go on.
        lost: regions whose storage is gone.
        moves: tables and views that go on there.
        left: by key name, why a table or view stays as it is.
    """

    region: str
    lost: tuple[str, ...]
    moves: tuple[Move, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


def plan_moves(context: RegionContext, lost: Collection[str]) -> Moves:
    """Find the tables that would go on from a region's replica, as its own catalog has them; changes nothing.

    Args:
        context: the region.
        lost: regions whose storage is gone: tables whose metadata.json lies there go on here.

    Raises:
        UsageError: no region is named, or one that there isn't, or this one.
        ReferenceNotFound: the region has no replica branch.
        CatalogError: the catalog does not answer.
    """
    regions, own = context.registry.region_names, context.region.name
    if not lost or own in lost or not set(lost) <= set(regions):
        others = ", ".join(name for name in regions if name != own)
        raise UsageError(
            f"tables go on from {own}'s replica when another region's storage is lost: say which",
            hint=f"--lost, of {others}",
        )
    return _planned(context, context.catalog, tuple(sorted(lost)), context.catalog.reference(SOURCE_BRANCH).hash)[0]


def move(context: RegionContext, agreed: Moves, say: Callable[[str], None]) -> Moves:
    """Point entries of `main` at the region's localized metadata, in one commit; safe to repeat.

    Args:
        context: the region, whose catalog is the primary now.
        agreed: what somebody was shown and wants; whatever differs from it meanwhile stays as it is.
        say: told what was done.

    Returns:
        What was moved and what was left.

    Raises:
        CatalogConflict: `main` changes faster than this commits; repeating it is safe.
        CatalogError: the catalog does not answer; repeating it is safe.
    """
    known = {(each.key, each.now, each.to) for each in agreed.moves}
    for last in (attempt == _TRIES - 1 for attempt in range(_TRIES)):
        main = context.primary.reference(SOURCE_BRANCH).hash
        found, contents = _planned(context, context.primary, agreed.lost, main)
        mine = tuple(each for each in found.moves if (each.key, each.now, each.to) in known)
        changed = {each.key for each in found.moves} - {each.key for each in mine}
        result = replace(found, moves=mine, left={**found.left, **dict.fromkeys(changed, _CHANGED)})
        if not mine:
            return result
        puts = [Put(*contents[each.key]) for each in mine]
        properties = {REGION: found.region, MOVED: str(len(puts)), MOVE_ID: uuid4().hex}
        message = f"{len(puts)} tables and views go on from the replica in {found.region}"
        try:
            hash = commit_to_main(writer(context), main, puts, message, properties, named_by=[MOVE_ID])
        except CatalogConflict:
            if last:
                raise
            continue
        say(f"{message}: commit {hash[:12]} on {SOURCE_BRANCH}")
        return result
    raise AssertionError("unreachable")


def _planned(
    context: RegionContext, catalog: CatalogReader, lost: tuple[str, ...], main: str
) -> tuple[Moves, dict[str, tuple[Key, Content]]]:
    """Return the moves at one commit of `main`, and by key name what would be put."""
    head = with_held(context.objects, read_head(catalog, context.region.replica_branch))
    here = {
        key: content
        for key, content in catalog.entries(context.region.replica_branch, head.hash)
        if content.kind != NAMESPACE
    }
    behind: dict[str, Move] = {}
    moves: dict[str, Move] = {}
    left: dict[str, str] = {}
    contents: dict[str, tuple[Key, Content]] = {}
    for key, content in catalog.entries(SOURCE_BRANCH, main):
        name, mine = key_name(key), here.get(key)
        if not _lies_in(context, content.metadata_location or "", lost):
            continue
        if refusal := context.registry.refusal(name, context.region.name):
            left[name] = f"it may not be here: {refusal}"
            continue
        if mine is None or mine.kind != content.kind:
            left[name] = f"it is not on {context.region.replica_branch}"
            continue
        contents[name] = key, mine.with_id(content.id)
        each = Move(name, content.metadata_location or "", mine.metadata_location or "")
        (moves if _is_current(context, name, content, mine) else behind)[name] = each
    good = {item.key: item.good for item in head.held}
    # Where the list of held tables is lost, nobody can tell which commits a table has.
    known = "" if head.listed.lost else head.watermark
    since = {name: good.get(name) or known for name in behind}
    others = _made_anew(catalog, {name: contents[name] for name in behind}, since)
    left |= dict.fromkeys(others, f"it is another table than the one on {context.region.replica_branch}")
    moves |= _with_losses(catalog, {name: each for name, each in behind.items() if name not in others}, since, main)
    return Moves(context.region.name, lost, tuple(moves[name] for name in sorted(moves)), left), contents


def _lies_in(context: RegionContext, uri: str, regions: Collection[str]) -> bool:
    try:
        return context.mapping.locate(uri).location.region in regions
    except TableError:
        return False  # in no location: no region's storage can be meant


def _is_current(context: RegionContext, name: str, content: Content, mine: Content) -> bool:
    try:
        return wanted_here(context, name, content, mine) == mine.with_id(None)
    except TableError:
        return False


def _made_anew(catalog: CatalogReader, wanted: Mapping[str, tuple[Key, Content]], since: Mapping[str, str]) -> set[str]:
    """Return the keys under which `main` holds another table or view by now than the one that the region has a
    version of.
    """
    found = set()
    for hash in {hash for hash in since.values() if hash}:
        mine = {name: wanted[name] for name, at in since.items() if at == hash}
        then = catalog.contents(SOURCE_BRANCH, hash, [key for key, _ in mine.values()])
        found |= {name for name, (key, content) in mine.items() if key not in then or then[key].id != content.id}
    return found


def _with_losses(
    catalog: CatalogReader, behind: Mapping[str, Move], since: Mapping[str, str], main: str
) -> dict[str, Move]:
    """Add to moves the commits of `main` after the version that the region has."""
    found: dict[str, list[Commit]] = {name: [] for name in behind if since[name]}
    open_keys = set(found)
    for commit in catalog.history(f"{SOURCE_BRANCH}@{main}", operations=True) if found else ():
        open_keys -= {name for name in open_keys if since[name] == commit.hash}
        if not open_keys:
            break
        for name in _changed(commit) & open_keys:
            found[name].append(commit)
    return {
        name: replace(each, lost=tuple(found.get(name, ())), untold=name not in found or name in open_keys)
        for name, each in behind.items()
    }


def _changed(commit: Commit) -> set[str]:
    return {key_name(put.key) for put in commit.operations or () if isinstance(put, Put)}
