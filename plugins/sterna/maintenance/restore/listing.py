"""What can be restored: tables that were dropped from `main`, and earlier versions of tables that are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sterna.catalog.model import NAMESPACE, Commit, Content, Key, key_name, parse_key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import NoSuchMoment, ReferenceNotFound, SternaError
from sterna.maintenance.restore.files import localized_uris
from sterna.maintenance.restore.model import HOME
from sterna.replication.replica.point_in_time import lost_before, read_main
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


@dataclass(frozen=True)
class RestorableVersions:
    """What can be restored, newest first; of one commit by name.

    Args:
        versions: tables and views.
        gap: where the list ends too early, because the catalog has lost commits; "" where it doesn't.
    """

    versions: tuple[Restorable, ...]
    gap: str = ""


@dataclass(frozen=True)
class _LeftVersion:
    """A version that a commit left behind."""

    key: Key
    content: Content
    commit: Commit
    dropped: bool


def list_restorable(context: RegionContext, names: tuple[str, ...], since: datetime) -> RestorableVersions:
    """Return what `main` has left since a moment, newest first.

    A table that was dropped twice is there twice, with the commits before each.

    Args:
        context: the region.
        names: key names of tables, views and namespaces, whose earlier versions are listed, too; empty: what was
            dropped of all.
        since: the moment.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    left, gap = _read_left_versions(context, tuple(map(parse_key, names)), since)
    places = _find_places(context, left)
    return RestorableVersions(
        tuple(
            Restorable(
                key_name(version.key),
                version.content.kind,
                version.commit.parent,
                version.commit.commit_time.isoformat(),
                version.dropped,
                version_places,
            )
            for version, version_places in zip(left, places, strict=True)
        ),
        gap,
    )


def _read_left_versions(
    context: RegionContext, names: tuple[Key, ...], since: datetime
) -> tuple[list[_LeftVersion], str]:
    """Return what commits since a moment left behind, newest first, and where the catalog has lost older ones."""
    left = list[_LeftVersion]()
    try:
        for commit in _commits_since(context, since):
            try:
                left += _left_versions(context, commit, names)
            except ReferenceNotFound:
                return left, lost_before(SOURCE_BRANCH, commit)
    except NoSuchMoment as error:
        return left, error.message
    return left, ""


def _commits_since(context: RegionContext, since: datetime) -> Iterator[Commit]:
    for commit in read_main(context.primary, SOURCE_BRANCH, operations=True):
        if commit.commit_time < since or commit.parent == context.primary.no_ancestor():
            return
        yield commit


def _left_versions(context: RegionContext, commit: Commit, names: tuple[Key, ...]) -> Iterator[_LeftVersion]:
    """Yield what a commit left behind.

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
            yield _LeftVersion(key, content, commit, is_dropped)


def _find_places(context: RegionContext, left: Sequence[_LeftVersion]) -> list[tuple[str, ...]]:
    """Return where each version's metadata.json is; a store that can't be read has none."""
    uris = [_place_uris(context, key_name(version.key), version.content) for version in left]
    present = {place: _present_uris(context, [by[place] for by in uris if by.get(place)]) for place in _places(context)}
    return [tuple(place for place, uri in by.items() if uri in present[place]) for by in uris]


def _places(context: RegionContext) -> tuple[str, ...]:
    return (HOME, *context.registry.region_names)


def _place_uris(context: RegionContext, name: str, content: Content) -> dict[str, str]:
    """Return where a version's metadata.json may be, by place."""
    localized = localized_uris(context, name, content)
    resident = {region: uri for region, uri in localized.items() if not context.registry.exclusion_reason(name, region)}
    return {HOME: content.metadata_location or "", **resident}


def _present_uris(context: RegionContext, uris: Sequence[str]) -> set[str]:
    """Return those of some URIs that are there; each is looked for alone where one of them can't be."""
    try:
        return {uri for uri, size in context.objects.sizes(uris).items() if size is not None}
    except SternaError:
        return {uri for uri in uris if _is_there(context, uri)}


def _is_there(context: RegionContext, uri: str) -> bool:
    try:
        return context.objects.size(uri) is not None
    except SternaError:
        return False
