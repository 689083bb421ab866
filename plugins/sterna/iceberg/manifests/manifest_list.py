"""Manifest lists: the manifests of a snapshot, and their localized copy.

Source of the fields: Iceberg specification, "Manifest Lists" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sterna.errors import Unsupported
from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import Located, locate
from sterna.iceberg.avro.program import NotWalkable, Program, Take, Want, compile_schema
from sterna.iceberg.avro.splice import Splice, rewrite, string_bytes
from sterna.iceberg.files import Written
from sterna.iceberg.manifests.header import open_iceberg
from sterna.limits import DEFAULT_LIMITS, Limits

_PATH: Final = 500
_LENGTH: Final = 501
_SPEC_ID: Final = 502
_ADDED_SNAPSHOT: Final = 503
_ADDED_FILES: Final = 504
_EXISTING_FILES: Final = 505
_CONTENT: Final = 517
_KEY_METADATA: Final = 519

_WANTS: Final = (
    Want(_PATH, ("manifest_path",), Take.BYTES),
    Want(_LENGTH, ("manifest_length",), Take.LONG),
    Want(_SPEC_ID, ("partition_spec_id",), Take.LONG),
    Want(_ADDED_SNAPSHOT, ("added_snapshot_id",), Take.LONG),
    # Format v1 calls the counts "data files".
    Want(_ADDED_FILES, ("added_files_count", "added_data_files_count"), Take.LONG),
    Want(_EXISTING_FILES, ("existing_files_count", "existing_data_files_count"), Take.LONG),
    Want(_CONTENT, ("content",), Take.LONG),
    Want(_KEY_METADATA, ("key_metadata",), Take.BYTES),
)


@dataclass(frozen=True)
class ManifestFile:
    """One row of a manifest list.

    Args:
        path: the manifest's URI.
        length: its size in bytes.
        content: 0 data, 1 deletes.
        added_snapshot_id: the snapshot that added it, if the file says so.
        partition_spec_id: the partition spec its entries were written with.
        live_files: its number of added and existing entries, or None where the file does not say.
    """

    path: str
    length: int
    content: int
    added_snapshot_id: int | None
    partition_spec_id: int
    live_files: int | None


def read_manifest_list(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> tuple[ManifestFile, ...]:
    """Read a manifest list.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        limits: of the region.

    Returns:
        Its manifests, in order.

    Raises:
        Unsupported: format v4 or newer, encryption, an unknown codec or content.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse.
    """
    container = open_iceberg(data, uri, "manifest list", limits)
    program = _compile(container)
    found: list[ManifestFile] = []
    for group in container.groups():
        found += _read(container, group, locate(program, group, container))
    return tuple(found)


def localize_manifest_list(
    data: bytes, uri: str, manifests: Mapping[str, Written], limits: Limits = DEFAULT_LIMITS
) -> bytes | None:
    """Return a manifest list's localized copy: paths and lengths of its manifests changed.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        manifests: source URI of each manifest to its localized copy.
        limits: of the region.

    Returns:
        The new file, or None when every manifest stays as it is.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_manifest_list`; also when `manifests` lacks a manifest.
    """
    container = open_iceberg(data, uri, "manifest list", limits)
    program = _compile(container)

    def splices(group: Group) -> list[Splice]:
        located = locate(program, group, container)
        places = [
            list(zip(located.column(number, 0), located.column(number, 2), strict=True)) for number in (_PATH, _LENGTH)
        ]
        found: list[Splice] = []
        for manifest, path, length in zip(_read(container, group, located), *places, strict=True):
            written = manifests.get(manifest.path)
            if written is None:
                raise container.broken(f"the manifest {manifest.path} was not localized")
            if written.uri != manifest.path:
                found.append((*path, string_bytes(written.uri)))
            if written.length != manifest.length:
                found.append((*length, encode_long(written.length)))
        return sorted(found)

    return rewrite(container, splices)


def _compile(container: Container) -> Program:
    try:
        program = compile_schema(container.schema, {None: _WANTS}, {}, container.uri)
    except NotWalkable as error:
        raise container.broken(f"not a manifest list: {error}") from None
    if not {_PATH, _LENGTH, _SPEC_ID} <= program.columns.keys():
        raise container.broken("the schema lacks a required field of manifest lists")
    return program


def _check_presence(container: Container, located: Located) -> None:
    for number in (_PATH, _LENGTH, _SPEC_ID):
        if -1 in located.column(number, 0):
            raise container.broken(f"a manifest lacks the required field {number}")
    # Some writers set a key of zero bytes, which is none.
    if any(end > start for start, end in zip(*(located.column(_KEY_METADATA, part) for part in (1, 2)), strict=True)):
        raise Unsupported("encrypted manifests", file=container.uri)


def _read(container: Container, group: Group, located: Located) -> list[ManifestFile]:
    _check_presence(container, located)
    rows = zip(
        located.column(_PATH, 1),
        located.column(_PATH, 2),
        located.column(_LENGTH, 1),
        _optional(located, _CONTENT),
        _optional(located, _ADDED_SNAPSHOT),
        located.column(_SPEC_ID, 1),
        _optional(located, _ADDED_FILES),
        _optional(located, _EXISTING_FILES),
        strict=True,
    )
    found: list[ManifestFile] = []
    for start, end, length, content, snapshot, spec, added, existing in rows:
        _check(container, length, content, added, existing)
        live = None if added is None or existing is None else added + existing
        path = _text(container, group.data[start:end])
        found.append(ManifestFile(path, length, content or 0, snapshot, spec, live))
    return found


def _optional(located: Located, number: int) -> list[int | None]:
    return [
        None if start < 0 else value
        for start, value in zip(located.column(number, 0), located.column(number, 1), strict=True)
    ]


def _check(container: Container, length: int, content: int | None, added: int | None, existing: int | None) -> None:
    if length < 0 or (added or 0) < 0 or (existing or 0) < 0:
        raise container.broken("a manifest with a negative length or count")
    if content not in (None, 0, 1):
        raise Unsupported(f"a manifest of content {content}", file=container.uri)


def _text(container: Container, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise container.broken("a manifest path that is not UTF-8") from None
