"""The metadata version in which this version of sterna writes a table's localized files."""

from __future__ import annotations

from sterna.config.mapping import Mapping
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.config.registry.model import Registry, digest
from sterna.errors import Unsupported
from sterna.iceberg import LOCALIZER_VERSION


def current_metadata_version(mapping: Mapping, replica_uri: str = "", generation: int = 0) -> MetadataVersion:
    """Return the metadata version in which this version of sterna writes a table's localized files.

    Args:
        replica_uri: the replica's file whose path has the table's metadata version; "" for none.
        generation: the lowest count of rewrites.
    """
    previous = mapping.metadata_version(replica_uri)
    return MetadataVersion(LOCALIZER_VERSION, max(previous.rewrite_count if previous else 0, generation))


def target_metadata_version(mapping: Mapping, target: str) -> MetadataVersion:
    """Return the metadata version of a file that localizing is to write.

    Raises:
        Unsupported: nothing that sterna localizes belongs there.
    """
    metadata_version = mapping.metadata_version(target)
    if metadata_version is None:
        raise Unsupported("what is localized doesn't belong there", file=target)
    return metadata_version


def sync_digest(registry: Registry, mapping: Mapping) -> str:
    """Return the digest that decides whether all keys are compared.

    It is over what of the registry decides a replica (`Registry.digest`), and the localizer's version.
    """
    return digest([registry.digest(), current_metadata_version(mapping).localizer_version])
