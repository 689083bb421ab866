"""What can be restored: tables that were dropped from `main`, and earlier versions of tables that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sterna.catalog.model import NAMESPACE, Commit, Content, Key, key_name, parse_key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import SternaError
from sterna.maintenance.restore.files import localized_uris
from sterna.maintenance.restore.model import HOME
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class Restorable:
    """A version of a table or view that `main` has left.

    Args:
        key: key name.
        kind: content type.
        as_of: hash of a commit of `main` that has the version.
        until: when `main` left it (ISO 8601, UTC).
        dropped: it was dropped then; else another version followed.
        places: `home`, and the regions, where its metadata.json is now. A restore's dry run looks for all files.
    """

    key: str
    kind: str
    as_of: str
    until: str
    dropped: bool
    places: tuple[str, ...]


def list_restorable(context: RegionContext, names: tuple[str, ...], since: datetime) -> tuple[Restorable, ...]:
    """Return what `main` has left since a moment, newest first.

    Args:
        context: the region.
        names: key names of tables, views and namespaces, whose earlier versions are listed, too; empty: what was
            dropped of all.
        since: the moment.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    return tuple(
        Restorable(
            key_name(key),
            content.kind,
            commit.parent,
            commit.commit_time.isoformat(),
            dropped,
            _places(context, key_name(key), content),
        )
        for commit in _commits_since(context, since)
        for key, content, dropped in _left_versions(context, commit, tuple(map(parse_key, names)))
    )


def _commits_since(context: RegionContext, since: datetime) -> Iterator[Commit]:
    for commit in context.primary.history(SOURCE_BRANCH, operations=True):
        if commit.commit_time < since or commit.parent == context.primary.no_ancestor():
            return
        yield commit


def _left_versions(
    context: RegionContext, commit: Commit, names: tuple[Key, ...]
) -> Iterator[tuple[Key, Content, bool]]:
    """Yield what a commit left behind: key, content, and whether it was dropped.

    What the commit put under another name was renamed: an earlier version of a name, and nothing that was dropped.
    """
    put = {operation.key for operation in commit.puts}
    put_ids = {operation.content.id for operation in commit.puts}
    dropped = commit.deleted_keys - put
    keys = dropped | put if names else dropped
    if names:
        keys = frozenset(key for key in keys if any(key[: len(name)] == name for name in names))
    contents: Mapping[Key, Content] = (
        context.primary.contents(SOURCE_BRANCH, commit.parent, sorted(keys)) if keys else {}
    )
    for key, content in sorted(contents.items(), key=lambda entry: entry[0]):
        is_dropped = key in dropped and content.id not in put_ids
        if content.kind != NAMESPACE and (names or is_dropped):
            yield key, content, is_dropped


def _places(context: RegionContext, name: str, content: Content) -> tuple[str, ...]:
    """Return where a version's metadata.json is; a store that can't be read has none."""
    localized = localized_uris(context, name, content)
    resident = {region: uri for region, uri in localized.items() if not context.registry.exclusion_reason(name, region)}
    uris = {HOME: content.metadata_location or "", **resident}
    return tuple(place for place, uri in uris.items() if uri and _is_there(context, uri))


def _is_there(context: RegionContext, uri: str) -> bool:
    try:
        return context.objects.size(uri) is not None
    except SternaError:
        return False
