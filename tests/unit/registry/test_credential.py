"""One credential under the names that rclone, obstore and Iceberg's FileIO have for it."""

import json
from typing import Any

import pytest

from sterna.errors import CredentialError
from sterna.registry.credential import (
    RCLONE_ENCODING,
    Credential,
    StoreAddress,
    fileio_properties,
    parse_credential,
    rclone_environment,
    store_address,
    store_options,
)
from sterna.registry.model import Location
from tests.unit.registry import samples

SECRET = "wJalrXUtnFEMI/K7MDENG+bPx"
AWS = {"conn_type": "aws", "login": "AKIA1", "password": SECRET}
KEYS = parse_credential("c", json.dumps(AWS))


def at(prefix: str, **options: str) -> Location:
    made = samples.location("lake", prefix)
    made["remote"]["options"] = options
    return Location.model_validate(made)


class TestParse:
    @pytest.mark.parametrize(
        "text",
        [
            json.dumps(AWS),
            json.dumps({**AWS, "extra": "{}"}),
            json.dumps({**AWS, "extra": None, "host": "h", "port": 1, "schema": "s"}),
            "aws://AKIA1:wJalrXUtnFEMI%2FK7MDENG%2BbPx@",
            "aws://AKIA1:wJalrXUtnFEMI%2FK7MDENG%2BbPx@/?__extra__=%7B%7D",
        ],
    )
    def test_every_form_of_a_connection(self, text: str) -> None:
        assert parse_credential("c", text) == Credential("c", "AKIA1", SECRET, {})

    @pytest.mark.parametrize("extra", [{"session_token": "t"}, json.dumps({"session_token": "t"})])
    def test_extra_is_an_object_or_json(self, extra: object) -> None:
        assert parse_credential("c", json.dumps({**AWS, "extra": extra})).extra == {"session_token": "t"}
        assert parse_credential("c", "aws://AKIA1:x@/?session_token=t").extra == {"session_token": "t"}

    @pytest.mark.parametrize(
        "text", ["{", "", f"{{'password': '{SECRET}'}}", SECRET, json.dumps({**AWS, "extra": SECRET}), '{"extra": [1]}']
    )
    def test_what_it_can_not_read_is_named_by_id_alone(self, text: str) -> None:
        with pytest.raises(CredentialError, match="'c'") as raised:
            parse_credential("c", text)
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None and raised.value.__suppress_context__

    def test_it_can_be_written_and_read_again(self) -> None:
        one = parse_credential("c", json.dumps({**AWS, "extra": {"keyfile_dict": {"a": "b"}}}))
        assert parse_credential("c", one.text()) == one


def test_nothing_shows_a_secret() -> None:
    credential = parse_credential(
        "c", json.dumps({**AWS, "extra": {"session_token": "token-1", "keyfile_dict": {"private_key": "private-1"}}})
    )
    assert repr(credential) == "Credential(id='c')"
    assert SECRET not in repr(store_options(at("s3://lake"), credential))
    scrubbed = credential.scrub(f"a {SECRET} b token-1 c private-1 d")
    assert scrubbed == "a *** b *** c *** d"


@pytest.mark.parametrize(
    ("prefix", "address"),
    [
        ("s3://b/p/q", StoreAddress("b", "p/q")),
        ("s3a://b", StoreAddress("b", "")),
        ("gs://b/p", StoreAddress("b", "p")),
        ("abfss://c@acc.dfs.core.windows.net/p", StoreAddress("c", "p", "acc")),
        ("file:///data/w", StoreAddress("", "data/w")),
    ],
)
def test_the_address_of_a_prefix(prefix: str, address: StoreAddress) -> None:
    assert store_address(at(prefix)) == address


class TestS3:
    location = at("s3://b/p", endpoint="http://h:9000", region="eu-west-1")

    def test_rclone(self) -> None:
        assert rclone_environment("lake_a", self.location, KEYS) == {
            "RCLONE_CONFIG_LAKE_A_TYPE": "s3",
            "RCLONE_CONFIG_LAKE_A_PROVIDER": "Other",
            "RCLONE_CONFIG_LAKE_A_ENCODING": RCLONE_ENCODING,
            "RCLONE_CONFIG_LAKE_A_NO_CHECK_BUCKET": "true",
            "RCLONE_CONFIG_LAKE_A_REGION": "eu-west-1",
            "RCLONE_CONFIG_LAKE_A_ENDPOINT": "http://h:9000",
            "RCLONE_CONFIG_LAKE_A_ACCESS_KEY_ID": "AKIA1",
            "RCLONE_CONFIG_LAKE_A_SECRET_ACCESS_KEY": SECRET,
        }

    def test_the_registry_has_the_last_word_on_options(self) -> None:
        assert rclone_environment("x", at("s3://b", provider="Ceph", endpoint="h"), KEYS)["RCLONE_CONFIG_X_PROVIDER"] == "Ceph"

    def test_without_a_credential_the_machine_provides_one(self) -> None:
        settings = rclone_environment("x", self.location, None)
        assert settings["RCLONE_CONFIG_X_ENV_AUTH"] == "true" and "RCLONE_CONFIG_X_ACCESS_KEY_ID" not in settings
        assert "credential_provider" not in store_options(self.location, None)
        assert "s3.access-key-id" not in fileio_properties(self.location, None)

    def test_fileio(self) -> None:
        assert fileio_properties(self.location, KEYS) == {
            "s3.endpoint": "http://h:9000",
            "s3.path-style-access": "true",
            "client.region": "eu-west-1",
            "s3.region": "eu-west-1",
            "s3.access-key-id": "AKIA1",
            "s3.secret-access-key": SECRET,
        }

    def test_a_session_token_reaches_every_reader(self) -> None:
        credential = Credential("c", "AKIA1", SECRET, {"session_token": "t"})
        assert rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_SESSION_TOKEN"] == "t"
        assert store_options(self.location, credential)["credential_provider"]()["token"] == "t"
        assert fileio_properties(self.location, credential)["s3.session-token"] == "t"

    def test_keys_may_stand_in_extra_as_airflow_allows(self) -> None:
        credential = Credential("c", extra={"aws_access_key_id": "AKIA1", "aws_secret_access_key": SECRET})
        assert fileio_properties(self.location, credential)["s3.secret-access-key"] == SECRET

    def test_aws_itself_and_a_bucket_in_the_host_name(self) -> None:
        assert store_options(at("s3://b"), KEYS)["endpoint"] == "https://s3.us-east-1.amazonaws.com"
        assert store_options(at("s3://b", region="cn-north-1"), KEYS)["endpoint"] == "https://s3.cn-north-1.amazonaws.com.cn"
        hosted = store_options(at("s3://b", endpoint="h:1", force_path_style="false"), KEYS)
        assert hosted["endpoint"] == "https://b.h:1" and hosted["virtual_hosted_style_request"] is True
        assert fileio_properties(at("s3://b", endpoint="h:1", force_path_style="false"), KEYS)["s3.path-style-access"] == "false"

    @pytest.mark.parametrize("credential", [Credential("c", "AKIA1"), Credential("c", "", SECRET), Credential("c")])
    def test_half_a_key_is_incomplete(self, credential: Credential) -> None:
        for settings in (store_options, fileio_properties, lambda *args: rclone_environment("x", *args)):
            with pytest.raises(CredentialError, match=r"'c'.*'lake'") as raised:
                settings(self.location, credential)
            assert SECRET not in str(raised.value)


class TestGoogle:
    location = at("gs://b/p", endpoint="http://h:4443", project_number="7")

    @pytest.mark.parametrize("keyfile", [{"type": "service_account"}, '{"type": "service_account"}'])
    def test_a_service_account(self, keyfile: Any) -> None:
        credential = Credential("c", extra={"keyfile_dict": keyfile})
        assert (
            rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_SERVICE_ACCOUNT_CREDENTIALS"]
            == '{"type": "service_account"}'
        )
        assert store_options(self.location, credential) == {
            "base_url": "http://h:4443",
            "service_account_key": '{"type": "service_account"}',
        }
        assert fileio_properties(self.location, credential) == {"gcs.service.host": "http://h:4443", "gcs.project-id": "7"}

    def test_a_token(self) -> None:
        credential = Credential("c", extra={"token": "t"})
        assert rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_ACCESS_TOKEN"] == "t"
        assert store_options(self.location, credential)["credential_provider"]() == {"token": "t", "expires_at": None}
        assert fileio_properties(self.location, credential)["gcs.oauth2.token"] == "t"

    def test_ambient_anonymous_and_incomplete(self) -> None:
        assert rclone_environment("x", self.location, None)["RCLONE_CONFIG_X_ENV_AUTH"] == "true"
        assert store_options(at("gs://b", anonymous="true"), None) == {"skip_signature": True}
        assert fileio_properties(at("gs://b", anonymous="true"), None) == {"gcs.no-auth": "true"}
        with pytest.raises(CredentialError, match="keyfile_dict"):
            store_options(self.location, KEYS.__class__("c", "a", "b"))


class TestAzure:
    location = at("abfss://c@acc.dfs.core.windows.net/p")

    def test_an_account_key(self) -> None:
        credential = Credential("c", "acc", SECRET)
        settings = rclone_environment("x", self.location, credential)
        assert (settings["RCLONE_CONFIG_X_ACCOUNT"], settings["RCLONE_CONFIG_X_KEY"]) == ("acc", SECRET)
        assert store_options(self.location, credential) == {"account_name": "acc", "account_key": SECRET}
        properties = fileio_properties(self.location, credential)
        assert properties["adls.auth.shared-key.account.key"] == properties["adls.account-key"] == SECRET

    def test_a_sas_token(self) -> None:
        credential = Credential("c", extra={"sas_token": "?sv=1&sig=2"})
        url = rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_SAS_URL"]
        assert url == "https://acc.blob.core.windows.net/c?sv=1&sig=2"
        assert store_options(self.location, credential)["sas_key"] == "sv=1&sig=2"
        assert fileio_properties(self.location, credential)["adls.sas-token.acc.dfs.core.windows.net"] == "sv=1&sig=2"

    def test_a_service_principal(self) -> None:
        credential = Credential("c", "client-1", SECRET, {"tenant_id": "tenant-1"})
        settings = rclone_environment("x", self.location, credential)
        names = ("TENANT", "CLIENT_ID", "CLIENT_SECRET")
        assert [settings[f"RCLONE_CONFIG_X_{name}"] for name in names] == ["tenant-1", "client-1", SECRET]
        assert store_options(self.location, credential)["client_secret"] == SECRET
        assert fileio_properties(self.location, credential)["adls.client-id"] == "client-1"

    def test_ambient_and_incomplete(self) -> None:
        assert rclone_environment("x", self.location, None)["RCLONE_CONFIG_X_ENV_AUTH"] == "true"
        assert store_options(self.location, None) == {"account_name": "acc"}
        with pytest.raises(CredentialError, match="sas_token"):
            store_options(self.location, Credential("c", "acc"))


def test_local_files_need_nothing() -> None:
    assert store_options(at("file:///data"), None) == fileio_properties(at("file:///data"), None) == {}
    assert rclone_environment("x", at("file:///data"), None)["RCLONE_CONFIG_X_TYPE"] == "local"
