"""The delete files that a client adds: which data files they name, and their copies with `main`'s names.

Those that name files of this region alone stay as they are. A Puffin that several entries share is read, and written,
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sterna.config.limits import Limits
from sterna.errors import BadUpdate
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.iceberg.deletes.puffin import read_deletion_vectors
from sterna.iceberg.files import LocalizedFile
from sterna.replication.execution.orc_sandbox import localize_orc_in_subprocess
from sterna.serving.rest_catalog.client_files import ClientFiles, client_fault
from sterna.serving.rest_catalog.new_manifests import NamedFiles

_ENDINGS: Final = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro", b"PFA1": "puffin"}
_PUFFIN: Final = b"PFA1"

Put = Callable[[str, bytes, str], LocalizedFile]
"""Writes a file: the ending of its name, its content, and the client's file that it replaces."""


def referenced_files(client: ClientFiles, files: NamedFiles, limits: Limits) -> set[str]:
    """Return the data files that new delete files name, in their rows, footers and entries.

    Args:
        files: what the new manifests name.

    Raises:
        BadUpdate: a delete file isn't there, is broken, or isn't what its entries say.
        StoreUnreachable, StoreDenied: one can't be read.
    """
    references = set(files.referenced)

    def collect(path: str) -> str:
        references.add(path)
        return path

    for uri in files.added_deletes:
        data = client.read(uri)
        _require_vectors(data, uri, files.vectors.get(uri), limits)
        _localize(data, uri, collect, limits)
    return references


def write_deletes(
    client: ClientFiles, uris: Iterable[str], map_content: Callable[[str], str], limits: Limits, put: Put
) -> dict[str, LocalizedFile]:
    """Write new delete files again where they name a file that has another name on `main`.

    Args:
        uris: the delete files.
        map_content: maps the URI of a data file to its name on `main`.
        put: writes one.

    Returns:
        By URI, what `main` is to name: the client's own file where nothing in it changes.

    Raises:
        ForeignFile: as `map_content`.
        BadUpdate: a delete file changed since it was read first.
        StoreUnreachable, StoreDenied: one can't be read or written.
    """
    written: dict[str, LocalizedFile] = {}
    for uri in uris:
        data = client.read(uri)
        localized = _localize(data, uri, map_content, limits)
        if localized is None:
            written[uri] = LocalizedFile(uri, len(data))
        else:
            ending = next(ending for first, ending in _ENDINGS.items() if localized.startswith(first))
            written[uri] = put(f"-deletes.{ending}", localized, uri)
    return written


def _localize(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    with client_fault(uri):
        return localize_position_deletes(
            data, uri, map_content=map_content, limits=limits, localize_orc=localize_orc_in_subprocess
        )


def _require_vectors(
    data: bytes, uri: str, stated: Mapping[int, tuple[int | None, str]] | None, limits: Limits
) -> None:
    """Require that a Puffin has the deletion vectors that its entries say, and that no other file is said to be one."""
    if data.startswith(_PUFFIN) != (stated is not None):
        raise BadUpdate("a delete file of another format than its entry says", file=uri)
    if stated is None:
        return
    with client_fault(uri):
        vectors = read_deletion_vectors(data, uri, limits)
    for offset, vector in stated.items():
        if vectors.get(offset) != vector:
            raise BadUpdate(f"the Puffin has no such deletion vector at its byte {offset} as the entry says", file=uri)
