"""Which parts of a request a signature covers. That stores take it is seen where there are stores."""

from __future__ import annotations

import hashlib
import logging

from sterna.config.registry.connection import Credential
from sterna.serving.rest_catalog.sign_request import read_sign_request
from sterna.serving.rest_catalog.signature import sign_request
from tests.unit.config.samples import mapping

KEYS = Credential("store", "AKIA", "hidden-secret", {"session_token": "session"})


def signed(method: str, query: str = "", body: str | None = None, **headers: str) -> dict[str, str]:
    listed = {name.replace("_", "-"): [value] for name, value in headers.items()}
    document = {"method": method, "region": "", "uri": f"https://s3.example/eu-bucket/a{query}", "headers": listed}
    request = read_sign_request(document | ({} if body is None else {"body": body}))
    answer = sign_request(request, mapping().locate("s3://eu-bucket/a").location, KEYS)
    return {name.lower(): value for name, (value,) in answer.items()}


def test_what_a_store_decides_by_is_signed_and_nothing_that_changes_on_the_way() -> None:
    headers = signed("PUT", host="s3.example", range="bytes=0-1", x_amz_meta_a="b", content_md5="c", x_amz_date="old")
    assert "SignedHeaders=content-md5;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;" in headers["authorization"]
    assert "/us-east-1/s3/aws4_request" in headers["authorization"]
    assert headers["x-amz-date"] != "old"
    assert headers["x-amz-security-token"] == "session"
    assert set(headers) == {"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}


def test_a_condition_is_signed_and_handed_to_the_client() -> None:
    document = {"method": "PUT", "region": "", "uri": "https://s3.example/eu-bucket/a"}
    request = read_sign_request(document | {"headers": {"If-None-Match": ["mine"]}})
    location = mapping().locate("s3://eu-bucket/a").location
    answer = sign_request(request, location, KEYS, {"if-none-match": "*"})
    headers = {name.lower(): values for name, values in answer.items()}
    assert headers["if-none-match"] == ["*"]
    assert "SignedHeaders=host;if-none-match;x-amz-content-sha256;" in headers["authorization"][0]


def test_content_that_was_looked_at_is_signed() -> None:
    assert signed("PUT")["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert signed("PUT", x_amz_content_sha256="mine")["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert (
        signed("PUT", x_amz_trailer="x-amz-checksum-crc32")["x-amz-content-sha256"]
        == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    )
    body = "<Delete/>"
    for headers in ({}, {"x_amz_trailer": "x-amz-checksum-crc32"}, {"x_amz_content_sha256": "UNSIGNED-PAYLOAD"}):
        digest = signed("POST", "?delete", body, **headers)["x-amz-content-sha256"]
        assert digest == hashlib.sha256(body.encode()).hexdigest()


def test_no_secret_is_logged() -> None:
    root, records = logging.getLogger(), []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        signed("GET")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert not [record for record in records if "session" in record.getMessage() or "Signature" in record.getMessage()]
