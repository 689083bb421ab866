"""Which of a region's own files are needed: all that any version that is needed reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW
from sterna.errors import ReplicaBroken, TableError, UpkeepBlocked
from sterna.registry.sweeping import swept_locations
from sterna.replica.reach import Anywhere, Below, ReachedFiles, TableVersion, Walk
from sterna.replica.region import RegionContext
from sterna.upkeep.facts import ShowingReference, Shown
from sterna.upkeep.horizon import Horizon, Why

_SLASHES = re.compile("//+")
_DRIVERS = {
    **dict.fromkeys(("abfs", "abfss"), ("wasb", ".dfs.", ".blob.")),
    **dict.fromkeys(("wasb", "wasbs"), ("abfs", ".blob.", ".dfs.")),
}
_PAST = (Why.HISTORY, Why.HELD, Why.TRANSIT, Why.HEAD)


@dataclass
class Needed:
    """What is needed of a region's own files; it grows while a sweep goes on.

    Args:
        context: the region.
        progress: called with lines for people.
    """

    context: RegionContext
    progress: Callable[[str], None]
    files: ReachedFiles = field(default_factory=ReachedFiles)

    def __post_init__(self) -> None:
        self._places = [Below(location.prefix) for location in swept_locations(self.context.mapping)]
        self._walk = Walk(self.context, self.add, self.progress, places=Anywhere())
        self._past = Walk(self.context, self.add, self.progress, gone_is_fine=True, places=Anywhere())
        self._past._read = self._walk._read  # versions of one table share most of their files
        self._seen: set[TableVersion] = set()

    def of(self, found: Horizon) -> None:
        """Reach all that a horizon needs.

        Replicas of other regions reach nothing here: what they name lies in their own region.

        Raises:
            UpkeepBlocked: a file of it can't be read, or names files in a way that nobody here knows.
        """
        shown = [(each, need) for each, need in found.needed.items() if self._counts(need.replica_of)]
        self._over(self._walk, (each for each, need in shown if need.why not in _PAST))
        # No reference shows these any more: what is gone of them nobody can read, and it leads nowhere.
        self._over(self._past, (each for each, need in shown if need.why in _PAST))

    def news(self, references: Iterable[ShowingReference]) -> bool:
        """Reach what references show that moved, or are new; tell whether there was anything.

        Raises:
            UpkeepBlocked: as `of`.
        """
        before = len(self._seen)
        self._over(
            self._walk,
            (each for reference in references if self._counts(reference.replica_of) for each in reference.shown),
        )
        return len(self._seen) > before

    def _counts(self, replica_of: str) -> bool:
        return replica_of in ("", self.context.region.name)

    def _over(self, walk: Walk, shown: Iterable[Shown]) -> None:
        versions = {_version(each) for each in shown} - self._seen
        try:
            walk.over(versions)
        except ReplicaBroken as error:
            raise UpkeepBlocked(
                error.message.replace("a kept head needs this file", "something that is needed needs this file"),
                table=error.table,
                file=error.file,
                hint="restore it, or let go of what needs it: a branch, a tag, a table",
            ) from error
        self._seen |= versions

    def add(self, uris: Iterable[str]) -> None:
        """Count some files as needed, in whatever spelling metadata names them."""
        self.files.add(self._here(uris))

    def _here(self, uris: Iterable[str]) -> Iterator[str]:
        """Yield what lies in a swept location, as the store lists it; and what is read there in place of a copy."""
        for uri in uris:
            for named in (uri, *self._origin(uri)):
                for spelled in (named, *_respelled(named)):
                    for below in self._places:
                        for here in below.of((spelled,)):
                            yield here
                            yield from _odd(here)

    def _origin(self, uri: str) -> Iterator[str]:
        mapping = self.context.mapping
        if mapping.below_replica_root(uri):
            try:
                yield mapping.source(uri)
            except TableError as error:
                if not uri.startswith(f"{self.context.region.replica_root}/"):
                    raise UpkeepBlocked(f"nobody knows what it is a copy of: {error.message}", file=uri) from error


def _version(shown: Shown) -> TableVersion:
    if shown.kind not in (ICEBERG_TABLE, ICEBERG_VIEW) or not shown.metadata:
        raise UpkeepBlocked(
            f"nobody knows which files a content of type {shown.kind} needs",
            table=shown.key,
            hint="take it off, or sweep no location in this catalog",
        )
    return TableVersion(shown.key, shown.kind, shown.metadata)


def _respelled(uri: str) -> Iterator[str]:
    """Yield what else a URI may be called where the place that it lies in is listed.

    Azure's two drivers, of which Iceberg takes both, have a scheme and a host each for one container. Some engines take
    several slashes for one.
    """
    scheme, _, path = uri.partition("://")
    other, ours, theirs = _DRIVERS.get(scheme, ("", "", ""))
    authority, slash, rest = path.partition("/")
    if other and ours in authority:
        yield f"{other}://{authority.replace(ours, theirs, 1)}{slash}{rest}"
    if "//" in path:
        yield f"{scheme}://{_SLASHES.sub('/', path)}"


def _odd(uri: str) -> Iterator[str]:
    """Yield other spellings under which a store may list an odd name: one too many is kept rather than one too few."""
    scheme, _, path = uri.partition("://")
    if "//" in path:
        yield f"{scheme}://{_SLASHES.sub('/', path)}"
    if "%" in path:
        yield f"{scheme}://{unquote(path)}"
