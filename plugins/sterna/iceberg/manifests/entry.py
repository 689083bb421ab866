"""One entry of a manifest: what may be done with it, and what localizing changes in it.

The rules are here once; `spans` and `records` are two ways to write their outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.fields import (
    ADDED_OR_EXISTING,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    POSITION_DELETES,
    PUFFIN,
    ROW_FORMATS,
)
from sterna.libraries import pa, pc

MapUris = Callable[["pa.StringArray"], "pa.StringArray"]
"""Maps URIs without nulls to as many."""


def over_columns(map_uri: Callable[[str], str]) -> MapUris:
    """Return a function of columns that maps one URI after the other."""
    return lambda uris: pa.array([map_uri(uri) for uri in uris.to_pylist()], pa.string())


@dataclass(frozen=True)
class EntryColumns:
    """The wanted fields of some entries, as parallel Arrow arrays without nulls.

    Args:
        status: 0 existing, 1 added, 2 deleted (int64).
        content: 0 data, 1 position deletes, 2 equality deletes (int64).
        file_path: URIs.
        file_format: in upper case.
        file_size: in bytes (int64).
        encrypted: whether the entry has key metadata; zero bytes, which some writers set, are none.
        has_offset: whether it points into a file, as deletion vectors do.
        has_referenced_data_file: whether it names the data file that all its deletes are for; an empty name is none.
    """

    status: pa.Int64Array
    content: pa.Int64Array
    file_path: pa.StringArray
    file_format: pa.StringArray
    file_size: pa.Int64Array
    encrypted: pa.BooleanArray
    has_offset: pa.BooleanArray
    has_referenced_data_file: pa.BooleanArray

    @property
    def is_deletion_vector(self) -> pa.BooleanArray:
        """Which entries are deletion vectors: no reader uses an offset in another format."""
        return pc.equal(self.file_format, PUFFIN)

    def target_uris(self, map_content: MapUris, map_deleted: MapUris) -> pa.StringArray:
        """Return where this region reads the file of each entry; see `UriMapping`."""
        is_deleted = pc.equal(self.status, DELETED)
        if not is_deleted.true_count:
            return map_content(self.file_path)
        is_live = pc.invert(is_deleted)
        targets = pc.replace_with_mask(self.file_path, is_live, map_content(self.file_path.filter(is_live)))
        return pc.replace_with_mask(targets, is_deleted, map_deleted(self.file_path.filter(is_deleted)))

    @property
    def references_other_files(self) -> bool:
        """Whether an entry is of position deletes, or refers to another file: then more than its own path changes."""
        return bool(self.has_referenced_data_file.true_count) or POSITION_DELETES in self.content.unique().to_pylist()

    def validate(self, uri: str) -> None:
        """Refuse what this version does not localize; see `validate_entry`."""
        columns = (
            self.status,
            self.content,
            self.file_format,
            self.encrypted,
            self.has_offset,
            self.has_referenced_data_file,
        )
        distinct_values = [column.unique().to_pylist() for column in columns]
        # Entries are many and their kinds are few: where one column differs at most, each of its values has been seen
        # with the others.
        is_mixed = sum(len(values) > 1 for values in distinct_values) > 1
        combinations = (
            dict.fromkeys(zip(*(column.to_pylist() for column in columns), strict=True))
            if is_mixed
            else product(*distinct_values)
        )
        for combination in combinations:
            validate_entry(uri, *combination)


@dataclass(frozen=True)
class Scan:
    """What one walk over a manifest gives.

    Args:
        groups: the entries, some at a time, and where this region reads the file of each.
        localized: the localized manifest, None when nothing changes.
    """

    groups: list[tuple[EntryColumns, pa.StringArray]]
    localized: bytes | None


class ReferencesOtherFiles(Exception):
    """A manifest can't be localized by the mapping alone: its entries name what other files have become."""


@dataclass(frozen=True)
class UriMapping:
    """How the URIs inside a manifest are mapped.

    Args:
        map_content: maps the URI of a content file.
        deletes: source URI of each live position delete file, or Puffin with deletion vectors, to its localized copy.
        map_deleted_deletes: maps the URI of such a file in a DELETED entry: it may be gone and is never opened.
        map_deleted: maps the URI of any other content file in a DELETED entry.
    """

    map_content: Callable[[str], str]
    deletes: Mapping[str, LocalizedFile]
    map_deleted_deletes: Callable[[str], str]
    map_deleted: Callable[[str], str]


@dataclass(frozen=True)
class Entry:
    """The fields of a delete manifest's entry that localizing reads.

    Args:
        status: 0 existing, 1 added, 2 deleted.
        content: 0 data, 1 position deletes, 2 equality deletes.
        path: `file_path`.
        size: `file_size_in_bytes`.
        is_deletion_vector: whether it is a deletion vector: one blob of its file.
        referenced_data_file: `referenced_data_file`, or None.
        lower_bound: the lower bound of the deleted rows' `file_path`, or None.
        upper_bound: its upper bound, or None.
    """

    status: int
    content: int
    path: str
    size: int
    is_deletion_vector: bool
    referenced_data_file: str | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True)
class EntryChange:
    """What an entry becomes; where a value equals the entry's own, nothing is to be done.

    Args:
        path: the new `file_path`.
        size: the new `file_size_in_bytes`.
        referenced_data_file: the new `referenced_data_file`, or None.
        lower_bound: the new lower bound of `file_path`, or None: then there may be none.
        upper_bound: the new upper bound, likewise.
        drop_layout: whether `split_offsets` and `column_sizes` describe bytes that are not there any more.
    """

    path: str
    size: int
    referenced_data_file: str | None
    lower_bound: bytes | None
    upper_bound: bytes | None
    drop_layout: bool


def localize_entry(entry: Entry, mapping: UriMapping, uri: str) -> EntryChange:
    """Decide what localizing changes in one entry.

    A position delete at another URI counts as rewritten, so its split offsets and column sizes are removed: both are
    optional, and a rewritten file may happen to have its old length. In a Puffin every blob stays where it was.

    Args:
        mapping: how URIs are mapped.
        uri: the manifest's URI, for errors.

    Raises:
        BrokenMetadata: a live position delete is missing in `mapping.deletes`, or a bound is not UTF-8.
    """
    map_content = mapping.map_deleted if entry.status == DELETED else mapping.map_content
    referenced = map_content(entry.referenced_data_file) if entry.referenced_data_file else None
    if entry.content != POSITION_DELETES:
        return EntryChange(map_content(entry.path), entry.size, referenced, entry.lower_bound, entry.upper_bound, False)
    localized = _localized_file(entry, mapping, uri)
    moved = localized.uri != entry.path
    lower, upper = _bounds(entry, map_content, moved, uri)
    drop_layout = moved and entry.status != DELETED and not entry.is_deletion_vector
    return EntryChange(localized.uri, localized.length, referenced, lower, upper, drop_layout)


def _localized_file(entry: Entry, mapping: UriMapping, uri: str) -> LocalizedFile:
    if entry.status == DELETED:
        return LocalizedFile(mapping.map_deleted_deletes(entry.path), entry.size)
    if entry.path not in mapping.deletes:
        raise BrokenMetadata(f"the position delete file {entry.path} was not localized", file=uri)
    return mapping.deletes[entry.path]


def validate_entry(
    uri: str,
    status: int,
    content: int,
    file_format: str,
    encrypted: bool,
    has_offset: bool,
    has_referenced_data_file: bool,
) -> None:
    """Refuse what this version does not localize.

    DELETED entries are only mapped, never opened: there no format is refused.

    Raises:
        Unsupported: an encrypted file, an unknown content, position deletes in an unknown format.
        BrokenMetadata: no such status, a Puffin that is no deletion vector, a deletion vector that lacks what it needs.
    """
    if status == DELETED:
        return
    if status not in ADDED_OR_EXISTING:
        raise BrokenMetadata(f"an entry of status {status}", file=uri)
    if encrypted:
        raise Unsupported("encrypted data or delete files", file=uri)
    if content not in (DATA, POSITION_DELETES, EQUALITY_DELETES):
        raise Unsupported(f"a file of content {content}", file=uri)
    if file_format == PUFFIN:
        _validate_deletion_vector(content, has_offset, has_referenced_data_file, uri)
    elif content == POSITION_DELETES and file_format not in ROW_FORMATS:
        raise Unsupported(f"position deletes in {file_format}", file=uri)


def _validate_deletion_vector(content: int, has_offset: bool, has_referenced_data_file: bool, uri: str) -> None:
    if not has_offset:
        raise BrokenMetadata("a Puffin file without a content offset", file=uri)
    if content != POSITION_DELETES:
        raise BrokenMetadata(f"a Puffin file of content {content}", file=uri)
    if not has_referenced_data_file:
        raise BrokenMetadata("a deletion vector that does not name its data file", file=uri)


def _bounds(
    entry: Entry, map_content: Callable[[str], str], moved: bool, uri: str
) -> tuple[bytes | None, bytes | None]:
    # Equal bounds are one whole path. Others may be cut, and two prefixes may change the order: they hold for the
    # source's rows alone.
    if entry.lower_bound is None or entry.lower_bound != entry.upper_bound:
        return (None, None) if moved else (entry.lower_bound, entry.upper_bound)
    try:
        bound = map_content(entry.lower_bound.decode("utf-8")).encode()
    except UnicodeDecodeError:
        raise BrokenMetadata("a path bound that is not UTF-8", file=uri) from None
    return bound, bound
