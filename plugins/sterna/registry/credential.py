"""One credential, and what each reader of a location's store calls it: rclone, obstore and Iceberg's FileIO."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sterna.errors import CredentialError
from sterna.registry.model import Location

AWS_REGION = "us-east-1"  # what every S3 client takes when none is named
# The encoding of rclone's own paths. With the same one for the store a key passes byte for byte; with the stores' defaults
# keys that hold one of rclone's replacement characters (U+201B, U+2401, …) arrive under another name.
RCLONE_ENCODING = "Slash,Ctl,Del,Dot"
_HIDDEN = "***"
_NOT_SECRET = frozenset({"region_name", "region", "endpoint_url", "tenant_id", "tenantId", "project", "anonymous", "host"})
_SHORTEST_SECRET = 4


@dataclass(frozen=True)
class Credential:
    """What an Airflow connection says; only its id may be shown.

    Args:
        id: the connection's id.
        login: access key id, account name or client id.
        password: secret access key, account key or client secret.
        extra: further fields, such as `session_token`, `keyfile_dict` or `sas_token`.
    """

    id: str
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def scrub(self, text: str) -> str:
        """Return a text with every secret of this credential replaced."""
        values = [self.password, *(value for name, value in self.extra.items() if name not in _NOT_SECRET)]
        for secret in sorted(set(_texts(values)), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def text(self) -> str:
        """Return the credential as `parse_credential` reads it."""
        content = {"conn_type": "generic", "login": self.login, "password": self.password, "extra": dict(self.extra)}
        return json.dumps(content)


@dataclass(frozen=True)
class StoreAddress:
    """Where in its store a location's prefix lies.

    Args:
        bucket: bucket or container; "" for local files.
        path: the key prefix, without slashes at its ends; for local files the absolute path without the first slash.
        account: Azure's storage account, else "".
    """

    bucket: str
    path: str
    account: str = ""


def parse_credential(id: str, text: str) -> Credential:
    """Read what Airflow keeps in `AIRFLOW_CONN_<ID>`.

    Args:
        id: the connection's id.
        text: JSON (`conn_type`, `login`, `password`, `extra` as an object or as JSON in a string), or Airflow's URI form.

    Raises:
        CredentialError: the text is neither; the message names the id alone.

    Source: Airflow, "Managing Connections", JSON and URI format.
    """
    try:
        content = json.loads(text) if text.lstrip().startswith("{") else _from_uri(text)
        extra = content.get("extra") or {}
        extra = json.loads(extra) if isinstance(extra, str) else extra
        if not isinstance(extra, dict):
            raise ValueError
        return Credential(id, str(content.get("login") or ""), str(content.get("password") or ""), extra)
    except ValueError:
        # Not chained: the parser's error repeats the text.
        raise CredentialError(f"connection {id!r} is neither JSON with login, password and extra nor a connection URI") from None


def store_address(location: Location) -> StoreAddress:
    """Take a location's prefix apart into bucket and path."""
    authority, _, path = location.prefix.partition("://")[2].partition("/")
    container, at, host = authority.partition("@")
    if at:
        return StoreAddress(container, path, host.partition(".")[0])
    return StoreAddress(authority, path)


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
    options = {"encoding": RCLONE_ENCODING, **_RCLONE[location.remote.type](location, credential), **location.remote.options}
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
    """Return the properties with which Iceberg's FileIO, in Java (Spark, Trino, Flink) and PyIceberg, reads a location's store.

    Raises:
        CredentialError: the credential is incomplete.

    Source: Iceberg 1.12 S3FileIOProperties, GCPProperties, AzureProperties; PyIceberg, "Configuration".
    """
    return _FILEIO[location.remote.type](location, credential)


def s3_endpoint(location: Location) -> str:
    """Return the endpoint of an S3 location, with its scheme; AWS's own where the registry names none."""
    endpoint = location.remote.options.get("endpoint", "")
    if not endpoint:
        region = _s3_region(location)
        return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def s3_keys(location: Location, credential: Credential) -> tuple[str, str, str | None]:
    """Return access key id, secret access key and session token.

    Raises:
        CredentialError: one of the keys is missing.
    """
    key = credential.login or _text(credential, "aws_access_key_id")
    secret = credential.password or _text(credential, "aws_secret_access_key")
    if not key or not secret:
        raise _incomplete(location, credential, "login (access key id) and password (secret access key)")
    return key, secret, _text(credential, "session_token") or _text(credential, "aws_session_token") or None


def _s3_region(location: Location) -> str:
    return location.remote.options.get("region") or AWS_REGION


def _path_style(location: Location) -> bool:
    return location.remote.options.get("force_path_style", "true").lower() != "false"


def _rclone_s3(location: Location, credential: Credential | None) -> dict[str, str]:
    # Buckets are never made by a copy; checking for them would cost a request and a right.
    options = {"provider": "Other" if "endpoint" in location.remote.options else "AWS", "no_check_bucket": "true"}
    options["region"] = _s3_region(location)
    if credential is None:
        return {**options, "env_auth": "true"}
    key, secret, token = s3_keys(location, credential)
    return {**options, "access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}


def _store_s3(location: Location, credential: Credential | None) -> dict[str, Any]:
    # Everything is named, so that no AWS_* variable of the process can redirect a location.
    options: dict[str, Any] = {"region": _s3_region(location), "skip_signature": False}
    endpoint, bucket = s3_endpoint(location), store_address(location).bucket
    if not _path_style(location):
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket}.{host}"
    options |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint, "virtual_hosted_style_request": not _path_style(location)}
    if credential is not None:
        key, secret, token = s3_keys(location, credential)
        options["credential_provider"] = _Static({"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None})
    return options


def _fileio_s3(location: Location, credential: Credential | None) -> dict[str, str]:
    region = _s3_region(location)
    properties = {"s3.endpoint": s3_endpoint(location), "s3.path-style-access": str(_path_style(location)).lower()}
    properties |= {"client.region": region, "s3.region": region}
    if credential is None:
        return properties
    key, secret, token = s3_keys(location, credential)
    keys = {"s3.access-key-id": key, "s3.secret-access-key": secret}
    return {**properties, **keys, **({"s3.session-token": token} if token else {})}


def _gcs_keys(location: Location, credential: Credential) -> tuple[str, str]:
    """Return the service account's key file as JSON text, and an access token; one of them."""
    keyfile = credential.extra.get("keyfile_dict") or credential.extra.get("service_account_key") or ""
    keyfile = json.dumps(keyfile) if isinstance(keyfile, dict) else str(keyfile)
    token = _text(credential, "token") or _text(credential, "access_token")
    if not keyfile and not token:
        raise _incomplete(location, credential, "extra.keyfile_dict (a service account's key) or extra.token (an OAuth 2 access token)")
    return keyfile, token


def _rclone_gcs(location: Location, credential: Credential | None) -> dict[str, str]:
    if credential is None:
        return {"env_auth": "true", "no_check_bucket": "true"}
    keyfile, token = _gcs_keys(location, credential)
    keys = {"service_account_credentials": keyfile} if keyfile else {"access_token": token}
    return {"no_check_bucket": "true", **keys}


def _store_gcs(location: Location, credential: Credential | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "endpoint" in location.remote.options:
        options["base_url"] = location.remote.options["endpoint"]
    if location.remote.options.get("anonymous", "false").lower() == "true":
        options["skip_signature"] = True
    if credential is not None:
        keyfile, token = _gcs_keys(location, credential)
        if keyfile:
            options["service_account_key"] = keyfile
        else:
            options["credential_provider"] = _Static({"token": token, "expires_at": None})
    return options


def _fileio_gcs(location: Location, credential: Credential | None) -> dict[str, str]:
    properties = {}
    if "endpoint" in location.remote.options:
        properties["gcs.service.host"] = location.remote.options["endpoint"]
    if "project_number" in location.remote.options:
        properties["gcs.project-id"] = location.remote.options["project_number"]
    if location.remote.options.get("anonymous", "false").lower() == "true":
        properties["gcs.no-auth"] = "true"
    if credential is not None:
        # Iceberg takes no key file as a property: with one, its readers use the machine's own (GOOGLE_APPLICATION_CREDENTIALS).
        _, token = _gcs_keys(location, credential)
        properties |= {"gcs.oauth2.token": token} if token else {}
    return properties


@dataclass(frozen=True)
class _AzureKeys:
    account: str
    key: str
    sas: str
    tenant: str
    client: str
    secret: str


def _azure_keys(location: Location, credential: Credential | None) -> _AzureKeys:
    account = store_address(location).account or location.remote.options.get("account", "")
    if credential is None:
        return _AzureKeys(account, "", "", "", "", "")
    sas = _text(credential, "sas_token").lstrip("?")
    tenant = _text(credential, "tenant_id") or _text(credential, "tenantId")
    if sas:
        return _AzureKeys(account, "", sas, "", "", "")
    if not credential.password:
        raise _incomplete(location, credential, "password (account key or client secret) or extra.sas_token")
    if tenant:
        return _AzureKeys(account, "", "", tenant, credential.login, credential.password)
    return _AzureKeys(account or credential.login, credential.password, "", "", "", "")


def _rclone_azure(location: Location, credential: Credential | None) -> dict[str, str]:
    keys = _azure_keys(location, credential)
    options = {"account": keys.account}
    if credential is None:
        return {**options, "env_auth": "true"}
    if keys.sas:
        host = location.remote.options.get("endpoint", f"https://{keys.account}.blob.core.windows.net").rstrip("/")
        return {**options, "sas_url": f"{host}/{store_address(location).bucket}?{keys.sas}"}
    if keys.tenant:
        return {**options, "tenant": keys.tenant, "client_id": keys.client, "client_secret": keys.secret}
    return {**options, "key": keys.key}


def _store_azure(location: Location, credential: Credential | None) -> dict[str, Any]:
    keys = _azure_keys(location, credential)
    options: dict[str, Any] = {"account_name": keys.account}
    if "endpoint" in location.remote.options:
        options["endpoint"] = location.remote.options["endpoint"]
    named = {"account_key": keys.key, "sas_key": keys.sas, "tenant_id": keys.tenant, "client_id": keys.client, "client_secret": keys.secret}
    return {**options, **{name: value for name, value in named.items() if value}}


def _fileio_azure(location: Location, credential: Credential | None) -> dict[str, str]:
    keys = _azure_keys(location, credential)
    host = f"{keys.account}.dfs.core.windows.net"
    # Java's names, then PyIceberg's; Java's Azure identity of a service principal comes from the AZURE_* variables alone.
    named = {
        "adls.auth.shared-key.account.name": keys.account if keys.key else "",
        "adls.auth.shared-key.account.key": keys.key,
        f"adls.sas-token.{host}": keys.sas,
        "adls.account-name": keys.account,
        "adls.account-key": keys.key,
        "adls.sas-token": keys.sas,
        "adls.tenant-id": keys.tenant,
        "adls.client-id": keys.client,
        "adls.client-secret": keys.secret,
    }
    return {name: value for name, value in named.items() if value}


@dataclass(frozen=True)
class _Static:
    """A credential provider for obstore: always the same keys, never those of the process's environment."""

    value: dict[str, Any] = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        return self.value


def _nothing(location: Location, credential: Credential | None) -> dict[str, Any]:
    return {}


_Settings = Callable[[Location, Credential | None], dict[str, Any]]
_RCLONE: dict[str, _Settings] = {
    "s3": _rclone_s3,
    "google cloud storage": _rclone_gcs,
    "azureblob": _rclone_azure,
    "local": _nothing,
}
_STORE: dict[str, _Settings] = {
    "s3": _store_s3,
    "google cloud storage": _store_gcs,
    "azureblob": _store_azure,
    "local": _nothing,
}
_FILEIO: dict[str, _Settings] = {
    "s3": _fileio_s3,
    "google cloud storage": _fileio_gcs,
    "azureblob": _fileio_azure,
    "local": _nothing,
}


def _from_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not parts.scheme:
        raise ValueError
    extra: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "__extra__" in extra:
        extra = json.loads(extra["__extra__"])
    # urlsplit lowers the host's case alone: login and password keep theirs.
    return {"login": unquote(parts.username or ""), "password": unquote(parts.password or ""), "extra": extra}


def _text(credential: Credential, name: str) -> str:
    return str(credential.extra.get(name) or "")


def _texts(values: Any) -> list[str]:
    """Return every text within nested values that is long enough to be a secret."""
    if isinstance(values, dict):
        return _texts([value for name, value in values.items() if name not in _NOT_SECRET])
    if isinstance(values, list):
        return [text for value in values for text in _texts(value)]
    return [values] if isinstance(values, str) and len(values) >= _SHORTEST_SECRET else []


def _incomplete(location: Location, credential: Credential, needed: str) -> CredentialError:
    return CredentialError(f"connection {credential.id!r} is incomplete for location {location.id!r}: it needs {needed}")
