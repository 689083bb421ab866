"""Google Cloud Storage's names for a location's settings: rclone's, obstore's and Iceberg's."""

from __future__ import annotations

import json
from typing import Any

from sterna.registry.connection import Credential, Static, incomplete, one_of, text_of
from sterna.registry.model import Location

_GOOGLE = "https://storage.googleapis.com"
_API = "/storage/v1"
# In milliseconds, 2100-01-01: a connection doesn't say when its token ends, and PyIceberg takes none without an end.
_NO_END = "4102444800000"


def rclone(location: Location, credential: Credential | None) -> dict[str, str]:
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
    return (
        {**options, "endpoint": f"{_endpoint(location)}{_API}/"} if "endpoint" in location.remote.options else options
    )


def store(location: Location, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's GCSConfig."""
    # Named, so that no GOOGLE_* variable of the process can redirect a location.
    options: dict[str, Any] = {"base_url": _endpoint(location), "skip_signature": _anonymous(location, credential)}
    if credential is None or options["skip_signature"]:
        return options
    keyfile, token = _keys(location, credential)
    keys = (
        {"service_account_key": keyfile}
        if keyfile
        else {"credential_provider": Static({"token": token, "expires_at": None})}
    )
    return {**options, **keys}


def fileio(location: Location, credential: Credential | None) -> dict[str, str]:
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
        properties |= {"gcs.oauth2.token": token, "gcs.oauth2.token-expires-at": _NO_END} if token else {}
    return properties


def _rclone_keys(location: Location, credential: Credential | None) -> dict[str, str]:
    if _anonymous(location, credential):
        return {"anonymous": "true"}
    if credential is None:
        return {"env_auth": "true"}
    keyfile, token = _keys(location, credential)
    return {"service_account_credentials": keyfile} if keyfile else {"access_token": token}


def _endpoint(location: Location) -> str:
    endpoint = location.remote.options.get("endpoint", _GOOGLE).rstrip("/").removesuffix(_API)
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def _anonymous(location: Location, credential: Credential | None) -> bool:
    said = location.remote.options.get("anonymous", "") or (text_of(credential, "is_anonymous") if credential else "")
    return said.lower() == "true"


def _keys(location: Location, credential: Credential) -> tuple[str, str]:
    """Return the service account's key file as JSON text, and an access token; one of them."""
    files = {f"extra.{name}": _keyfile(credential.extra.get(name)) for name in ("keyfile_dict", "service_account_key")}
    keyfile, token = one_of(credential, files), text_of(credential, "token", "access_token")
    one_of(credential, {"extra.keyfile_dict": keyfile, "extra.token": token})
    if not keyfile and not token:
        needed = (
            "extra.keyfile_dict (a service account's key), extra.token (an OAuth 2 access token) or extra.is_anonymous"
        )
        raise incomplete(location, credential, needed)
    return keyfile, token


def _keyfile(given: Any) -> str:
    return json.dumps(given) if isinstance(given, dict) else str(given or "")
