"""Signs requests of clients that have no keys for the region's stores, after each was looked at.

A client reads a table's files, and writes new ones where its clients write. Nothing is signed for deleting a file that
`main` or a replica names, or for writing one that is there. That holds later, too, where the store has conditional
writes: the condition is signed.

Source: the Iceberg REST Catalog specification, 1.12, `signRequest` and "Remote Signing".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sterna.catalog.model import Key
from sterna.config.registry.s3 import S3, s3_endpoint
from sterna.errors import Forbidden, UsageError
from sterna.serving.rest_catalog.client_access import ClientAccess
from sterna.serving.rest_catalog.reader import Readable, ReplicaCatalog
from sterna.serving.rest_catalog.sign_request import read_sign_request
from sterna.serving.rest_catalog.signature import sign_request
from sterna.serving.rest_catalog.store_probe import Check, StoreProbe
from sterna.serving.rest_catalog.store_requests import Access, RegionStores, StoreRequest
from sterna.serving.rest_catalog.table_folders import FolderAccess

REMOTE_SIGNING = "remote-signing"
"""The name of this way of access in the header `X-Iceberg-Access-Delegation`."""
_ENDPOINT = "s3.endpoint"
# By a header more a file becomes the copy of another one; by another body other files are deleted.
_CHECKS: Final = {"PutObject": Check.HEADERS, "UploadPart": Check.HEADERS, "DeleteObjects": Check.CONTENT}

# A signature is valid for minutes: with it alone a file could be written again once a commit names it.
_CONDITIONS: Final = {name: {"if-none-match": "*"} for name in ("PutObject", "CompleteMultipartUpload")}


class RequestSigner:
    """Signs requests to one region's S3 stores; may be used by any number of threads.

    Args:
        access: of the clients of the region's address.

    Raises:
        UsageError: the region has no S3 store, or one whose credential isn't named.
    """

    def __init__(self, access: ClientAccess) -> None:
        self._catalog = catalog = access.catalog
        self._access = access
        self._stores = RegionStores(catalog.mapping, _public_endpoints(catalog))
        _validate_credentials(self._stores)
        self._probe = StoreProbe(catalog.settings.timeout)

    def config(self, key: Key, version: str | None = None) -> dict[str, str]:
        """Return the properties by which clients have requests for a table signed.

        Args:
            key: the table's.
            version: of `main` that the client reads; None: the newest.
        """
        return {
            **self._access.store_properties(),
            "s3.remote-signing-enabled": "true",
            # PyIceberg's; Java's library has the path by itself.
            "s3.signer": "S3V4RestSigner",
            "s3.signer.endpoint": f"{self._access.path(key, version)}/sign",
            "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        }

    def sign(
        self,
        readable: Readable,
        key: Key,
        may_write: bool,
        document: Mapping[str, Any],
        version: str | None = None,
    ) -> dict[str, Any]:
        """Return the RemoteSignResult of a client's request.

        Args:
            readable: what the client may see.
            key: the table that the request is for.
            may_write: by the client's role.
            document: a RemoteSignRequest.
            version: of `main` that the client reads; None: the newest.

        Raises:
            NoSuchTable, NoSuchVersion: the client may see none.
            BadUpdate: the document is no such request.
            Forbidden: the request does what the client may not, or what isn't known.
            StoreUnreachable, StoreDenied, CredentialError: the region's store can't be used.
        """
        access = self._access.of_table(readable, key, may_write, version)
        request = read_sign_request(document)
        wanted = self._stores.read_request(request)
        for uri in wanted.uris:
            _require_access(access, wanted.access, uri)
        if wanted.access is Access.CREATE:
            self._require_absent(wanted)
        credential = self._catalog.objects.secrets(str(wanted.location.credential_id))
        if check := _CHECKS.get(wanted.operation):
            self._probe.require_check(check, wanted.location, credential)
        conditions = _CONDITIONS.get(wanted.operation, {})
        return {"uri": request.uri, "headers": sign_request(request, wanted.location, credential, conditions)}

    def _require_absent(self, wanted: StoreRequest) -> None:
        """See that a file that is to be written isn't there.

        Raises:
            Forbidden: it is.
        """
        for uri in wanted.uris:
            if self._catalog.objects.size(uri) is not None:
                raise Forbidden("the file is there already, and files are never written again", file=uri)


def _require_access(access: FolderAccess, kind: Access, uri: str) -> None:
    match kind:
        case Access.READ:
            access.require_readable(uri)
        case Access.LIST:
            access.require_listable(uri)
        case Access.CREATE | Access.UPLOAD:
            access.require_writable(uri)
        case Access.DELETE:
            access.require_deletable(uri)


def _public_endpoints(catalog: ReplicaCatalog) -> dict[str, str]:
    location = catalog.mapping.locate(catalog.settings.location).location
    endpoint = catalog.settings.defaults.get(_ENDPOINT, "")
    return {s3_endpoint(location): endpoint} if endpoint and location.store_type is S3 else {}


def _validate_credentials(stores: RegionStores) -> None:
    if not stores.locations:
        raise UsageError("remote_signing: the region has no S3 store", hint="take the setting out")
    for location in stores.locations:
        if location.credential_id is None:
            raise UsageError(
                f"remote_signing: the location {location.id!r} has no credential_id to sign with",
                hint="name one in the registry: its rights are what clients can get at most",
            )


def open_signer(access: ClientAccess) -> RequestSigner | None:
    """Return what signs requests to the stores of a region's address; None where its settings have nothing signed.

    Args:
        access: of its clients.

    Raises:
        UsageError: as `RequestSigner`.
    """
    if not access.catalog.settings.remote_signing:
        return None
    return RequestSigner(access)
