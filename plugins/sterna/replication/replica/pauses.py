"""Tables and views whose replication an operator has paused in a region: each has a marker beside the replica.

    <replica root>/_sterna/paused/<digest of the key name>.json

The name of the marker pauses the key. Its content is for people: a marker that can't be parsed pauses it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Key, key_name, parse_key
from sterna.codec import TEXT, Field, Record, UnknownFields
from sterna.config.registry.folders import PAUSED, state_folder
from sterna.config.registry.model import SOURCE_BRANCH, digest
from sterna.errors import ObjectMissing, ReferenceNotFound, UsageError, printable
from sterna.replication.replica.region import RegionContext

_MAX_REASON_LENGTH = 500  # characters


@dataclass(frozen=True)
class Pause:
    """A paused key.

    Args:
        key: key name; "" where the marker can't be parsed, for a list of all.
        since: when it was paused (ISO 8601, UTC); "" where unknown.
        reason: why, in an operator's words; "" where none was entered.
        file: URI of the marker.
    """

    key: str
    since: str = ""
    reason: str = ""
    file: str = ""

    @property
    def line(self) -> str:
        """A description in one line, for logs and commands."""
        since = f" since {self.since}" if self.since else ""
        return printable(f"paused by an operator{since}" + (f": {self.reason}" if self.reason else ""))


PAUSE: Final = Record(
    Pause,
    (Field("key", TEXT), Field("since", TEXT, ""), Field("reason", TEXT, "")),
    unknown=UnknownFields.IGNORE,
)


def pause(context: RegionContext, names: Iterable[str], reason: str, *, apply: bool) -> tuple[Pause, ...]:
    """Pause tables and views; one that is paused already gets the new reason.

    Args:
        names: theirs, as the catalog spells them.
        reason: why, in an operator's words; "" for none.
        apply: False: write nothing.

    Returns:
        The pauses, as their markers have them then.

    Raises:
        UsageError: there is no such table or view, or the reason is too long.
        CatalogError: the region's own catalog doesn't answer.
        StoreError, CredentialError: the region's store can't be written.
    """
    if len(reason) > _MAX_REASON_LENGTH:
        raise UsageError(f"the reason has {len(reason)} characters, and {_MAX_REASON_LENGTH} are the most")
    since, reason = datetime.now(UTC).isoformat(timespec="seconds"), printable(reason)
    pauses = tuple(Pause(name, since, reason, _marker(context, name)) for name in _find_tables(context, names))
    for paused in pauses if apply else ():
        context.objects.overwrite(paused.file, PAUSE.dumps(paused).encode())
    return pauses


def resume(context: RegionContext, names: Iterable[str], *, apply: bool) -> tuple[Pause, ...]:
    """Let tables and views be replicated again, from the next sync on.

    Args:
        names: theirs; one that is neither paused nor anywhere else changes nothing.
        apply: False: delete nothing.

    Returns:
        Those of them that were paused.

    Raises:
        UsageError: there is no name, or one is no key.
        StoreError, CredentialError: a marker may still be there.
    """
    keys = _parse_names(names)
    pauses = read_pauses(context, [key_name(key) for key in keys])
    if apply:
        for error in context.objects.delete([paused.file for paused in pauses]).values():
            raise error
    return pauses


def read_pauses(context: RegionContext, names: Collection[str] | None = None) -> tuple[Pause, ...]:
    """Return the pauses of a region, by key name.

    Args:
        names: only those of these key names; None: all.

    Raises:
        StoreError, CredentialError: the region's store can't be read, so that what is paused is unknown.
    """
    by_marker = {_marker(context, name): name for name in names or ()}
    listed = (uri for uri, _, _ in context.objects.list(_folder(context)))
    markers = [uri for uri in listed if names is None or uri in by_marker]
    pauses = []
    for uri, answer in context.objects.read_many(markers):
        if isinstance(answer, bytes):
            pauses.append(_parse(answer, uri, by_marker.get(uri, "")))
        elif not isinstance(answer, ObjectMissing):  # else it was resumed meanwhile
            raise answer
    return tuple(sorted(pauses, key=lambda paused: (paused.key, paused.file)))


def _parse(data: bytes, uri: str, name: str) -> Pause:
    try:
        parsed = PAUSE.loads(data)
    except ValueError:
        return Pause(name, file=uri)
    return Pause(name or parsed.key, parsed.since, printable(parsed.reason), uri)


def _marker(context: RegionContext, name: str) -> str:
    return f"{_folder(context)}/{digest([name])}.json"


def _folder(context: RegionContext) -> str:
    return state_folder(context.region.replica_root, PAUSED)


def _find_tables(context: RegionContext, names: Iterable[str]) -> tuple[str, ...]:
    """Return the key names of tables and views that are on `main` or the replica branch.

    Raises:
        UsageError: there is no name, or one of none.
        CatalogError: the region's own catalog doesn't answer.
    """
    keys = _parse_names(names)
    contents: dict[Key, Content] = {}
    for branch in (context.region.replica_branch, SOURCE_BRANCH):
        try:
            hash = context.catalog.reference(branch).hash
        except ReferenceNotFound:  # the region has never synced
            continue
        contents |= context.catalog.contents(branch, hash, keys)
    for key in keys:
        if key not in contents:
            raise UsageError(f"no such table or view: {key_name(key)}")
        if contents[key].kind not in (ICEBERG_TABLE, ICEBERG_VIEW):
            raise UsageError(f"{key_name(key)} is neither a table nor a view: name what is in it")
    return tuple(map(key_name, keys))


def _parse_names(names: Iterable[str]) -> list[Key]:
    keys = list(dict.fromkeys(map(parse_key, names)))
    if not keys:
        raise UsageError("name a table or view")
    return keys
