"""Engines without a key of their own read and write by requests that eu's address signs; and clients that lie."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sterna.servers.s3 import CLIENT_ENVIRONMENT
from tests.integration.rest_catalog.conftest import SIGNED_CATALOG, SigningAddress
from tests.support import signed_pyiceberg
from tests.support.foreign_readers import engines_python
from tests.support.world import World, merge_on_read

NAMESPACE = "rest_sign"
HIDDEN = f"{NAMESPACE}.hidden_t"
KEYS = "x-amz-date", "x-amz-content-sha256", "authorization", "if-none-match"


@pytest.fixture(scope="module")
def table(world: World, ns: str) -> str:
    """A table that was born in us, with one file in eu's own place; and a hidden one beside it."""
    for name in (f"{ns}.t", HIDDEN):
        world.sql(f"CREATE TABLE main_us.{name} (id BIGINT, name STRING) USING iceberg {merge_on_read(2)}")
        world.sql(f"INSERT INTO main_us.{name} SELECT id, concat('n', id) FROM range(0, 30, 1, 1)")
    world.sync()
    return f"{ns}.t"


@pytest.fixture(scope="module")
def near(signing_address: SigningAddress, table: str) -> str:
    """The URI of the table's place in eu."""
    return str(load(signing_address, table, "reader").json()["metadata"]["location"])


def load(address: SigningAddress, table: str, *roles: str, way: str = "remote-signing") -> httpx.Response:
    namespace, name = table.split(".")
    headers = {**address.headers(*roles), "X-Iceberg-Access-Delegation": way}
    return httpx.get(f"{address.url}/v1/namespaces/{namespace}/tables/{name}", headers=headers, timeout=30)


def url_of(address: SigningAddress, uri: str) -> str:
    return f"{address.world.stage.endpoints['eu'].url}/{quote(uri.partition('://')[2])}"


def send(method: str, url: str, signed: httpx.Response, content: bytes = b"", **more: str) -> httpx.Response:
    """Send a request that was signed, perhaps changed afterwards."""
    assert signed.status_code == 200, signed.text
    headers = {name: values[0] for name, values in signed.json()["headers"].items()}
    return httpx.request(method, url, headers={**headers, **more}, content=content, timeout=30)


def test_spark_reads_and_writes_without_a_key(signing_address: SigningAddress, table: str) -> None:
    world = signing_address.world
    home = f"{SIGNED_CATALOG}.{table}"
    assert world.sql(f"SELECT count(*) FROM {home}") == [(30,)]
    world.sql(f"INSERT INTO {home} VALUES (100, 'eu'), (101, 'eu')")
    world.sql(f"DELETE FROM {home} WHERE id < 3")
    assert world.sql(f"SELECT count(*), max(id) FROM {home}") == [(29, 101)]
    assert world.sql(f"SELECT count(*), max(id) FROM main_us.{table}") == [(29, 101)]
    made = f"{NAMESPACE}.made"
    world.sql(f"CREATE TABLE {SIGNED_CATALOG}.{made} USING iceberg AS SELECT * FROM {home} WHERE id > 99")
    world.sql(f"INSERT INTO {SIGNED_CATALOG}.{made} VALUES (102, 'eu')")
    assert sorted(world.sql(f"SELECT id FROM {SIGNED_CATALOG}.{made}")) == [(100,), (101,), (102,)]
    assert sorted(world.sql(f"SELECT id FROM main_us.{made}")) == [(100,), (101,), (102,)]


@pytest.mark.rare
def test_pyiceberg_reads_and_writes_without_a_key(signing_address: SigningAddress, table: str) -> None:
    program = Path(signed_pyiceberg.__file__)
    token = signing_address.issuer.token("somebody", "writer", "finance")
    request = {"uri": signing_address.url, "token": token, "table": table, "ids": [200, 201]}
    command = [engines_python(program.with_suffix(".lock")), program]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")} | CLIENT_ENVIRONMENT
    ended = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, env=environment)
    assert not ended.returncode, ended.stderr
    answer = json.loads(ended.stdout)
    assert sorted({*answer["after"]} - {*answer["before"]}) == [200, 201]
    assert len(answer["before"]) >= 29


def test_only_who_asks_for_signatures_is_told_of_them(signing_address: SigningAddress, table: str) -> None:
    config = load(signing_address, table, "reader").json()["config"]
    assert config["s3.remote-signing-enabled"] == "true"
    assert config["s3.endpoint"] == signing_address.world.stage.endpoints["eu"].url
    assert config["s3.signer.endpoint"] == f"v1/eu/namespaces/{NAMESPACE}/tables/t/sign"
    assert not [name for name in config if "key" in name or "token" in name]
    assert load(signing_address, table, "reader", way="vended-credentials").json()["config"] == {}
    endpoints = httpx.get(f"{signing_address.url}/v1/config", headers=signing_address.headers("reader")).json()[
        "endpoints"
    ]
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign" in endpoints


def test_a_reader_reads_what_the_table_names(signing_address: SigningAddress, table: str) -> None:
    location = load(signing_address, table, "reader").json()["metadata-location"]
    url = url_of(signing_address, location)
    for method in ("GET", "HEAD"):
        answer = send(method, url, signing_address.sign(table, method, url, "reader"), Range="bytes=0-3")
        assert answer.status_code in (200, 206)
    assert send("GET", url, signing_address.sign(table, "GET", url, "reader")).content.startswith(b"{")


def test_a_table_that_a_client_may_not_see_is_not_there(signing_address: SigningAddress, table: str) -> None:
    seen = load(signing_address, HIDDEN, "reader", "finance").json()["metadata-location"]
    url = url_of(signing_address, seen)
    assert signing_address.sign(HIDDEN, "GET", url, "reader").status_code == 404
    assert signing_address.sign(HIDDEN, "GET", url, "reader", "finance").status_code == 200
    assert signing_address.sign(f"{NAMESPACE}.none", "GET", url, "reader").status_code == 404
    refused(signing_address.sign(table, "GET", url, "reader"), "may not see")
    refused(signing_address.sign(table, "GET", url, "writer"), "may not see")
    assert httpx.post(f"{signing_address.url}/v1/namespaces/{NAMESPACE}/tables/t/sign", json={}).status_code == 401
    assert signing_address.sign(table, "GET", url, "stranger").status_code == 403


def refused(answer: httpx.Response, reason: str = "") -> None:
    assert answer.status_code == 403, answer.text
    error = answer.json()["error"]
    assert error["type"] == "ForbiddenException" and reason in error["message"]
    assert "Signature=" not in answer.text and "Bearer" not in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_no_client_changes_a_replica_or_what_the_address_wrote(
    signing_address: SigningAddress, table: str, near: str, method: str
) -> None:
    loaded = load(signing_address, table, "writer").json()
    root = signing_address.world.context().region.replica_root
    own = near.partition("/near/")
    places = [
        loaded["metadata-location"],
        f"{root}/new.parquet",
        f"{root}/_sterna/runs/a",
        f"{own[0]}/_sterna/rest/{own[2]}/metadata/m.avro",
        f"{own[0]}/near/other/data/a.parquet",
        f"{near}/../other/a.parquet",
        f"{near}/data/%2E%2E/%2E%2E/other/a.parquet",
    ]
    for place in places:
        suffix = "?uploads" if method == "POST" else ""
        refused(signing_address.sign(table, method, f"{url_of(signing_address, place)}{suffix}", "writer", "admin"))


def test_a_reader_writes_nothing_and_a_writer_writes_once(
    signing_address: SigningAddress, table: str, near: str
) -> None:
    url = url_of(signing_address, f"{near}/data/once.parquet")
    refused(signing_address.sign(table, "PUT", url, "reader"), "roles may not write")
    assert send("PUT", url, signing_address.sign(table, "PUT", url, "writer"), b"rows").status_code == 200
    refused(signing_address.sign(table, "PUT", url, "writer"), "there already")
    refused(signing_address.sign(table, "POST", f"{url}?uploads", "writer"), "there already")
    refused(signing_address.sign(table, "DELETE", url, "writer"), "maintenance")
    assert send("GET", url, signing_address.sign(table, "GET", url, "reader")).content == b"rows"


def test_an_earlier_version_is_read_and_never_written(signing_address: SigningAddress, table: str, near: str) -> None:
    signing_address.world.sync()
    prefix = f"main@{signing_address.world.catalog.reference('main').hash}"
    path = f"v1/{prefix}/namespaces/{NAMESPACE}/tables/{table.partition('.')[2]}"
    headers = signing_address.headers("writer")
    loaded = httpx.get(f"{signing_address.url}/{path}", headers=headers, timeout=30).json()
    assert loaded["config"]["s3.signer.endpoint"] == f"{path}/sign"
    url = url_of(signing_address, loaded["metadata-location"])
    signed = signing_address.sign(table, "GET", url, "reader", prefix=prefix)
    assert send("GET", url, signed).content.startswith(b"{")
    new = url_of(signing_address, f"{near}/data/past.parquet")
    refused(signing_address.sign(table, "PUT", new, "writer", prefix=prefix))


def test_a_large_file_comes_in_parts(signing_address: SigningAddress, table: str, near: str) -> None:
    url = url_of(signing_address, f"{near}/data/parts.parquet")

    def step(method: str, query: str, content: bytes = b"") -> httpx.Response:
        target = f"{url}?{query}"
        answer = send(method, target, signing_address.sign(table, method, target, "writer"), content)
        assert answer.is_success, answer.text
        return answer

    upload = step("POST", "uploads").text.partition("<UploadId>")[2].partition("<")[0]
    refused(signing_address.sign(table, "PUT", f"{url}?partNumber=1&uploadId={upload}", "reader"))
    etag = step("PUT", f"partNumber=1&uploadId={upload}", b"x" * 1000).headers["etag"]
    parts = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    step("POST", f"uploadId={upload}", f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode())
    assert send("GET", url, signing_address.sign(table, "GET", url, "reader")).content == b"x" * 1000
    other = url_of(signing_address, f"{near}/data/given-up.parquet")
    started = send("POST", f"{other}?uploads", signing_address.sign(table, "POST", f"{other}?uploads", "writer"))
    abort = f"{other}?uploadId={started.text.partition('<UploadId>')[2].partition('<')[0]}"
    assert send("DELETE", abort, signing_address.sign(table, "DELETE", abort, "writer")).is_success


def test_deleting_many_is_looked_at_key_by_key(signing_address: SigningAddress, table: str, near: str) -> None:
    endpoint, (bucket, _, folder) = (
        signing_address.world.stage.endpoints["eu"].url,
        near.partition("://")[2].partition("/"),
    )
    names = [f"{folder}/metadata/{number}.avro" for number in range(3)]
    for name in names:
        url = f"{endpoint}/{bucket}/{name}"
        assert send("PUT", url, signing_address.sign(table, "PUT", url, "writer"), b"x").is_success
    url = f"{endpoint}/{bucket}?delete"

    def body(*keys: str) -> str:
        return f"<Delete>{''.join(f'<Object><Key>{key}</Key></Object>' for key in keys)}</Delete>"

    refused(signing_address.sign(table, "POST", url, "writer"), "with its body")
    root = signing_address.world.context().region.replica_root.partition("://")[2].partition("/")[2]
    for key in (f"{root}/us/t.avro", f"{folder}/data/a.parquet", f"{folder}/metadata/../data/a.avro"):
        refused(signing_address.sign(table, "POST", url, "writer", body=body(names[0], key)))
    refused(signing_address.sign(table, "POST", url, "reader", body=body(names[0])))
    # This store takes another body than the one that was looked at: so none is signed for it.
    refused(signing_address.sign(table, "POST", url, "writer", body=body(names[0])), "other content")
    one = f"{endpoint}/{bucket}/{names[0]}"
    assert send("DELETE", one, signing_address.sign(table, "DELETE", one, "writer")).is_success
    left = [
        send("HEAD", one, signing_address.sign(table, "HEAD", one, "reader")).status_code
        for one in (f"{endpoint}/{bucket}/{name}" for name in names)
    ]
    assert left == [404, 200, 200]


def test_names_are_listed_in_the_table_alone(signing_address: SigningAddress, table: str, near: str) -> None:
    endpoint, (bucket, _, folder) = (
        signing_address.world.stage.endpoints["eu"].url,
        near.partition("://")[2].partition("/"),
    )
    own = f"{endpoint}/{bucket}?list-type=2&prefix={quote(folder + '/', safe='')}"
    assert send("GET", own, signing_address.sign(table, "GET", own, "reader")).is_success
    for prefix in ("", "near%2F", quote(folder, safe=""), "replica%2F"):
        listing = f"{endpoint}/{bucket}?list-type=2&prefix={prefix}"
        refused(signing_address.sign(table, "GET", listing, "reader", "finance"))


def test_a_request_that_is_changed_after_it_was_signed_is_refused_by_the_store(
    signing_address: SigningAddress, table: str, near: str
) -> None:
    loaded = load(signing_address, HIDDEN, "reader", "finance").json()["metadata-location"]
    url, secret = url_of(signing_address, f"{near}/data/changed.parquet"), url_of(signing_address, loaded)
    copied = loaded.partition("://")[2]
    refused(signing_address.sign(table, "PUT", url, "writer", x_amz_copy_source=copied), "x-amz-copy-source")
    refused(signing_address.sign(table, "PUT", url, "writer", x_amz_meta_a="b"), "x-amz-meta-a")
    signed = signing_address.sign(table, "PUT", url, "writer")
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", url, {"x-amz-copy-source": copied}),
        ("PUT", url, {"if-none-match": "b"}),
        ("DELETE", url, {}),
        ("PUT", f"{url}2", {}),
        ("PUT", f"{url}?acl", {}),
        ("GET", secret, {}),
    ]
    for method, target, headers in changes:
        assert send(method, target, signed, b"", **headers).status_code in (400, 403), (method, target, headers)
    listing = signing_address.sign(table, "GET", url, "reader")
    assert send("GET", url, listing).status_code == 404


def test_no_key_and_no_token_is_in_an_answer(signing_address: SigningAddress, table: str, near: str) -> None:
    url = url_of(signing_address, f"{near}/data/answer.parquet")
    answer = signing_address.sign(table, "PUT", url, "writer", content_type="a/b", x_amz_checksum_crc32="b")
    assert answer.json()["uri"] == url
    assert sorted(name.lower() for name in answer.json()["headers"]) == sorted(KEYS)
    assert signing_address.world.stage.endpoints["eu"].secret_key not in answer.text
    signature = answer.json()["headers"]["Authorization"][0]
    assert (
        "SignedHeaders=content-type;host;if-none-match;x-amz-checksum-crc32;x-amz-content-sha256;x-amz-date,"
        in signature
    )
