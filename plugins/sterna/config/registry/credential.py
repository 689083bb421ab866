"""One credential, and what each reader of a location's store calls it: rclone, obstore and Iceberg's FileIO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sterna.config.registry.connection import Credential, StoreAddress, parse_credential, store_address
from sterna.config.registry.model import Location
from sterna.config.registry.remote_types import RCLONE_ENCODING

__all__ = (
    "RCLONE_ENCODING",
    "Credential",
    "StoreAddress",
    "describe_store",
    "fileio_properties",
    "load_fileio_properties",
    "parse_credential",
    "rclone_environment",
    "store_address",
    "store_options",
)


def describe_store(location: Location) -> str:
    """Return how messages name a location's store: its endpoint where it has one, else its prefix; without secrets."""
    endpoint = location.remote.options.get("endpoint", "")
    return f"{location.prefix} at {endpoint}" if endpoint else location.prefix


def rclone_environment(name: str, location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the variables that define an rclone remote for a location's store.

    Args:
        name: the remote's name: letters, digits and `_`.
        credential: its credential; None: what the machine provides.

    Raises:
        CredentialError: the credential is incomplete.

    Source: rclone docs, "Environment Variables", "Amazon S3", "Google Cloud Storage", "Azure Blob Storage".
    """
    options = {"encoding": RCLONE_ENCODING, **location.store_type.rclone_options(location, credential)}
    options["type"] = location.remote.type
    return {f"RCLONE_CONFIG_{name}_{option}".upper().replace("-", "_"): value for option, value in options.items()}


def store_options(location: Location, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's options for a location's store; the bucket is not among them.

    Raises:
        CredentialError: the credential is incomplete.

    Source: obstore docs, S3Config, GCSConfig, AzureConfig.
    """
    return location.store_type.store_options(location, credential)


def fileio_properties(location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the properties with which Iceberg's FileIO, in Java (Spark, Trino, Flink) and PyIceberg, reads a
    location's store.

    Raises:
        CredentialError: the credential is incomplete.

    Source: Iceberg 1.12 S3FileIOProperties, GCPProperties, AzureProperties; PyIceberg, "Configuration".
    """
    return location.store_type.fileio_properties(location, credential)


def load_fileio_properties(location: Location, secrets: Callable[[str], Credential]) -> dict[str, str]:
    """Return `fileio_properties` by the location's own credential.

    Args:
        secrets: finds a credential by its id.

    Raises:
        CredentialError: the credential is missing or incomplete.
    """
    return fileio_properties(location, secrets(location.credential_id) if location.credential_id else None)
