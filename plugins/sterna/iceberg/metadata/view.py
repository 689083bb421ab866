"""A view's metadata.json: its localized copy.

Source of the fields: Iceberg view specification, version 1. The SQL text names catalogs and tables, not files: it
stays, but for names of the view's own catalog. With those a reader of the replica would read `main`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import Unsupported
from sterna.iceberg.json_text import Document, Edit, Token, quote, read_document, replacement_edits
from sterna.iceberg.metadata.edits import property_edits, summary_edits
from sterna.iceberg.metadata.view_names import UNCERTAIN, Sql, parse_sql, strip_own_catalogs

_MAX_FORMAT_VERSION: Final = 1


@dataclass(frozen=True)
class ViewMetadata:
    """What sterna reads of a view's metadata.json.

    Args:
        format_version: 1.
        uuid: the view's UUID.
        location: the view's base location.
    """

    format_version: int
    uuid: str
    location: str
    properties: dict[str, str]


def read_view_metadata(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> ViewMetadata:
    """Read a view's metadata.json of format version 1.

    Args:
        data: the file's bytes, gzip or not.
        uri: the file's URI, for errors.

    Returns:
        The parts that name files, and the view's identity.

    Raises:
        Unsupported: a newer format version.
        BrokenMetadata: the file does not parse, or lacks a required field.
        OverLimit: the file is larger than the limits allow, or holds more.
    """
    document = read_document(data, uri, limits)
    return _parse(document, document.members(document.root()))


def _parse(document: Document, members: Mapping[str, Token]) -> ViewMetadata:
    version = members["format-version"].value if "format-version" in members else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise document.broken("'format-version' is missing or not a version")
    if version > _MAX_FORMAT_VERSION:
        raise Unsupported(f"view format version {version}", file=document.uri)
    return ViewMetadata(
        format_version=version,
        uuid=document.string(members, "view-uuid"),
        location=document.string(members, "location"),
        properties=document.string_map(members.get("properties")),
    )


def localize_view_metadata(
    data: bytes,
    uri: str,
    *,
    map_root: Callable[[str], str],
    map_property: Callable[[str], str | None],
    own_catalogs: Collection[str] = (),
    other_catalogs: Collection[str] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the replica's copy of a view's metadata.json: its paths changed, all other characters as they were.

    Names of a version's own catalog are removed where the meaning is the same without: `default-catalog` is null, and
    names of tables in the SQL begin with the namespace.

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        map_root: maps a URI to its place below the replica root, be it local or not.
        map_property: maps a whole value that is a URI with a registered prefix; None for every other value.
        own_catalogs: names that engines have for the catalog of the view.
        other_catalogs: names of catalogs that are the same wherever the view is read.

    Returns:
        The localized file.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_view_metadata`.
    """
    document = read_document(data, uri, limits)
    members = document.members(document.root())
    _parse(document, members)
    location = members["location"]
    edits = [Edit(location.start, location.end, quote(map_root(location.value)))]
    properties = members.get("properties")
    if properties is not None and properties.value:
        for key, token in document.members(properties).items():
            edits += property_edits(document, key, token, map_root, map_property)
    versions = members.get("versions")
    for version in document.objects(versions) if versions is not None else []:
        edits += summary_edits(document, version.members.get("summary"), map_property)
        edits += _catalog_edits(document, version.members, own_catalogs, other_catalogs) if own_catalogs else []
    return document.write(edits)


def named_catalogs(
    data: bytes,
    uri: str,
    *,
    own_catalogs: Collection[str],
    other_catalogs: Collection[str],
    has_namespace: Callable[[str], bool],
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[str, ...]:
    """Return the catalogs that the current version of a view's localized copy names and no setting accepts.

    `UNCERTAIN` is among them where its SQL can't be read with certainty.

    Args:
        data: the file's bytes on `main`.
        uri: the file's URI, for errors.
        own_catalogs: names that engines have for the catalog of the view; a version that can't do without them names
            them still.
        other_catalogs: names of catalogs that are the same wherever the view is read.
        has_namespace: returns whether the view's catalog has a namespace of that name at its root.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_view_metadata`.
    """
    document = read_document(data, uri, limits)
    members = document.members(document.root())
    _parse(document, members)
    versions, current = members.get("versions"), members.get("current-version-id")
    named: set[str] = set()
    for version in document.objects(versions) if versions is not None else []:
        version_id = version.members.get("version-id")
        if current is None or version_id is None or version_id.value == current.value:
            named |= _remaining_catalogs(document, version.members, own_catalogs, other_catalogs, has_namespace)
    return tuple(sorted(named - set(other_catalogs)))


@dataclass(frozen=True)
class _Representation:
    """One representation: the span of its text, what it names, and the text without its own catalog's names; None
    where that can't be had.
    """

    token: Token
    sql: Sql
    unqualified_text: str | None

    def uses_default_catalog(self, own_catalogs: Collection[str]) -> bool:
        """Return whether a relation in it depends on the default catalog."""
        own_names = self.sql.fold_names(own_catalogs)
        return any(len(name.parts) == 1 or name.parts[0] not in own_names for name in self.sql.relations())


def _representations(
    document: Document, members: Mapping[str, Token], own_catalogs: Collection[str], other_catalogs: Collection[str]
) -> list[_Representation]:
    token, representations = members.get("representations"), []
    for representation in document.objects(token) if token is not None else []:
        text, dialect = representation.members.get("sql"), representation.members.get("dialect")
        if text is not None and isinstance(text.value, str):
            sql = parse_sql(text.value, str(dialect.value) if dialect else "")
            representations.append(_Representation(text, sql, strip_own_catalogs(sql, own_catalogs, other_catalogs)))
    return representations


def _catalog_edits(
    document: Document, members: Mapping[str, Token], own_catalogs: Collection[str], other_catalogs: Collection[str]
) -> list[Edit]:
    """Return the edits after which a version names its own catalog no more, as far as it can do without."""
    default, representations = (
        members.get("default-catalog"),
        _representations(document, members, own_catalogs, other_catalogs),
    )
    default_is_other = default is not None and default.value is not None and default.value not in own_catalogs
    if default_is_other and any(
        representation.unqualified_text in (None, representation.token.value)
        or representation.uses_default_catalog(own_catalogs)
        for representation in representations
    ):
        return []  # what names no catalog is another one's
    changed = [
        representation
        for representation in representations
        if representation.unqualified_text not in (None, representation.token.value)
    ]
    edits = [
        edit
        for representation in changed
        for edit in replacement_edits(representation.token, representation.unqualified_text or "")
    ]
    if default is not None and default.value is not None and (not default_is_other or changed):
        edits.append(Edit(default.start, default.end, "null"))
    return edits


def _remaining_catalogs(
    document: Document,
    members: Mapping[str, Token],
    own_catalogs: Collection[str],
    other_catalogs: Collection[str],
    has_namespace: Callable[[str], bool],
) -> set[str]:
    """Return which catalogs a version names when its own names are gone, as far as they can go."""
    edits = _catalog_edits(document, members, own_catalogs, other_catalogs) if own_catalogs else ()
    edited_spans = {(edit.start, edit.end) for edit in edits}
    named: set[str] = set()
    default = members.get("default-catalog")
    for representation in _representations(document, members, own_catalogs, other_catalogs):
        own_names = representation.sql.fold_names(own_catalogs)
        named |= {
            head for head in representation.sql.catalog_candidates() if not (head in own_names or has_namespace(head))
        }
        if (representation.token.start, representation.token.end) not in edited_spans:
            named |= {name.parts[0] for name in representation.sql.names_qualified_by(own_catalogs)}
        named |= set() if representation.sql.unambiguous else {UNCERTAIN}
        if default is not None and isinstance(default.value, str) and (default.start, default.end) not in edited_spans:
            named |= {default.value} if representation.sql.relations() or not representation.sql.unambiguous else set()
    return named
