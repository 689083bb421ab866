"""Names of localized metadata.json: what `Mapping.metadata_uri` adds to a name, and how it is taken out again."""

from __future__ import annotations

import re

_METADATA_ENDINGS = (".gz.metadata.json", ".metadata.json.gz", ".metadata.json")
# What is added to a name: a digest, and a snapshot's id as 17 hex digits. Before 2026-12 the id was
# decimal, after an "s".
_METADATA_SUFFIX = re.compile(
    r"-(?P<digest>[0-9a-f]{16})(?:-(?P<id>[0-9a-f]{17})|-s(?P<decimal>-?[0-9]{1,19}))?"
    r"(?=(?:\.gz\.metadata\.json|\.metadata\.json(?:\.gz)?)?$)"
)
# Trino reads `<digits>-<hex digits and dashes>` or `v<digits>` before the ending, and nothing else.
_HADOOP_STEM = re.compile(r"v([0-9]+)")
_DASHED_STEM = re.compile(r"[0-9]+-+")
_ID_MODULUS = 2**64


def localized_name(name: str, digest: str, extra_snapshot_id: int | None) -> str:
    """Return the name of a metadata.json's localized copy, `<stem>-<digest><ending>`.

    Args:
        name: the metadata.json's own.
        digest: 16 hex digits over all that decides what the copy contains.
        extra_snapshot_id: of a snapshot that it has only because the catalog's entry names it; None: of none.
    """
    ending = next((ending for ending in _METADATA_ENDINGS if name.endswith(ending)), "")
    suffix = "" if extra_snapshot_id is None else f"-{extra_snapshot_id % _ID_MODULUS:017x}"
    return f"{_mapped_stem(name.removesuffix(ending))}-{digest}{suffix}{ending}"


def without_digest(metadata: str) -> str:
    """Return the name of the metadata.json that a localized one was made of.

    Args:
        metadata: the localized one's path or URI, as `Mapping.metadata_uri` made its name.
    """
    match = _METADATA_SUFFIX.search(metadata)
    if match is None:
        return metadata
    folder, slash, stem = metadata[: match.start()].rpartition("/")
    return f"{folder}{slash}{_source_stem(stem)}{metadata[match.end() :]}"


def metadata_digest(metadata: str) -> str:
    """Return the digest in the name of a localized metadata.json, "" where it has none; as `without_digest`."""
    match = _METADATA_SUFFIX.search(metadata)
    return match["digest"] if match else ""


def _mapped_stem(stem: str) -> str:
    """Return the stem of a localized metadata.json's name, which `_source_stem` takes back."""
    hadoop = _HADOOP_STEM.fullmatch(stem)
    if hadoop is not None:
        return f"{hadoop[1]}-"
    return f"{stem}-" if _DASHED_STEM.fullmatch(stem) else stem


def _source_stem(stem: str) -> str:
    if _DASHED_STEM.fullmatch(stem) is None:
        return stem
    digits = stem.rstrip("-")
    return f"v{digits}" if len(stem) == len(digits) + 1 else stem[:-1]


def extra_snapshot_id(metadata: str) -> int | None:
    """Return the snapshot that a replica's metadata.json has only because the catalog's entry names it.

    Args:
        metadata: its URI, as `Mapping.metadata_uri` returned it.

    Returns:
        The snapshot's id; None where the policy alone decides which snapshots there are.
    """
    match = _METADATA_SUFFIX.search(metadata)
    if match is None or match["id"] is None:
        return int(match["decimal"]) if match and match["decimal"] else None
    unsigned = int(match["id"], 16)
    return unsigned - _ID_MODULUS if unsigned >= _ID_MODULUS // 2 else unsigned
