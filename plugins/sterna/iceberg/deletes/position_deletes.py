"""Position deletes in every format: their localized copy.

Source of the formats: Iceberg specification, "Position Delete Files" and "Deletion Vectors". The paths are in the rows,
or in a Puffin footer; copied as they are, they would match no data file and the deleted rows would reappear.
"""

from __future__ import annotations

from collections.abc import Callable

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata, Unsupported

LocalizeOrc = Callable[[bytes, str, Callable[[str], str], Limits], bytes | None]


def localize_position_deletes(
    data: bytes,
    uri: str,
    *,
    map_content: Callable[[str], str],
    limits: Limits = DEFAULT_LIMITS,
    localize_orc: LocalizeOrc | None = None,
) -> bytes | None:
    """Return the localized copy of a position delete file, or of a Puffin file with deletion vectors.

    Paths are mapped, and rows sorted by (file_path, pos). Schema, field ids, key-value metadata and codec are the
    source's; the same input gives the same bytes. The format is detected by the first bytes.

    Args:
        data: the file's bytes: Parquet, ORC, Avro or Puffin.
        uri: its URI, for errors.
        map_content: maps the URI of a data file.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: an encrypted file, or one that can't be written back as it was.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: no readable position deletes.
    """
    limits.check("file_bytes", len(data), "bytes of a delete file", uri)
    # Each format has its own libraries: only those that are needed are imported.
    if data.startswith((b"PAR1", b"PARE")):
        from sterna.iceberg.deletes.parquet import localize_parquet

        return localize_parquet(data, uri, map_content, limits)
    if data.startswith(b"ORC"):
        if localize_orc is not None:
            return localize_orc(data, uri, map_content, limits)
        from sterna.iceberg.deletes.orc import localize_orc as localize_here

        return localize_here(data, uri, map_content, limits)
    if data.startswith(b"Obj\x01"):
        from sterna.iceberg.deletes.avro import localize_avro

        return localize_avro(data, uri, map_content, limits)
    if data.startswith(b"PFA1"):
        from sterna.iceberg.deletes.puffin import localize_puffin

        return localize_puffin(data, uri, map_content, limits)
    if data.startswith(b"AGS1"):
        raise Unsupported("encrypted position deletes", file=uri)
    raise BrokenMetadata("position deletes that are not Parquet, ORC, Avro or Puffin", file=uri)
