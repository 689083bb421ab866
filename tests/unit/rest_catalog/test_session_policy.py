"""What a session's policy allows, by the judge of moto, which isn't ours: it says no where `FolderAccess` does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from moto.iam.access_control import IAMPolicy, PermissionResult

from sterna.errors import Forbidden
from sterna.serving.rest_catalog.session_policy import session_policy
from tests.unit.rest_catalog.test_table_folders import BORN_IN_EU, BORN_IN_US, REPLICA, US, access, metadata

NEAR = f"s3://eu-bucket/lake/near/{US}"


def allowed(policy: str, action: str, uri: str) -> bool:
    resource = f"arn:aws:s3:::{uri.partition('://')[2]}"
    return IAMPolicy(policy).is_action_permitted(f"s3:{action}", resource) is PermissionResult.PERMITTED


@pytest.mark.parametrize("document", [BORN_IN_US, BORN_IN_EU])
@pytest.mark.parametrize("may_write", [True, False])
@pytest.mark.parametrize(
    "uri",
    [
        f"{REPLICA}/us/lake/t/data/a.parquet",
        f"{REPLICA}/_localized/_7/us/lake/t/metadata/1.metadata.json",
        f"{REPLICA}/_sterna/runs/1/plan.json",
        f"s3://eu-bucket/lake/_sterna/rest/{US}/metadata/m.avro",
        f"{NEAR}/data/a.parquet",
        f"{NEAR}/data/a.avro",
        f"{NEAR}/metadata/m.avro",
        f"{NEAR}/metadata/s.stats",
        f"{NEAR}x/data/a.parquet",
        "s3://eu-bucket/lake/ns/own/data/a.parquet",
        "s3://eu-bucket/lake/ns/own/metadata/m.avro",
        "s3://eu-bucket/lake/ns/owner/data/a.parquet",
        "s3://eu-bucket/data/own/a.parquet",
        "s3://eu-bucket/other/a.parquet",
        "s3://us-bucket/lake/t/data/a.parquet",
    ],
)
def test_a_policy_says_what_signing_does(document: dict[str, Any], may_write: bool, uri: str) -> None:
    client = access(document, may_write=may_write)
    policy = session_policy(client)
    for action, require in (
        ("GetObject", client.require_readable),
        ("PutObject", client.require_writable),
        ("AbortMultipartUpload", client.require_writable),
        ("DeleteObject", client.require_deletable),
    ):
        try:
            require(uri)
            expected = True
        except Forbidden:
            expected = False
        assert allowed(policy, action, uri) is expected, (action, uri)
    for action in (
        "PutObjectAcl",
        "DeleteObjectVersion",
        "PutBucketPolicy",
        "BypassGovernanceRetention",
        "GetObjectAcl",
    ):
        assert not allowed(policy, action, uri)


def test_a_policy_is_as_short_as_a_session_wants_it() -> None:
    assert len(session_policy(access(BORN_IN_US))) < 1400, "with an earlier location"
    assert json.loads(session_policy(access(BORN_IN_US), partition="aws-cn"))["Statement"][0]["Resource"][0].startswith(
        "arn:aws-cn:s3:::"
    )


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("s3://eu-bucket/lake", "around"),
        ("s3://eu-bucket/a*b", "pattern"),
        ("s3://eu-bucket/a$b", "pattern"),
        ("s3://eu-bucket/" + "x" * 700, "more folders"),
    ],
)
def test_what_no_policy_can_say_is_refused(location: str, reason: str) -> None:
    document = metadata(location, UUID(int=5), **{"write.data.path": f"{location}/data"})
    with pytest.raises(Forbidden, match=reason):
        session_policy(access(document))


def test_a_table_that_overlaps_with_another_one_gets_no_keys_to_write() -> None:
    others = [access(BORN_IN_EU).folders, access(metadata("s3://eu-bucket/lake", UUID(int=8))).folders]
    session_policy(access(BORN_IN_US), others)
    for location in (f"{REPLICA}/eu/lake/ns", f"{REPLICA}/eu/lake/ns/own", f"{REPLICA}/eu/lake/ns/own/data"):
        document = metadata(location, UUID(int=3))
        with pytest.raises(Forbidden, match="overlaps with another"):
            session_policy(access(document), others)
        session_policy(access(document, may_write=False), others)
    with pytest.raises(Forbidden, match="overlaps with another"):
        session_policy(access(BORN_IN_EU), others[1:])


def test_a_table_that_overlaps_with_an_inbox_gets_no_keys() -> None:
    for inbox in ("s3://eu-bucket/lake/ns", "s3://eu-bucket/lake/ns/own", "s3://eu-bucket/lake/ns/own/inbox"):
        with pytest.raises(Forbidden, match="inbox"):
            session_policy(replace(access(BORN_IN_EU), inboxes=(inbox,)))
    session_policy(replace(access(BORN_IN_EU), inboxes=("s3://eu-bucket/lake/ns/owner",)))


def test_a_client_from_which_a_table_is_hidden_gets_no_keys() -> None:
    with pytest.raises(Forbidden, match="hidden"):
        session_policy(access(BORN_IN_US, BORN_IN_EU))
    with pytest.raises(Forbidden, match="hidden"):
        session_policy(replace(access(BORN_IN_US), is_restricted=True))
