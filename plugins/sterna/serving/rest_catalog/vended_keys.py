"""Keys for clients without keys of their own: a role is assumed for each table, with a policy for that session.

Source: the Iceberg REST Catalog specification, 1.12, `loadCredentials` and "Storage Credentials"; AWS Security Token
Service API Reference, AssumeRole.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sterna.catalog.model import Key
from sterna.config.registry.connection import Credential
from sterna.config.registry.model import Location
from sterna.config.registry.s3 import S3, s3_keys, s3_region
from sterna.config.sections.catalog import VendedKeys
from sterna.errors import Forbidden, StoreDenied, StoreUnreachable, UsageError
from sterna.serving.rest_catalog.client_access import ClientAccess
from sterna.serving.rest_catalog.model import LoadedTable
from sterna.serving.rest_catalog.reader import Readable
from sterna.serving.rest_catalog.session_policy import session_policy
from sterna.serving.rest_catalog.table_folders import FolderAccess

VENDED_CREDENTIALS = "vended-credentials"
"""The name of this way of access in the header `X-Iceberg-Access-Delegation`."""
_SCHEME: Final = "s3"  # the prefix of all of a table's files: PyIceberg takes one set of keys for a table
_SESSION_NAME: Final = "sterna"
_MAX_KEPT_KEYS: Final = 1000
_RENEW_FRACTION: Final = 0.5  # of their time that keys have left when they are given to another client


@dataclass(frozen=True)
class SessionKeys:
    """Keys for one policy.

    Args:
        properties: as Iceberg's FileIO names them.
        expires: seconds since 1970 when they end.
    """

    properties: Mapping[str, str] = field(repr=False)
    expires: float


class KeyVendor:
    """Vends keys for one region's S3 stores; may be used by any number of threads.

    Args:
        access: of the clients of the region's address.
        settings: of the region's vended keys.

    Raises:
        UsageError: the region's location is in no S3 store, or in one whose credential isn't named.
    """

    def __init__(self, access: ClientAccess, settings: VendedKeys) -> None:
        self._catalog = catalog = access.catalog
        self._settings = settings
        self._access = access
        self._location = catalog.mapping.locate(catalog.settings.location).location
        _validate_location(self._location)
        self._kept: OrderedDict[tuple[str, str], SessionKeys] = OrderedDict()
        self._lock = threading.Lock()

    def result(
        self,
        readable: Readable,
        key: Key,
        may_write: bool,
        loaded: LoadedTable | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """Return what a LoadTableResult has for a client with keys: `config` and `storage-credentials`.

        Both are empty where no keys can be vended: the client may have some of its own.

        Args:
            readable: what the client may see.
            key: the table's.
            may_write: by the client's role.
            loaded: a table that was made just now, or is staged.
            version: of `main` that the client reads; None: the newest.

        Raises:
            NoSuchTable, NoSuchVersion: the client may see none.
            StoreUnreachable, StoreDenied, CredentialError: no keys can be had.
        """
        try:
            if loaded is None:
                access = self._access.of_table(readable, key, may_write, version)
            else:
                access = self._access.of_loaded(readable, key, loaded, may_write)
            keys = self._keys(key, access)
        except Forbidden:
            return {"config": {}}
        config = {
            **self._access.store_properties(),
            **keys.properties,
            "client.refresh-credentials-endpoint": f"{self._access.path(key, version)}/credentials",
        }
        return {"config": config, **_storage_credentials(keys)}

    def credentials(self, readable: Readable, key: Key, may_write: bool, version: str | None = None) -> dict[str, Any]:
        """Return the LoadCredentialsResponse of a table.

        Args:
            readable: what the client may see.
            key: the table's.
            may_write: by the client's role.
            version: of `main` that the client reads; None: the newest.

        Raises:
            NoSuchTable, NoSuchVersion: the client may see none.
            Forbidden: no policy can say what the client may do.
            StoreUnreachable, StoreDenied, CredentialError: no keys can be had.
        """
        if version is None:
            self._catalog.require_table(readable, key)  # keys of a table that is staged come with it alone
        return _storage_credentials(self._keys(key, self._access.of_table(readable, key, may_write, version)))

    def _keys(self, key: Key, access: FolderAccess) -> SessionKeys:
        """Return keys for a policy: those that another client has, while they are valid for long enough."""
        partition = self._settings.role_arn.split(":")[1]
        others = self._access.other_tables(key) if access.may_write else ()
        policy = session_policy(access, others, partition)
        credential = self._catalog.objects.secrets(str(self._location.credential_id))
        kept_key = (policy, credential.id)
        with self._lock:
            kept = self._kept.get(kept_key)
        remaining = 0.0 if kept is None else kept.expires - time.time()
        if kept is not None and remaining > _RENEW_FRACTION * self._settings.duration:
            return kept
        keys = self._assume_role(policy, credential)
        with self._lock:
            self._kept[kept_key] = keys
            self._kept.move_to_end(kept_key)
            while len(self._kept) > _MAX_KEPT_KEYS:
                self._kept.popitem(last=False)
        return keys

    def _assume_role(self, policy: str, credential: Credential) -> SessionKeys:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            answer = self._client(credential).assume_role(
                RoleArn=self._settings.role_arn,
                RoleSessionName=_SESSION_NAME,
                Policy=policy,
                DurationSeconds=self._settings.duration,
            )
        except ClientError as error:
            reason = credential.redact(str(error))
            raise StoreDenied(f"no keys can be vended: {reason}", file=self._location.prefix) from None
        except (BotoCoreError, ResponseParserError) as error:
            reason = credential.redact(str(error))
            raise StoreUnreachable(f"no keys can be vended: {reason}", file=self._location.prefix) from None
        return _session_keys(answer["Credentials"])

    def _client(self, credential: Credential) -> Any:
        from botocore.config import Config
        from botocore.session import get_session

        key, secret, token = s3_keys(self._location, credential)
        timeout = self._catalog.settings.timeout
        return get_session().create_client(
            "sts",
            s3_region(self._location),
            endpoint_url=self._settings.sts_endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(connect_timeout=timeout, read_timeout=timeout, retries={"total_max_attempts": 2}),
        )


def open_key_vendor(access: ClientAccess) -> KeyVendor | None:
    """Return what vends keys for a region's address; None where its settings have none.

    Args:
        access: of its clients.

    Raises:
        UsageError: as `KeyVendor`.
    """
    settings = access.catalog.settings.vended_keys
    if settings is None:
        return None
    return KeyVendor(access, settings)


def _session_keys(answer: Mapping[str, Any]) -> SessionKeys:
    expiration: datetime = answer["Expiration"]
    return SessionKeys(
        {
            "s3.access-key-id": answer["AccessKeyId"],
            "s3.secret-access-key": answer["SecretAccessKey"],
            "s3.session-token": answer["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(expiration.timestamp() * 1000)),
        },
        expiration.timestamp(),
    )


def _storage_credentials(keys: SessionKeys) -> dict[str, Any]:
    return {"storage-credentials": [{"prefix": _SCHEME, "config": dict(keys.properties)}]}


def _validate_location(location: Location) -> None:
    if location.store_type is not S3:
        raise UsageError("vended_keys: the region's location is in no S3 store", hint="take the setting out")
    if location.credential_id is None:
        raise UsageError(
            f"vended_keys: the location {location.id!r} has no credential_id to assume the role with",
            hint="name one in the registry",
        )
