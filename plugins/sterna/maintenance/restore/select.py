"""Which tables, views and namespaces a restore brings back, and by which operations of one commit; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sterna.catalog.model import (
    ICEBERG_TABLE,
    ICEBERG_VIEW,
    NAMESPACE,
    Content,
    Delete,
    Key,
    Operation,
    Put,
    key_name,
    namespace_content,
    parse_key,
)
from sterna.errors import NothingToRestore, TableLives
from sterna.maintenance.restore.model import RestoreRequest, Selected, Selection

_RESTORABLE = (ICEBERG_TABLE, ICEBERG_VIEW)
_UNCHANGED = "it is as it was then"
_LIVES = "it lives, and was changed since: --over replaces it"
_OTHER_KIND = "main has something of another kind under that name now: drop or rename it first"


def select(request: RestoreRequest, past: Mapping[Key, Content], present: Mapping[Key, Content]) -> Selection:
    """Return what a restore is to bring back.

    A table that was named itself has to come back. Of a namespace, or of everything, what lives is left alone and
    reported.

    Args:
        past: what `main` held at the commit.
        present: what it holds now.

    Raises:
        NothingToRestore: a name was of nothing at the commit, or can't be put where it is to go.
        TableLives: a table that was named lives, and isn't to be replaced.
    """
    tables: dict[Key, Selected] = {}
    namespaces: set[Key] = set()
    left: dict[str, str] = {}
    keys: list[Key] = [()] if request.everything else [parse_key(name) for name in request.names]
    for key in keys:
        name = key_name(key)
        content = past.get(key)
        if content is not None and content.kind != NAMESPACE:
            selected = _select_table(request, key, content, present)
            reason = _refusal(selected, request)
            if reason and reason != _UNCHANGED:
                raise _refused(selected, reason)
            _add(selected, reason, tables, left)
            continue
        if key and content is None:
            raise _unknown_name(name, key in present)
        if request.new_name:
            raise NothingToRestore(f"{name} is a namespace: --as goes with one table")
        for other, it in past.items():
            if _is_below(other, key) and it.kind == NAMESPACE:
                namespaces.add(other)
            elif _is_below(other, key):
                selected = Selected(other, other, it, present.get(other))
                _add(selected, _refusal(selected, request), tables, left)
    chosen = tuple(tables[key] for key in sorted(tables))
    return Selection(chosen, tuple(_missing_namespaces(chosen, namespaces, past, present)), left)


def _add(selected: Selected, reason: str, tables: dict[Key, Selected], left: dict[str, str]) -> None:
    if reason:
        left[key_name(selected.target)] = reason
    else:
        tables[selected.source] = selected


def restore_operations(selection: Selection, contents: Mapping[Key, Content]) -> list[Operation]:
    """Return the operations that put on `main` what is selected.

    Args:
        contents: by the key that each table or view gets, what `main` is to hold under it.
    """
    operations: list[Operation] = list(selection.namespaces)
    for selected in selection.tables:
        content, present = contents[selected.target], selected.present
        if present is not None and _is_same_table(selected, present):
            operations.append(Put(selected.target, content.with_id(present.id)))
            continue
        if present is not None:  # another table has the name: it is no version of this one
            operations.append(Delete(selected.target))
        operations.append(Put(selected.target, content.with_id(None)))
    return operations


def _select_table(request: RestoreRequest, key: Key, content: Content, present: Mapping[Key, Content]) -> Selected:
    target = parse_key(request.new_name) if request.new_name else key
    if request.new_name and (missing := [it for it in _parents(target) if it not in present]):
        raise NothingToRestore(f"there is no namespace {key_name(missing[0])} to put {key_name(target)} into")
    return Selected(key, target, content, present.get(target))


def _refusal(selected: Selected, request: RestoreRequest) -> str:
    """Return why a table or view can't come back, "" where it can."""
    if selected.content.kind not in _RESTORABLE or not selected.content.metadata_location:
        return f"contents of type {selected.content.kind} can't be restored"
    if selected.present is None:
        return ""
    if _is_unchanged(selected, selected.present):
        # The entry is as it was, and its files may be gone: a region's copies take their place.
        return "" if request.over and request.takes_copies else _UNCHANGED
    if selected.present.kind != selected.content.kind:
        return _OTHER_KIND
    return "" if request.over else _LIVES


def _is_same_table(selected: Selected, present: Content) -> bool:
    """Return whether what lives under the target is another version of the table, and no other table."""
    is_same = present.id == selected.content.id or _is_unchanged(selected, present)
    return is_same and selected.source == selected.target


def _is_unchanged(selected: Selected, present: Content) -> bool:
    return present.with_id(None) == selected.content.with_id(None)


def _refused(selected: Selected, reason: str) -> NothingToRestore | TableLives:
    name = key_name(selected.target)
    if reason == _LIVES:
        return TableLives(
            "a table or view lives under that name: it would be replaced by its earlier state",
            table=name,
            hint="--over replaces it, and keeps the present state on a branch; --as NAME puts the old one beside it",
        )
    return NothingToRestore(reason, table=name)


def _unknown_name(name: str, came_since: bool) -> NothingToRestore:
    if came_since:
        return NothingToRestore(
            f"{name} came after that commit: there is no earlier state of it", hint="a later moment"
        )
    return NothingToRestore(f"main had no table, view or namespace {name} then", hint="see sterna restore --list")


def _missing_namespaces(
    tables: Iterable[Selected], namespaces: Iterable[Key], past: Mapping[Key, Content], present: Mapping[Key, Content]
) -> Iterator[Put]:
    """Yield the namespaces that are gone and needed, or were to come back, parents first.

    Raises:
        NothingToRestore: something else has such a name now.
    """
    needed = {parent for selected in tables for parent in _parents(selected.target)}
    needed |= {parent for namespace in namespaces for parent in (*_parents(namespace), namespace)}
    for namespace in sorted(needed, key=lambda key: (len(key), key)):
        current = present.get(namespace)
        if current is None:
            content = past.get(namespace)
            yield Put(namespace, content.with_id(None) if content else namespace_content(namespace))
        elif current.kind != NAMESPACE:
            raise NothingToRestore(f"{key_name(namespace)} is no namespace any more", table=key_name(namespace))


def _is_below(key: Key, namespace: Key) -> bool:
    return key[: len(namespace)] == namespace


def _parents(key: Key) -> Iterator[Key]:
    return (key[:length] for length in range(1, len(key)))
