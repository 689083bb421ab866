"""S3's names for a location's settings: rclone's, obstore's and Iceberg's."""

from __future__ import annotations

from typing import Any

from sterna.config.registry.connection import (
    Credential,
    StaticCredentialProvider,
    extra_text,
    incomplete_credential,
    single_value,
    store_address,
)
from sterna.config.registry.model import Location

DEFAULT_AWS_REGION = "us-east-1"  # what every S3 client takes when none is named


def rclone_options(location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the options of rclone's backend `s3`."""
    # Buckets are never made by a copy; checking for them would cost a request and a right.
    options = {"provider": "Other" if "endpoint" in location.remote.options else "AWS", "no_check_bucket": "true"}
    options["region"] = _region(location)
    if credential is None:
        return {**options, "env_auth": "true", **location.remote.options}
    key, secret, token = s3_keys(location, credential)
    keys = {"access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}
    return {**options, **keys, **location.remote.options}


def store_options(location: Location, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's S3Config."""
    # Everything is named, so that no AWS_* variable of the process can redirect a location.
    options: dict[str, Any] = {"region": _region(location), "skip_signature": False}
    endpoint, bucket = s3_endpoint(location), store_address(location).bucket
    if not _path_style(location):
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket}.{host}"
    options |= {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": not _path_style(location),
    }
    if credential is not None:
        key, secret, token = s3_keys(location, credential)
        options["credential_provider"] = StaticCredentialProvider(
            {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
        )
    return options


def fileio_properties(location: Location, credential: Credential | None) -> dict[str, str]:
    """Return the properties of Iceberg's S3FileIO."""
    region = _region(location)
    properties = {"s3.endpoint": s3_endpoint(location), "s3.path-style-access": str(_path_style(location)).lower()}
    properties |= {"client.region": region, "s3.region": region}
    if credential is None:
        return properties
    key, secret, token = s3_keys(location, credential)
    keys = {"s3.access-key-id": key, "s3.secret-access-key": secret}
    return {**properties, **keys, **({"s3.session-token": token} if token else {})}


def s3_endpoint(location: Location) -> str:
    """Return the endpoint of an S3 location, with its scheme; AWS's own where the registry names none."""
    endpoint = location.remote.options.get("endpoint", "")
    if not endpoint:
        region = _region(location)
        return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def s3_keys(location: Location, credential: Credential) -> tuple[str, str, str | None]:
    """Return access key id, secret access key and session token.

    Raises:
        CredentialError: one of the keys is missing, or given in two ways.
    """
    names = "aws_access_key_id", "aws_secret_access_key"
    key, secret = (extra_text(credential, name) for name in names)
    key = single_value(credential, {"login": credential.login, f"extra.{names[0]}": key})
    secret = single_value(credential, {"password": credential.password, f"extra.{names[1]}": secret})
    if not key or not secret:
        raise incomplete_credential(location, credential, "login (access key id) and password (secret access key)")
    return key, secret, extra_text(credential, "session_token", "aws_session_token") or None


def _region(location: Location) -> str:
    return location.remote.options.get("region") or DEFAULT_AWS_REGION


def _path_style(location: Location) -> bool:
    return location.remote.options.get("force_path_style", "true").lower() != "false"
