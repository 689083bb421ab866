"""Keys for one table: a real token service hands them to PyIceberg, which has none, and a store judges by their policy.

Moto judges by the policies of a role and not by those of a session. So the role gets the session's policy here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog

from sterna.config.environment import temporary_environment
from sterna.config.registry.model import Registry
from sterna.config.sections.model import Services
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.serving.http.context import ServeOptions
from sterna.serving.rest_catalog.client_access import ClientAccess
from sterna.serving.rest_catalog.reader import Readable
from sterna.serving.rest_catalog.session_policy import session_policy
from sterna.serving.rest_catalog.table_folders import NearRoots
from tests.support.http_server import Running, gateway
from tests.support.odd_store import EU, NAMESPACE, ROOT, US, OddWorld, odd_servers, odd_world, rows

ROLE, POLICY = "vended", "session"
NAMES = ("t", "hidden_t")
KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.session-token-expires-at-ms")


@dataclass
class Vending:
    """An address that vends keys, over a store that checks each request.

    Args:
        world: with two tables that were born in us.
    """

    world: OddWorld
    running: Running
    issuer: TokenIssuer
    iam: Any

    def headers(self, *roles: str, way: str = "vended-credentials") -> dict[str, str]:
        token = self.issuer.token("somebody", *roles)
        return {"Authorization": f"Bearer {token}", "X-Iceberg-Access-Delegation": way}

    def get(self, path: str, *roles: str, way: str = "vended-credentials") -> httpx.Response:
        return httpx.get(f"{self.running.url}/v1/{path}", headers=self.headers(*roles, way=way), timeout=30)

    def judge_by_session(self, name: str, *, may_write: bool) -> None:
        """Put the policy of a client's session on the role."""
        server = self.running.server
        assert server.services.catalog is not None
        access = ClientAccess(server.services.catalog, NearRoots((EU,)))
        readable = Readable(server.gateway.audience, ["reader", "finance"])
        policy = session_policy(access.of_table(readable, (NAMESPACE, name), may_write))
        # Moto has actions of its own for what S3 allows together with these.
        policy = policy.replace('"s3:GetObject"', '"s3:GetObject","s3:HeadObject"')
        policy = policy.replace('"s3:PutObject"', '"s3:PutObject","s3:CreateMultipartUpload","s3:UploadPart"')
        policy = policy.replace('"s3:PutObject"', '"s3:PutObject","s3:CompleteMultipartUpload"')
        self.iam.put_role_policy(RoleName=ROLE, PolicyName=POLICY, PolicyDocument=policy)

    def store(self, *roles: str, name: str = "t") -> Any:
        """Return a client of the store with the keys that are vended to somebody."""
        answer = self.get(f"namespaces/{NAMESPACE}/tables/{name}/credentials", *roles)
        (credential,) = answer.json()["storage-credentials"]
        return client("s3", self.world.eu, *(credential["config"][key] for key in KEYS[:3]))


def client(service: str, endpoint: str, key: str, secret: str, token: str | None = None) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name="us-east-1",
    )


@pytest.fixture(scope="module")
def vending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vending]:
    folder = tmp_path_factory.mktemp("vending")
    with odd_servers(folder) as servers, odd_world(servers, folder) as world, _own_keys(world) as (own, iam):
        for name in NAMES:
            world.create(name, f"{US}/{name}").append(rows(1, 2, 3))
        world.commit(*NAMES)
        own.sync()
        issuer = create_token_issuer()
        region = {"location": EU, "vended_keys": {"role_arn": f"arn:aws:iam::123456789012:role/{ROLE}"}}
        region["vended_keys"] |= {"sts_endpoint": world.eu, "duration": "15m"}  # type: ignore[operator]
        readers = [{"tables": [f"{NAMESPACE}.hidden*"], "roles": ["finance"]}]
        services = Services.model_validate({"catalog": {"regions": {"eu": region}}, "readers": readers})
        with gateway(
            own,  # type: ignore[arg-type]
            services,
            environment=issuer.nessie_settings(),
            options=ServeOptions(port=0),
            only=["catalog"],
        ) as running:
            yield Vending(own, running, issuer, iam)


@contextmanager
def _own_keys(world: OddWorld) -> Iterator[tuple[OddWorld, Any]]:
    """Give eu's store users and a role, and from now on let it check each request."""
    anyone = client("iam", world.eu, "a", "b")
    anyone.create_user(UserName="sterna")
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    anyone.put_user_policy(UserName="sterna", PolicyName="all", PolicyDocument=json.dumps(everything))
    key = anyone.create_access_key(UserName="sterna")["AccessKey"]
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}],
    }
    anyone.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust))
    document = world.registry.model_dump(mode="json")
    next(place for place in document["locations"] if place["id"] == "eu")["credential_id"] = "eu_store"
    connection = json.dumps({"conn_type": "aws", "login": key["AccessKeyId"], "password": key["SecretAccessKey"]})
    httpx.post(f"{world.eu}/moto-api/reset-auth", content=b"0").raise_for_status()
    with temporary_environment({"AIRFLOW_CONN_EU_STORE": connection}):
        own = replace(world, registry=Registry.model_validate(document))
        yield own, client("iam", world.eu, key["AccessKeyId"], key["SecretAccessKey"])


def test_pyiceberg_reads_and_appends_with_vended_keys(vending: Vending) -> None:
    vending.judge_by_session("t", may_write=True)
    token = vending.issuer.token("somebody", "writer", "finance")
    catalog = RestCatalog("eu", uri=vending.running.url, token=token)
    table = catalog.load_table((NAMESPACE, "t"))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    table.append(rows(100))
    again = catalog.load_table((NAMESPACE, "t"))
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 100]
    assert again.location().startswith(f"{EU}/near/")


def test_keys_are_in_the_answers_that_want_them(vending: Vending) -> None:
    path = f"namespaces/{NAMESPACE}/tables/t"
    answer = vending.get(path, "reader", "finance")
    body = answer.json()
    assert answer.headers["cache-control"] == "no-store" and "etag" not in answer.headers
    (credential,) = body["storage-credentials"]
    assert credential["prefix"] == "s3" and set(credential["config"]) == set(KEYS)
    assert credential["config"].items() <= body["config"].items()
    assert body["config"]["s3.endpoint"] == vending.world.eu
    assert body["config"]["client.refresh-credentials-endpoint"] == f"v1/eu/{path}/credentials"
    left = int(credential["config"]["s3.session-token-expires-at-ms"]) / 1000 - time.time()
    assert 400 < left <= 900
    assert body["metadata"] == vending.get(path, "reader", "finance", way="").json()["metadata"]
    for way in ("", "remote-signing"):
        assert vending.get(path, "reader", "finance", way=way).json()["config"] == {}
    endpoints = vending.get("config", "reader").json()["endpoints"]
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials" in endpoints


def test_a_reader_gets_other_keys_than_a_writer(vending: Vending) -> None:
    path = f"namespaces/{NAMESPACE}/tables/t/credentials"
    keys = {
        roles: vending.get(path, *roles).json()["storage-credentials"][0]["config"]["s3.access-key-id"]
        for roles in (("reader", "finance"), ("writer", "finance"), ("admin", "finance"))
    }
    reader, writer, admin = keys.values()
    assert reader != writer == admin


def test_rules_hold_for_keys_as_for_loading(vending: Vending) -> None:
    hidden, shown = (f"namespaces/{NAMESPACE}/tables/{name}" for name in ("hidden_t", "t"))
    assert vending.get(f"{hidden}/credentials", "reader").status_code == 404
    assert vending.get(f"namespaces/{NAMESPACE}/tables/none/credentials", "writer", "finance").status_code == 404
    assert vending.get(f"{hidden}/credentials", "reader", "finance").status_code == 200
    assert vending.get(f"{shown}/credentials", "stranger").status_code == 403
    assert httpx.get(f"{vending.running.url}/v1/{shown}/credentials").status_code == 401
    answer = vending.get(f"{shown}/credentials", "writer")
    assert answer.status_code == 403 and "hidden" in answer.json()["error"]["message"]
    loaded = vending.get(shown, "writer").json()
    assert loaded["config"] == {} and "storage-credentials" not in loaded


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_no_key_changes_a_replica_or_what_the_address_wrote(vending: Vending, role: str) -> None:
    vending.judge_by_session("t", may_write=role == "writer")
    store = vending.store(role, "finance")
    body = vending.get(f"namespaces/{NAMESPACE}/tables/t", "reader", "finance").json()
    near, uuid = body["metadata"]["location"], body["metadata"]["table-uuid"]
    places = [
        body["metadata-location"],
        f"{ROOT}/us/t/data/new.parquet",
        f"{EU}/_sterna/rest/{uuid}/metadata/m.avro",
        f"{EU}/near/other/data/a.parquet",
        f"{EU}/elsewhere/a.parquet",
        *([] if role == "writer" else [f"{near}/data/a.parquet"]),
    ]
    for place in places:
        bucket, _, key = place.partition("://")[2].partition("/")
        refused(store.put_object, Bucket=bucket, Key=key, Body=b"x")
        refused(store.delete_object, Bucket=bucket, Key=key)
        source = {"Bucket": bucket, "Key": body["metadata-location"].partition("://")[2].partition("/")[2]}
        refused(store.copy_object, Bucket=bucket, Key=key, CopySource=source)
    bucket, _, key = body["metadata-location"].partition("://")[2].partition("/")
    assert store.get_object(Bucket=bucket, Key=key)["Body"].read().startswith(b"{")
    if role == "writer":
        folder = near.partition("://")[2].partition("/")[2]
        for name, may_delete in (("metadata/m.avro", True), ("data/d.parquet", False), ("metadata/s.stats", False)):
            store.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=b"x")
            if may_delete:
                store.delete_object(Bucket=bucket, Key=f"{folder}/{name}")
            else:
                refused(store.delete_object, Bucket=bucket, Key=f"{folder}/{name}")


def refused(call: Any, **arguments: Any) -> None:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_token_service_that_says_no_is_named_without_secrets(vending: Vending, tmp_path: Path) -> None:
    vendor = vending.running.server.services.catalog_vendor
    assert vendor is not None
    endpoint, vendor._kept = vendor._settings, type(vendor._kept)()
    vendor._settings = endpoint.model_copy(update={"sts_endpoint": "http://127.0.0.1:1"})
    try:
        answer = vending.get(f"namespaces/{NAMESPACE}/tables/t/credentials", "reader", "finance")
        assert answer.status_code == 503, answer.text
        assert "retry-after" in answer.headers
    finally:
        vendor._settings = endpoint
