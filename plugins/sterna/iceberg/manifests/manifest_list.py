"""Manifest lists: the manifests of a snapshot, and their localized copy.

Source of the fields: Iceberg specification, "Manifest Lists" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import Unsupported
from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import FieldPositions, locate
from sterna.iceberg.avro.program import Capture, NotWalkable, Program, ProjectedField, compile_schema
from sterna.iceberg.avro.splice import Splice, Splices, encode_string, rewrite
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.header import open_manifest_container

_PATH: Final = 500
_LENGTH: Final = 501
_SPEC_ID: Final = 502
_ADDED_SNAPSHOT: Final = 503
_ADDED_FILES: Final = 504
_EXISTING_FILES: Final = 505
_CONTENT: Final = 517
_KEY_METADATA: Final = 519

_PROJECTED_FIELDS: Final = (
    ProjectedField(_PATH, ("manifest_path",), Capture.BYTES),
    ProjectedField(_LENGTH, ("manifest_length",), Capture.LONG),
    ProjectedField(_SPEC_ID, ("partition_spec_id",), Capture.LONG),
    ProjectedField(_ADDED_SNAPSHOT, ("added_snapshot_id",), Capture.LONG),
    # Format v1 calls the counts "data files".
    ProjectedField(_ADDED_FILES, ("added_files_count", "added_data_files_count"), Capture.LONG),
    ProjectedField(_EXISTING_FILES, ("existing_files_count", "existing_data_files_count"), Capture.LONG),
    ProjectedField(_CONTENT, ("content",), Capture.LONG),
    ProjectedField(_KEY_METADATA, ("key_metadata",), Capture.BYTES),
)


@dataclass(frozen=True)
class ManifestFile:
    """One row of a manifest list.

    Args:
        path: the manifest's URI.
        length: its size in bytes.
        content: 0 data, 1 deletes.
        added_snapshot_id: the snapshot that added it, if recorded.
        partition_spec_id: the partition spec its entries were written with.
        live_files: its number of added and existing entries, or None where the file has none.
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

    Returns:
        Its manifests, in order.

    Raises:
        Unsupported: format v4 or newer, encryption, an unknown codec or content.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse.
    """
    container = open_manifest_container(data, uri, "manifest list", limits)
    program = _compile(container)
    manifest_files: list[ManifestFile] = []
    for group in container.groups():
        manifest_files += _read_group(container, group, locate(program, group, container))
    return tuple(manifest_files)


def localize_manifest_list(
    data: bytes, uri: str, manifests: Mapping[str, LocalizedFile], limits: Limits = DEFAULT_LIMITS
) -> bytes | None:
    """Return a manifest list's localized copy: paths and lengths of its manifests changed.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        manifests: source URI of each manifest to its localized copy.

    Returns:
        The new file, or None when every manifest stays as it is.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_manifest_list`; also when `manifests` lacks a manifest.
    """
    container = open_manifest_container(data, uri, "manifest list", limits)
    program = _compile(container)

    def splices(group: Group) -> Splices:
        positions = locate(program, group, container)
        spans = [
            list(zip(positions.column(field_id, 0), positions.column(field_id, 2), strict=True))
            for field_id in (_PATH, _LENGTH)
        ]
        edits: list[Splice] = []
        for manifest, path, length in zip(_read_group(container, group, positions), *spans, strict=True):
            localized = manifests.get(manifest.path)
            if localized is None:
                raise container.broken(f"the manifest {manifest.path} was not localized")
            if localized.uri != manifest.path:
                edits.append((*path, encode_string(localized.uri)))
            if localized.length != manifest.length:
                edits.append((*length, encode_long(localized.length)))
        return Splices.of(sorted(edits))

    return rewrite(container, splices)


def _compile(container: Container) -> Program:
    try:
        program = compile_schema(container.schema, {None: _PROJECTED_FIELDS}, {}, container.uri)
    except NotWalkable as error:
        raise container.broken(f"not a manifest list: {error}") from None
    if not {_PATH, _LENGTH, _SPEC_ID} <= program.columns.keys():
        raise container.broken("the schema lacks a required field of manifest lists")
    return program


def _validate_required_fields(container: Container, positions: FieldPositions) -> None:
    for field_id in (_PATH, _LENGTH, _SPEC_ID):
        if -1 in positions.column(field_id, 0):
            raise container.broken(f"a manifest lacks the required field {field_id}")
    # Some writers set a key of zero bytes, which is none.
    if any(end > start for start, end in zip(*(positions.column(_KEY_METADATA, part) for part in (1, 2)), strict=True)):
        raise Unsupported("encrypted manifests", file=container.uri)


def _read_group(container: Container, group: Group, positions: FieldPositions) -> list[ManifestFile]:
    _validate_required_fields(container, positions)
    rows = zip(
        positions.column(_PATH, 1),
        positions.column(_PATH, 2),
        positions.column(_LENGTH, 1),
        _nullable_column(positions, _CONTENT),
        _nullable_column(positions, _ADDED_SNAPSHOT),
        positions.column(_SPEC_ID, 1),
        _nullable_column(positions, _ADDED_FILES),
        _nullable_column(positions, _EXISTING_FILES),
        strict=True,
    )
    manifest_files: list[ManifestFile] = []
    for start, end, length, content, snapshot, spec, added, existing in rows:
        _validate_manifest(container, length, content, added, existing)
        live = None if added is None or existing is None else added + existing
        path = _decode_path(container, group.data[start:end])
        manifest_files.append(ManifestFile(path, length, content or 0, snapshot, spec, live))
    return manifest_files


def _nullable_column(positions: FieldPositions, field_id: int) -> list[int | None]:
    return [
        None if start < 0 else value
        for start, value in zip(positions.column(field_id, 0), positions.column(field_id, 1), strict=True)
    ]


def _validate_manifest(
    container: Container, length: int, content: int | None, added: int | None, existing: int | None
) -> None:
    if length < 0 or (added or 0) < 0 or (existing or 0) < 0:
        raise container.broken("a manifest with a negative length or count")
    if content not in (None, 0, 1):
        raise Unsupported(f"a manifest of content {content}", file=container.uri)


def _decode_path(container: Container, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise container.broken("a manifest path that is not UTF-8") from None
