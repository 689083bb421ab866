"""Whether a replica's metadata.json says what its source says, apart from places and the few values that are
changed on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from sterna.verify.places import Places
from sterna.verify.view_names import without_heads

_ON_PURPOSE: Final = "gc.enabled"
_STATISTICS: Final = ("statistics", "partition-statistics")


def metadata_differences(
    replica: dict[str, Any], source: dict[str, Any], places: Places, *, pruned: bool, shown: int | None
) -> Iterator[str]:
    """Yield where a table's or view's metadata.json differs from its source.

    Args:
        replica: the replica's, parsed.
        source: the source's, parsed.
        places: takes URIs of the replica back to `main`.
        pruned: a policy may have taken snapshots out.
        shown: the snapshot that the catalog's entry names, which none may take out: engines open it.
    """
    gone = _ids(source) - _ids(replica)
    if shown in gone:
        yield f"the snapshot {shown}, which the catalog's entry names, is missing"
    wanted = _without(source, gone if pruned else gone & _staged(source))
    mine, theirs = _origins(replica, places), _origins(wanted, places)
    own = places.mapping.registry.views.own_catalogs
    if own and "view-uuid" in source:
        mine, theirs = without_own_catalogs(mine, theirs, own)
    yield from differences(_comparable(mine), _comparable(_without_statistics(theirs, mine)), "")


def differences(replica: Any, source: Any, path: str) -> Iterator[str]:
    """Yield where two values differ, each with the path to it; dictionaries and lists at any depth."""
    if isinstance(replica, dict) and isinstance(source, dict):
        for key in dict.fromkeys((*replica, *source)):
            where = f"{path}.{key}" if path else str(key)
            if key not in replica or key not in source:
                yield f"{where} is {'missing' if key not in replica else 'not in the source'}"
            else:
                yield from differences(replica[key], source[key], where)
    elif isinstance(replica, list) and isinstance(source, list):
        if len(replica) != len(source):
            yield f"{path} has {len(replica)} elements, the source {len(source)}"
        for number, (mine, theirs) in enumerate(zip(replica, source, strict=False)):
            yield from differences(mine, theirs, f"{path}[{number}]")
    elif type(replica) is not type(source) or repr(replica) != repr(source):  # a NaN is itself here
        yield f"{path} is {_shown(replica)}, in the source {_shown(source)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _origins(document: dict[str, Any], places: Places) -> dict[str, Any]:
    """Return a document with every URI below a replica root, in a place where URIs stand, taken back to its origin."""

    def back(value: Any) -> Any:
        return (places.origin(value) or value) if isinstance(value, str) else value

    def texts(values: Any) -> Any:
        return {name: back(value) for name, value in values.items()} if isinstance(values, dict) else values

    def members(items: Any, names: tuple[str, ...]) -> Any:
        return [
            {
                name: back(value) if name in names else texts(value) if name == "summary" else value
                for name, value in item.items()
            }
            for item in items
        ]

    changed = dict(document) | {
        "location": back(document.get("location")),
        "properties": texts(document.get("properties")),
    }
    for name in ("snapshots", "versions"):
        if document.get(name):
            changed[name] = members(document[name], ("manifest-list",))
            for item in changed[name]:
                item.update({"manifests": [back(path) for path in item["manifests"]]} if "manifests" in item else {})
    return changed | {name: members(document[name], ("statistics-path",)) for name in _STATISTICS if document.get(name)}


def without_own_catalogs(
    replica: dict[str, Any], source: dict[str, Any], own: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both documents of a view without what a replica does without: the names of its own catalog before those
    of relations, and a default catalog that is its own, or that SQL leans on no more.
    """
    mine, theirs = list(replica.get("versions") or ()), list(source.get("versions") or ())
    for at, (here, there) in enumerate(zip(mine, theirs, strict=False)):
        default = there.get("default-catalog")
        changed = here.get("representations") != there.get("representations")
        mine[at], theirs[at] = (_by_tokens(version, own) for version in (here, there))
        if here.get("default-catalog") is None and (default in own or changed):
            mine[at], theirs[at] = (version | {"default-catalog": None} for version in (mine[at], theirs[at]))
    return replica | {"versions": mine}, source | {"versions": theirs}


def _by_tokens(version: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
    representations = [
        item | {"sql": without_heads(str(item.get("sql")), str(item.get("dialect", "")), own)}
        for item in version.get("representations") or ()
    ]
    return version | {"representations": representations}


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without what is changed on purpose."""
    properties = {name: value for name, value in (document.get("properties") or {}).items() if name != _ON_PURPOSE}
    return {name: value for name, value in document.items() if name != "metadata-log"} | {"properties": properties}


def _without_statistics(document: dict[str, Any], replica: dict[str, Any]) -> dict[str, Any]:
    """Return the source's document without the statistics that the replica does without; readers may, too."""
    kept = {}
    for name in _STATISTICS:
        paths = {item.get("statistics-path") for item in replica.get(name) or ()}
        if document.get(name):
            kept[name] = [item for item in document[name] if item.get("statistics-path") in paths]
    return document | kept


def _ids(document: dict[str, Any]) -> set[Any]:
    return {item["snapshot-id"] for item in document.get("snapshots") or ()}


def _staged(document: dict[str, Any]) -> set[Any]:
    """Return the snapshots that were written for an audit and not published: no replica has them before they are."""
    staged = {
        item["snapshot-id"] for item in document.get("snapshots") or () if "wap.id" in (item.get("summary") or {})
    }
    published = {item["snapshot-id"] for item in document.get("snapshot-log") or ()}
    return staged - published - {ref.get("snapshot-id") for ref in (document.get("refs") or {}).values()}


def _without(document: dict[str, Any], gone: set[Any]) -> dict[str, Any]:
    """Return a table's document without some snapshots, as Iceberg's own expiry leaves it."""
    if not gone:
        return document
    changed = dict(document)
    for name in ("snapshots", *_STATISTICS):
        if name in document:
            changed[name] = [item for item in document[name] or () if item.get("snapshot-id") not in gone]
    log = document.get("snapshot-log") or []
    present = _ids(changed)
    # An entry whose snapshot is gone ends the history before it.
    start = next((index + 1 for index in reversed(range(len(log))) if log[index].get("snapshot-id") not in present), 0)
    return changed | ({"snapshot-log": log[start:]} if "snapshot-log" in document else {})
