"""What is made out of a request to a store, and everything that is refused because it can be read in two ways."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.errors import BadUpdate, Forbidden
from sterna.serving.rest_catalog.sign_request import read_sign_request
from sterna.serving.rest_catalog.store_requests import Access, RegionStores, StoreRequest
from tests.unit.config.samples import content, location

HOST = "https://s3.eu.example"
DELETION = "<Delete><Object><Key>lake/a.avro</Key></Object><Object><Key>lake/b.avro</Key></Object></Delete>"


def stores(endpoint: str = "", *, is_in_path: bool = True) -> RegionStores:
    document = content(
        [location("nested", "s3://eu-bucket/lake/us", credential_id="n"), location("gcs", "gs://eu-bucket", "eu")]
    )
    for item in document["locations"]:
        if item["remote"]["type"] == "s3":
            options = {"endpoint": HOST if item["id"] == "eu" else "https://s3.us.example"}
            item["remote"]["options"] = options | {"force_path_style": str(is_in_path).lower()}
    registry = Registry.model_validate(document)
    return RegionStores(Mapping(registry, registry.region("eu")), {HOST: endpoint} if endpoint else {})


def wanted(
    method: str, uri: str, body: str | None = None, endpoint: str = "", *, is_in_path: bool = True, **headers: str
) -> StoreRequest:
    listed = {name.replace("_", "-"): [value] for name, value in headers.items()}
    document = {"method": method, "region": "eu", "uri": uri, "headers": listed, "body": body, "provider": "s3"}
    return stores(endpoint, is_in_path=is_in_path).read_request(read_sign_request(document))


@pytest.mark.parametrize(
    ("method", "path", "operation", "access"),
    [
        ("GET", "/eu-bucket/lake/a.parquet", "GetObject", Access.READ),
        ("GET", "/eu-bucket/lake/a.parquet?x-id=GetObject", "GetObject", Access.READ),
        ("HEAD", "/eu-bucket/lake/a.parquet", "HeadObject", Access.READ),
        ("PUT", "/eu-bucket/lake/a.parquet", "PutObject", Access.CREATE),
        ("POST", "/eu-bucket/lake/a.parquet?uploads", "CreateMultipartUpload", Access.CREATE),
        ("POST", "/eu-bucket/lake/a.parquet?uploads=", "CreateMultipartUpload", Access.CREATE),
        ("PUT", "/eu-bucket/lake/a.parquet?partNumber=1&uploadId=u", "UploadPart", Access.UPLOAD),
        ("POST", "/eu-bucket/lake/a.parquet?uploadId=u", "CompleteMultipartUpload", Access.CREATE),
        ("DELETE", "/eu-bucket/lake/a.parquet?uploadId=u", "AbortMultipartUpload", Access.UPLOAD),
        ("DELETE", "/eu-bucket/lake/a.parquet", "DeleteObject", Access.DELETE),
    ],
)
def test_what_clients_send_is_understood(method: str, path: str, operation: str, access: Access) -> None:
    request = wanted(method, f"{HOST}{path}", host="s3.eu.example", x_amz_date="20260101T000000Z", range="bytes=0-9")
    assert (request.operation, request.access) == (operation, access)
    assert request.uris == ("s3://eu-bucket/lake/a.parquet",)
    assert request.location.id == "eu"


def test_a_bucket_is_where_the_location_has_it() -> None:
    expected = ("s3://eu-bucket/lake/day%3D1/ä b.parquet",)
    key = "lake/day%253D1/%C3%A4%20b.parquet"
    assert wanted("GET", f"{HOST}/eu-bucket/{key}").uris == expected
    assert wanted("GET", f"https://eu-bucket.s3.eu.example/{key}", is_in_path=False).uris == expected
    other = "http://lake.example:9000"
    assert wanted("GET", f"{other}/eu-bucket/{key}", endpoint=other).uris == expected
    assert (
        wanted("GET", f"https://gate.example/s3/eu-bucket/{key}", endpoint="https://gate.example/s3/").uris == expected
    )


@pytest.mark.parametrize("key", ["lake/a.parquet", "eu-bucket/lake/a.parquet", "?list-type=2&prefix=lake%2F"])
def test_a_bucket_is_nowhere_else(key: str) -> None:
    """A store that takes no bucket from the host would read the first folder as one, and the other way round."""
    for uri, is_in_path in (
        (f"https://eu-bucket.s3.eu.example/{key}", True),
        (f"{HOST}/{key}", False),
        (f"{HOST}/eu-bucket/{key}", False),
    ):
        with pytest.raises(Forbidden, match="no bucket of this region"):
            wanted("GET", uri, is_in_path=is_in_path)


def test_many_are_deleted_by_the_keys_of_the_body() -> None:
    request = wanted("POST", f"{HOST}/eu-bucket?delete", DELETION, content_md5="x")
    assert (request.operation, request.access) == ("DeleteObjects", Access.DELETE)
    assert request.uris == ("s3://eu-bucket/lake/a.avro", "s3://eu-bucket/lake/b.avro")


def test_names_are_listed_by_a_prefix() -> None:
    query = "list-type=2&prefix=lake%2Fnear%2F&delimiter=%2F&max-keys=1&encoding-type=url"
    for uri, is_in_path in ((f"{HOST}/eu-bucket?{query}", True), (f"https://eu-bucket.s3.eu.example/?{query}", False)):
        request = wanted("GET", uri, is_in_path=is_in_path)
        assert (request.operation, request.uris) == ("ListObjectsV2", ("s3://eu-bucket/lake/near/",))


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        # another host, port, scheme or user
        ("GET", "https://s3.us.example/us-bucket/a"),
        ("GET", "https://s3.us.example/eu-bucket/a"),
        ("GET", "http://s3.eu.example/eu-bucket/a"),
        ("GET", "https://s3.eu.example:8443/eu-bucket/a"),
        ("GET", "https://s3.eu.example:443/eu-bucket/a"),
        ("GET", "https://S3.eu.example/eu-bucket/a"),
        ("GET", "https://s3.eu.example./eu-bucket/a"),
        ("GET", "https://s3.eu.example@us.example/eu-bucket/a"),
        ("GET", "https://us.example#s3.eu.example/eu-bucket/a"),
        ("GET", "https://us.example\\.s3.eu.example/eu-bucket/a"),
        ("GET", "https://us-bucket.s3.eu.example/a"),
        ("GET", "https://eu-bucket.s3.eu.example.us.example/a"),
        ("GET", "https://eu-bucket.eu-bucket.s3.eu.example/a"),
        ("GET", "https://eu-bucket.s3.eu.example/lake/a"),
        ("GET", "//s3.eu.example/eu-bucket/a"),
        ("GET", "ftp://s3.eu.example/eu-bucket/a"),
        # another bucket
        ("GET", f"{HOST}/us-bucket/a"),
        ("GET", f"{HOST}/eu-bucket-2/a"),
        ("GET", f"{HOST}/EU-bucket/a"),
        ("GET", f"{HOST}//eu-bucket/a"),
        ("GET", f"{HOST}/eu-bucket%2Fa"),
        ("GET", f"{HOST}/./eu-bucket/a"),
        # a key that is more than one
        ("GET", f"{HOST}/eu-bucket/lake/../a"),
        ("GET", f"{HOST}/eu-bucket/lake/%2e%2e/a"),
        ("GET", f"{HOST}/eu-bucket/lake/%2E%2E/a"),
        ("GET", f"{HOST}/eu-bucket/lake/%252e%252e/a"),
        ("GET", f"{HOST}/eu-bucket/lake%2Fa"),
        ("GET", f"{HOST}/eu-bucket/lake%2fa"),
        ("GET", f"{HOST}/eu-bucket/x%252F..%252Fa"),
        ("GET", f"{HOST}/eu-bucket/lake//a"),
        ("GET", f"{HOST}/eu-bucket/lake/a/"),
        ("GET", f"{HOST}/eu-bucket/lake/a+b"),
        ("GET", f"{HOST}/eu-bucket/lake/a;b"),
        ("GET", f"{HOST}/eu-bucket/lake/%61"),
        ("GET", f"{HOST}/eu-bucket/lake/%e4"),
        ("GET", f"{HOST}/eu-bucket/lake/%C3%A4%"),
        ("GET", f"{HOST}/eu-bucket/lake/a%00"),
        ("GET", f"{HOST}/eu-bucket/lake/a%0Ab"),
        ("GET", f"{HOST}/eu-bucket/lake/ä"),
        ("GET", f"{HOST}/eu-bucket/lake/a b"),
        ("GET", f"{HOST}/eu-bucket/lake/a#b"),
        ("GET", f"{HOST}/eu-bucket/lake/a%3Fversion"),
        ("GET", f"{HOST}/eu-bucket/lake/{'a' * 9000}"),
        # a folder of another region in the bucket
        ("GET", f"{HOST}/eu-bucket/lake/us/a"),
        # other operations
        ("GET", f"{HOST}/"),
        ("GET", f"{HOST}/eu-bucket"),
        ("HEAD", f"{HOST}/eu-bucket"),
        ("PUT", f"{HOST}/eu-bucket"),
        ("PUT", f"{HOST}/eu-bucket?policy"),
        ("DELETE", f"{HOST}/eu-bucket"),
        ("GET", f"{HOST}/eu-bucket?uploads"),
        ("GET", f"{HOST}/eu-bucket?prefix=lake%2F"),
        ("GET", f"{HOST}/eu-bucket?list-type=2"),
        ("GET", f"{HOST}/eu-bucket?list-type=1&prefix=lake%2F"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake%2F&delimiter=a"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake/"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake%2F&prefix=other%2F"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake%2F&%70refix=other%2F"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake%2F..%2Fother%2F"),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix="),
        ("GET", f"{HOST}/eu-bucket?list-type=2&prefix=lake%2F&versions"),
        ("GET", f"{HOST}/eu-bucket/a?versionId=1"),
        ("GET", f"{HOST}/eu-bucket/a?acl"),
        ("GET", f"{HOST}/eu-bucket/a?x-id=PutObject"),
        ("GET", f"{HOST}/eu-bucket/a?response-content-type=text%2Fhtml"),
        ("GET", f"{HOST}/eu-bucket/a?uploadId=u"),
        ("GET", f"{HOST}/eu-bucket/a?X-Amz-Signature=u"),
        ("PUT", f"{HOST}/eu-bucket/a?acl"),
        ("PUT", f"{HOST}/eu-bucket/a?tagging"),
        ("PUT", f"{HOST}/eu-bucket/a?uploadId=u"),
        ("PUT", f"{HOST}/eu-bucket/a?partNumber=0&uploadId=u"),
        ("PUT", f"{HOST}/eu-bucket/a?partNumber=1&uploadId="),
        ("PUT", f"{HOST}/eu-bucket/a?partNumber=1&uploadid=u"),
        ("PUT", f"{HOST}/eu-bucket/a?renameObject"),
        ("POST", f"{HOST}/eu-bucket"),
        ("POST", f"{HOST}/eu-bucket/a"),
        ("POST", f"{HOST}/eu-bucket/a?uploads=b"),
        ("POST", f"{HOST}/eu-bucket/a?delete"),
        ("POST", f"{HOST}/eu-bucket/a?select&select-type=2"),
        ("POST", f"{HOST}/eu-bucket?delete"),
        ("DELETE", f"{HOST}/eu-bucket/a?versionId=1"),
        ("PATCH", f"{HOST}/eu-bucket/a"),
        ("OPTIONS", f"{HOST}/eu-bucket/a"),
        ("get", f"{HOST}/eu-bucket/a"),
    ],
)
def test_what_is_not_understood_is_refused(method: str, uri: str) -> None:
    with pytest.raises(Forbidden):
        wanted(method, uri)


@pytest.mark.parametrize(
    "headers",
    [
        {"x_amz_copy_source": "/eu-bucket/replica/us/secret"},
        {"X_AMZ_COPY_SOURCE": "eu-bucket/lake/a"},
        {"x_amz_copy_source_range": "bytes=0-9"},
        {"x_amz_acl": "public-read"},
        {"x_amz_grant_read": "uri=all"},
        {"x_amz_tagging": "a=b"},
        {"x_amz_storage_class": "DEEP_ARCHIVE"},
        {"x_amz_server_side_encryption_customer_algorithm": "AES256"},
        {"x_amz_object_lock_mode": "COMPLIANCE"},
        {"x_amz_bypass_governance_retention": "true"},
        {"x_amz_website_redirect_location": "/b"},
        {"x_amz_rename_source": "/eu-bucket/b"},
        {"x_amz_write_offset_bytes": "0"},
        {"x_amz_security_token": "mine"},
        {"x_amz_meta_snowball_auto_extract": "true"},
        {"x_amz_meta_minio_snowball": "true"},
        {"x_amz_meta_a": "b"},
        {"authorization": "AWS4-HMAC-SHA256 mine"},
        {"host": "s3.us.example"},
        {"x_http_method_override": "DELETE"},
        {"x_amz_date": "b\r\nx-amz-copy-source: c"},
        {"x_amz_date\n": "b"},
    ],
)
def test_headers_that_change_what_a_request_does_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        wanted("PUT", f"{HOST}/eu-bucket/lake/a", **headers)


@pytest.mark.parametrize(
    "headers", [{"x-amz-date": ["a", "b"]}, {"x-amz-date": []}, {"x-amz-date": ["a"], "X-Amz-Date": ["b"]}]
)
def test_a_header_has_one_value(headers: dict[str, list[str]]) -> None:
    with pytest.raises(Forbidden):
        read_sign_request({"method": "GET", "region": "", "uri": f"{HOST}/eu-bucket/a", "headers": headers})


@pytest.mark.parametrize(
    "change",
    [
        {"method": None},
        {"uri": 1},
        {"region": None},
        {"headers": None},
        {"headers": {"a": "b"}},
        {"headers": {"a": [1]}},
        {"body": {}},
    ],
)
def test_a_document_that_is_no_request_is_malformed(change: dict[str, Any]) -> None:
    document = {"method": "GET", "region": "", "uri": f"{HOST}/eu-bucket/a", "headers": {}}
    read_sign_request(document)
    with pytest.raises(BadUpdate):
        read_sign_request({**document, **change})


def test_other_stores_are_refused() -> None:
    with pytest.raises(Forbidden, match="S3"):
        read_sign_request({"method": "GET", "region": "", "uri": f"{HOST}/a", "headers": {}, "provider": "gcs"})
