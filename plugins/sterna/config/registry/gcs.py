"""Google Cloud Storage's names for a location's settings: rclone's, obstore's and Iceberg's."""

from __future__ import annotations

import json
from typing import Any, Final

from sterna.config.registry.connection import (
    Credential,
    StaticCredentialProvider,
    StoreLocation,
    extra_text,
    incomplete_credential,
    single_value,
)
from sterna.config.registry.store_type import ConnectionForm, FormField, StoreType, split_names

_GOOGLE_ENDPOINT = "https://storage.googleapis.com"
_API_PATH = "/storage/v1"
# In milliseconds, 2100-01-01: a connection has no expiry of its token, and PyIceberg requires one.
_FAR_EXPIRY_MS = "4102444800000"
# Source: rclone 1.75.2, `rclone config providers`; a test compares them with the rclone that is installed.
_OPTIONS: Final = split_names(
    """
    access_token anonymous auth_url bucket_acl bucket_policy_only client_credentials client_id client_secret
    decompress description directory_markers encoding endpoint env_auth location no_check_bucket object_acl
    project_number service_account_credentials service_account_file storage_class token token_url user_project
    """
)


def rclone_options(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the options of rclone's backend `google cloud storage`."""
    # As for S3; and a bucket with uniform access refuses requests that speak of access lists, which rclone's do by
    # default.
    options = {
        "no_check_bucket": "true",
        "bucket_policy_only": "true",
        **_rclone_keys(location, credential),
        **location.remote.options,
    }
    # rclone's endpoint is the JSON API's, the others' is the host's.
    endpoint = {"endpoint": f"{_endpoint(location)}{_API_PATH}/"} if "endpoint" in location.remote.options else {}
    return {**options, **endpoint}


def store_options(location: StoreLocation, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's GCSConfig."""
    # Named, so that no GOOGLE_* variable of the process can redirect a location.
    options: dict[str, Any] = {"base_url": _endpoint(location), "skip_signature": _anonymous(location, credential)}
    if credential is None or options["skip_signature"]:
        return options
    keyfile, token = _keys(location, credential)
    if keyfile:
        return {**options, "service_account_key": keyfile}
    return {**options, "credential_provider": StaticCredentialProvider({"token": token, "expires_at": None})}


def fileio_properties(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the properties of Iceberg's GCSFileIO."""
    properties = {}
    if "endpoint" in location.remote.options:
        properties["gcs.service.host"] = _endpoint(location)
    if "project_number" in location.remote.options:
        properties["gcs.project-id"] = location.remote.options["project_number"]
    if _anonymous(location, credential):
        properties["gcs.no-auth"] = "true"
    elif credential is not None:
        # Iceberg takes no key file as a property: with one, its readers use the machine's own
        # (GOOGLE_APPLICATION_CREDENTIALS).
        _, token = _keys(location, credential)
        properties |= {"gcs.oauth2.token": token, "gcs.oauth2.token-expires-at": _FAR_EXPIRY_MS} if token else {}
    return properties


def _rclone_keys(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    if _anonymous(location, credential):
        return {"anonymous": "true"}
    if credential is None:
        return {"env_auth": "true"}
    keyfile, token = _keys(location, credential)
    return {"service_account_credentials": keyfile} if keyfile else {"access_token": token}


def _endpoint(location: StoreLocation) -> str:
    endpoint = location.remote.options.get("endpoint", _GOOGLE_ENDPOINT).rstrip("/").removesuffix(_API_PATH)
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def _anonymous(location: StoreLocation, credential: Credential | None) -> bool:
    anonymous = location.remote.options.get("anonymous", "") or (
        extra_text(credential, "is_anonymous") if credential else ""
    )
    return anonymous.lower() == "true"


def _keys(location: StoreLocation, credential: Credential) -> tuple[str, str]:
    """Return the service account's key file as JSON text, and an access token; one of them."""
    files = {f"extra.{name}": _keyfile(credential.extra.get(name)) for name in ("keyfile_dict", "service_account_key")}
    keyfile, token = single_value(credential, files), extra_text(credential, "token", "access_token")
    single_value(credential, {"extra.keyfile_dict": keyfile, "extra.token": token})
    if not keyfile and not token:
        needed = (
            "extra.keyfile_dict (a service account's key), extra.token (an OAuth 2 access token) or extra.is_anonymous"
        )
        raise incomplete_credential(location, credential, needed)
    return keyfile, token


def _keyfile(candidates: Any) -> str:
    return json.dumps(candidates) if isinstance(candidates, dict) else str(candidates or "")


GOOGLE_CLOUD_STORAGE: Final = StoreType(
    name="google cloud storage",
    schemes=("gs",),
    obstore_class="GCSStore",
    rclone_options=rclone_options,
    store_options=store_options,
    fileio_properties=fileio_properties,
    options=_OPTIONS,
    form=ConnectionForm(
        "gcs",
        "SternaGcsHook",
        "Google Cloud Storage for sterna",
        fields={
            "keyfile_dict": FormField("Key of a service account", "The whole key file, as JSON."),
            "token": FormField("Access token", "An OAuth 2 token, instead of a key."),
            "is_anonymous": FormField("Anonymous", "For public buckets.", "boolean"),
        },
    ),
    has_seekable_listings=True,
)
