"""Comparison of a replica's metadata.json with its source, apart from locations and the few values that are changed on
purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from sterna.replication.verify.locations import Places
from sterna.replication.verify.view_names import tokens_without_catalogs

_REWRITTEN_PROPERTY: Final = "gc.enabled"
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
    missing = _snapshot_ids(source) - _snapshot_ids(replica)
    if shown in missing:
        yield f"the snapshot {shown}, which the catalog's entry names, is missing"
    expected = _without_snapshots(source, missing if pruned else missing & _staged_snapshots(source))
    replica_document, source_document = _with_source_uris(replica, places), _with_source_uris(expected, places)
    own_catalogs = places.mapping.registry.views.own_catalogs
    if own_catalogs and "view-uuid" in source:
        replica_document, source_document = strip_own_catalogs(replica_document, source_document, own_catalogs)
    yield from differences(
        _comparable(replica_document), _comparable(_without_statistics(source_document, replica_document)), ""
    )


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
        for number, (replica_element, source_element) in enumerate(zip(replica, source, strict=False)):
            yield from differences(replica_element, source_element, f"{path}[{number}]")
    elif type(replica) is not type(source) or repr(replica) != repr(source):  # a NaN is itself here
        yield f"{path} is {_shorten(replica)}, in the source {_shorten(source)}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _with_source_uris(document: dict[str, Any], places: Places) -> dict[str, Any]:
    """Return a document whose URI fields are mapped from below a replica root back to their origin."""

    def to_source(value: Any) -> Any:
        return (places.origin(value) or value) if isinstance(value, str) else value

    def map_texts(values: Any) -> Any:
        return {name: to_source(value) for name, value in values.items()} if isinstance(values, dict) else values

    def map_members(items: Any, names: tuple[str, ...]) -> Any:
        return [
            {
                name: to_source(value) if name in names else map_texts(value) if name == "summary" else value
                for name, value in item.items()
            }
            for item in items
        ]

    changed = dict(document) | {
        "location": to_source(document.get("location")),
        "properties": map_texts(document.get("properties")),
    }
    for name in ("snapshots", "versions"):
        if document.get(name):
            changed[name] = map_members(document[name], ("manifest-list",))
            for item in changed[name]:
                item.update(
                    {"manifests": [to_source(path) for path in item["manifests"]]} if "manifests" in item else {}
                )
    return changed | {
        name: map_members(document[name], ("statistics-path",)) for name in _STATISTICS if document.get(name)
    }


def strip_own_catalogs(
    replica: dict[str, Any], source: dict[str, Any], own_catalogs: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both documents of a view without what a replica does without: the names of its own catalog before those
    of relations, and a default catalog that is its own, or that SQL leans on no more.
    """
    replica_versions, source_versions = list(replica.get("versions") or ()), list(source.get("versions") or ())
    for index, (replica_version, source_version) in enumerate(zip(replica_versions, source_versions, strict=False)):
        default = source_version.get("default-catalog")
        changed = replica_version.get("representations") != source_version.get("representations")
        replica_versions[index], source_versions[index] = (
            _tokenize_sql(version, own_catalogs) for version in (replica_version, source_version)
        )
        if replica_version.get("default-catalog") is None and (default in own_catalogs or changed):
            replica_versions[index], source_versions[index] = (
                version | {"default-catalog": None} for version in (replica_versions[index], source_versions[index])
            )
    return replica | {"versions": replica_versions}, source | {"versions": source_versions}


def _tokenize_sql(version: dict[str, Any], own_catalogs: Collection[str]) -> dict[str, Any]:
    representations = [
        representation
        | {
            "sql": tokens_without_catalogs(
                str(representation.get("sql")), str(representation.get("dialect", "")), own_catalogs
            )
        }
        for representation in version.get("representations") or ()
    ]
    return version | {"representations": representations}


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without what is changed on purpose."""
    properties = {
        name: value for name, value in (document.get("properties") or {}).items() if name != _REWRITTEN_PROPERTY
    }
    return {name: value for name, value in document.items() if name != "metadata-log"} | {"properties": properties}


def _without_statistics(document: dict[str, Any], replica: dict[str, Any]) -> dict[str, Any]:
    """Return the source's document without the statistics that the replica does without; readers may, too."""
    kept = {}
    for name in _STATISTICS:
        paths = {item.get("statistics-path") for item in replica.get(name) or ()}
        if document.get(name):
            kept[name] = [item for item in document[name] if item.get("statistics-path") in paths]
    return document | kept


def _snapshot_ids(document: dict[str, Any]) -> set[Any]:
    return {item["snapshot-id"] for item in document.get("snapshots") or ()}


def _staged_snapshots(document: dict[str, Any]) -> set[Any]:
    """Return the snapshots that were written for an audit and not published: no replica has them before they are."""
    staged = {
        item["snapshot-id"] for item in document.get("snapshots") or () if "wap.id" in (item.get("summary") or {})
    }
    published = {item["snapshot-id"] for item in document.get("snapshot-log") or ()}
    return staged - published - {ref.get("snapshot-id") for ref in (document.get("refs") or {}).values()}


def _without_snapshots(document: dict[str, Any], removed: set[Any]) -> dict[str, Any]:
    """Return a table's document without some snapshots, as Iceberg's own expiry leaves it."""
    if not removed:
        return document
    changed = dict(document)
    for name in ("snapshots", *_STATISTICS):
        if name in document:
            changed[name] = [item for item in document[name] or () if item.get("snapshot-id") not in removed]
    log = document.get("snapshot-log") or []
    present = _snapshot_ids(changed)
    # An entry whose snapshot is gone ends the history before it.
    start = next((index + 1 for index in reversed(range(len(log))) if log[index].get("snapshot-id") not in present), 0)
    return changed | ({"snapshot-log": log[start:]} if "snapshot-log" in document else {})
