"""What a request to an S3 store does, and to which objects. A request that isn't known to be harmless is refused.

Source: Amazon S3 API Reference, and "Create a signed AWS API request" of the AWS General Reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.connection import store_address
from sterna.config.registry.model import Location, is_inside
from sterna.config.registry.s3 import S3, is_path_style, s3_endpoint
from sterna.errors import Forbidden, TableError
from sterna.serving.rest_catalog.deleted_keys import read_deleted_keys
from sterna.serving.rest_catalog.sign_request import SignRequest, decode_canonical

_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
# Metadata of an object isn't: MinIO unpacks an archive over other objects by it.
_HARMLESS_HEADERS: Final = re.compile(
    r"x-amz-(?:date|content-sha256|checksum-[a-z0-9-]+|sdk-checksum-algorithm|trailer|decoded-content-length"
    r"|server-side-encryption(?:-aws-kms-key-id|-bucket-key-enabled)?|expected-bucket-owner|request-payer)"
)
_LISTING_PARAMETERS: Final = frozenset(
    {"delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner"}
)
_PART_NUMBER: Final = re.compile(r"[1-9][0-9]{0,4}")


class Access(Enum):
    """What a request does with an object.

    `CREATE` makes it, `UPLOAD` sends parts of one that isn't there yet, or gives them up.
    """

    READ = "read"
    LIST = "list"
    CREATE = "create"
    UPLOAD = "upload"
    DELETE = "delete"


_OPERATIONS: Final[dict[tuple[str, bool, frozenset[str]], tuple[str, Access]]] = {
    ("GET", True, frozenset()): ("GetObject", Access.READ),
    ("HEAD", True, frozenset()): ("HeadObject", Access.READ),
    ("PUT", True, frozenset()): ("PutObject", Access.CREATE),
    ("POST", True, frozenset({"uploads"})): ("CreateMultipartUpload", Access.CREATE),
    ("PUT", True, frozenset({"partNumber", "uploadId"})): ("UploadPart", Access.UPLOAD),
    ("POST", True, frozenset({"uploadId"})): ("CompleteMultipartUpload", Access.CREATE),
    ("DELETE", True, frozenset({"uploadId"})): ("AbortMultipartUpload", Access.UPLOAD),
    ("DELETE", True, frozenset()): ("DeleteObject", Access.DELETE),
    ("POST", False, frozenset({"delete"})): ("DeleteObjects", Access.DELETE),
    ("GET", False, frozenset({"list-type", "prefix"})): ("ListObjectsV2", Access.LIST),
}


@dataclass(frozen=True)
class StoreRequest:
    """A request that is understood.

    Args:
        operation: S3's name of it.
        uris: of the objects that it concerns, in the registry's spelling; of a listing the prefix.
        location: that all of them are in.
    """

    operation: str
    access: Access
    uris: tuple[str, ...]
    location: Location


@dataclass(frozen=True)
class _Bucket:
    """A bucket, as one endpoint serves it, with the region's locations in it.

    Args:
        is_in_path: requests name the bucket in the path, else in the host. A store that has one style alone would
            read another object than the one that is looked at here, so that no request may be in either.
    """

    scheme: str
    host: str
    base_path: str
    name: str
    is_in_path: bool
    locations: tuple[Location, ...]

    def encoded_key(self, request: SignRequest) -> str | None:
        """Return the key that a request means here, "" for the bucket itself; None: it isn't for this bucket."""
        host = self.host if self.is_in_path else f"{self.name}.{self.host}"
        folder = f"{self.base_path}/{self.name}" if self.is_in_path else self.base_path
        if (request.scheme, request.host) != (self.scheme, host):
            return None
        return request.path[len(folder) + 1 :] if is_inside(request.path, folder) else None


class RegionStores:
    """The S3 stores of one region, by the addresses that its clients send requests to.

    Args:
        mapping: of the region.
        public_endpoints: by an endpoint of the registry, another one by which clients reach it.
    """

    def __init__(self, mapping: RegionMapping, public_endpoints: Mapping[str, str] = MappingProxyType({})) -> None:
        self.locations = tuple(
            location
            for location in mapping.registry.locations
            if location.region == mapping.region.name and location.store_type is S3
        )
        self._mapping = mapping
        self._buckets = list(_buckets(self.locations, public_endpoints))

    def read_request(self, request: SignRequest) -> StoreRequest:
        """Return what a request does.

        Raises:
            Forbidden: that isn't known, or it is for another store than the region's.
        """
        bucket, encoded_key = self._bucket(request)
        key = decode_canonical(encoded_key)
        operation, access = _operation(request, bool(key))
        _reject_headers(request)
        keys = [key]
        if access is Access.LIST:
            keys = [request.query["prefix"]]
        elif operation == "DeleteObjects":
            keys = read_deleted_keys(request.body)
        places = [self._place(bucket, key, access) for key in keys]
        location = places[0][1]
        if any(other.credential_id != location.credential_id for _, other in places):
            raise Forbidden("one request concerns places with different keys", file=places[0][0])
        return StoreRequest(operation, access, tuple(uri for uri, _ in places), location)

    def _bucket(self, request: SignRequest) -> tuple[_Bucket, str]:
        keys = ((bucket, bucket.encoded_key(request)) for bucket in self._buckets)
        matches = [(bucket, key) for bucket, key in keys if key is not None]
        if len(matches) != 1:
            raise Forbidden(f"{request.scheme}://{request.host} has no bucket of this region, or the path isn't plain")
        return matches[0]

    def _place(self, bucket: _Bucket, key: str, access: Access) -> tuple[str, Location]:
        """Return the URI of an object, or of a prefix, and its location."""
        for location in bucket.locations:
            base = store_address(location).path
            if not base or key.startswith(f"{base}/"):
                uri = f"{location.prefix}/{key[len(base) + 1 if base else 0 :]}"
                self._validate_uri(uri.removesuffix("/") if access is Access.LIST else uri, location)
                return uri, location
        raise Forbidden("the object is in no location of this region", file=f"s3://{bucket.name}/{key}")

    def _validate_uri(self, uri: str, location: Location) -> None:
        try:
            place = self._mapping.locate(uri)
        except TableError as error:
            raise Forbidden(error.message, file=uri) from error
        if place.location is not location or place.alias or not place.path:
            raise Forbidden("the object is in no location of this region", file=uri)


def _buckets(locations: Iterable[Location], public_endpoints: Mapping[str, str]) -> Iterable[_Bucket]:
    by_address: dict[tuple[str, str, str, str, bool], dict[str, Location]] = {}
    for location in locations:
        endpoint = s3_endpoint(location)
        for address in dict.fromkeys((endpoint, public_endpoints.get(endpoint, endpoint))):
            scheme, _, rest = address.rstrip("/").partition("://")
            host, slash, path = rest.partition("/")
            host = host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))
            bucket = (scheme, host, f"{slash}{path}", store_address(location).bucket, is_path_style(location))
            by_address.setdefault(bucket, {})[location.id] = location
    for bucket, own in by_address.items():
        # The longest prefix decides, as everywhere.
        yield _Bucket(*bucket, tuple(sorted(own.values(), key=lambda location: len(location.prefix), reverse=True)))


def _operation(request: SignRequest, has_key: bool) -> tuple[str, Access]:
    query = dict(request.query)
    kind = query.pop("x-id", None)
    optional = _LISTING_PARAMETERS if query.get("list-type") == "2" and not has_key else frozenset()
    operation = _OPERATIONS.get((request.method, has_key, frozenset(query.keys() - optional)))
    if operation is None or kind not in (None, operation[0]):
        what = "an object" if has_key else "a bucket"
        raise Forbidden(f"no {request.method} of {what} with these parameters is signed: {_names(query)}")
    if query.get("delimiter", "/") != "/" or query.get("list-type", "2") != "2":
        raise Forbidden("a listing is signed by folders alone, in the version 2")
    if query.get("uploads") or query.get("delete") or query.get("uploadId", "-") == "":
        raise Forbidden("a parameter of the query has another value than S3 has for it")
    if "partNumber" in query and not _PART_NUMBER.fullmatch(query["partNumber"]):
        raise Forbidden("the number of the part is none")
    return operation


def _names(query: Iterable[str]) -> str:
    return ", ".join(sorted(query))[:200] or "none"


def _reject_headers(request: SignRequest) -> None:
    """Refuse headers by which a request does something else than its method and path say.

    Raises:
        Forbidden: there is one.
    """
    for name in request.headers:
        if name == "authorization" or (name.startswith("x-amz-") and not _HARMLESS_HEADERS.fullmatch(name)):
            raise Forbidden(f"no request with the header {name} is signed")
        if name.startswith("x-http-method") or name in ("x-method-override", "x-original-url", "x-rewrite-url"):
            raise Forbidden(f"no request with the header {name} is signed")
