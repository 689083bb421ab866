"""One credential, and what each reader of a location's store calls it: rclone, obstore and Iceberg's FileIO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sterna.registry import azure, gcs, s3
from sterna.registry.connection import Credential, StoreAddress, parse_credential, store_address
from sterna.registry.model import Location
from sterna.registry.remote_options import RCLONE_ENCODING

__all__ = (
    "RCLONE_ENCODING",
    "Credential",
    "StoreAddress",
    "address_of",
    "fileio_properties",
    "parse_credential",
    "rclone_environment",
    "store_address",
    "store_options",
)


def address_of(location: Location) -> str:
    """Return how messages name a location's store: its endpoint where it has one, else its prefix; without secrets."""
    endpoint = location.remote.options.get("endpoint", "")
    return f"{location.prefix} at {endpoint}" if endpoint else location.prefix


def rclone_environment(name: str, location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the variables that define an rclone remote for a location's store.

    Args:
        name: the remote's name: letters, digits and `_`.
        location: the location.
        credential: its credential; None: what the machine provides.

    Raises:
        CredentialError: the credential is incomplete.

    Source: rclone docs, "Environment Variables", "Amazon S3", "Google Cloud Storage", "Azure Blob Storage".
    """
    options = {"encoding": RCLONE_ENCODING, **_RCLONE[location.remote.type](location, credential)}
    options["type"] = location.remote.type
    return {f"RCLONE_CONFIG_{name}_{option}".upper().replace("-", "_"): value for option, value in options.items()}


def store_options(location: Location, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's options for a location's store; the bucket is not among them.

    Raises:
        CredentialError: the credential is incomplete.

    Source: obstore docs, S3Config, GCSConfig, AzureConfig.
    """
    return _STORE[location.remote.type](location, credential)


def fileio_properties(location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the properties with which Iceberg's FileIO, in Java (Spark, Trino, Flink) and PyIceberg, reads a
    location's store.

    Raises:
        CredentialError: the credential is incomplete.

    Source: Iceberg 1.12 S3FileIOProperties, GCPProperties, AzureProperties; PyIceberg, "Configuration".
    """
    return _FILEIO[location.remote.type](location, credential)


def _local_rclone(location: Location, credential: Credential | None) -> dict[str, str]:
    return location.remote.options


def _nothing(location: Location, credential: Credential | None) -> dict[str, Any]:
    return {}


_Settings = Callable[[Location, Credential | None], dict[str, Any]]
_RCLONE: dict[str, _Settings] = {
    "s3": s3.rclone,
    "google cloud storage": gcs.rclone,
    "azureblob": azure.rclone,
    "local": _local_rclone,
}
_STORE: dict[str, _Settings] = {
    "s3": s3.store,
    "google cloud storage": gcs.store,
    "azureblob": azure.store,
    "local": _nothing,
}
_FILEIO: dict[str, _Settings] = {
    "s3": s3.fileio,
    "google cloud storage": gcs.fileio,
    "azureblob": azure.fileio,
    "local": _nothing,
}
