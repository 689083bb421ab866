"""One credential under the names that rclone, obstore and Iceberg's FileIO have for it."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from sterna.config.registry.credential import (
    RCLONE_ENCODING,
    Credential,
    StoreAddress,
    fileio_properties,
    parse_credential,
    rclone_environment,
    store_address,
    store_options,
)
from sterna.config.registry.model import Location
from sterna.errors import CredentialError
from tests.unit.config import samples

SECRET = "wJalrXUtnFEMI/K7MDENG+bPx"
AWS = {"conn_type": "aws", "login": "AKIA1", "password": SECRET}
KEYS = parse_credential("c", json.dumps(AWS))


def at(prefix: str, **options: str) -> Location:
    content = samples.location("lake", prefix)
    content["remote"]["options"] = options
    return Location.model_validate(content)


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
        assert parse_credential("c", one.to_json()) == one


def test_nothing_shows_a_secret() -> None:
    credential = parse_credential(
        "c", json.dumps({**AWS, "extra": {"session_token": "token-1", "keyfile_dict": {"private_key": "private-1"}}})
    )
    assert repr(credential) == "Credential(id='c')"
    assert SECRET not in repr(store_options(at("s3://lake"), credential))
    scrubbed = credential.redact(f"a {SECRET} b token-1 c private-1 d")
    assert scrubbed == "a *** b *** c *** d"


def test_parts_of_a_secret_are_secret_in_every_spelling() -> None:
    signature = "s/i+g1n=="
    credential = Credential("c", extra={"sas_token": "?sv=2021&sig=s%2Fi%2Bg1n%3D%3D"})
    assert (
        credential.redact(f"Get https://h/c?comp=list&sv=2021&sig=s%2Fi%2Bg1n%3D%3D: {signature}")
        == "Get https://h/c?comp=list&***: ***"
    )
    text = f"AccountName=acc;AccountKey={SECRET}==;SharedAccessSignature=sv=2021&sig=s%2Fi%2Bg1n%3D%3D"
    scrubbed = Credential("c", extra={"connection_string": text}).redact(
        f"acc {SECRET}== sig=s%2Fi%2Bg1n%3D%3D {signature}"
    )
    assert scrubbed == "acc *** sig=*** ***"
    keyfile = json.dumps({"type": "service_account", "private_key": "private-1"})
    assert (
        Credential("c", extra={"keyfile_dict": keyfile}).redact("a service_account's private-1")
        == "a service_account's ***"
    )


@pytest.mark.parametrize("secret", ['qu"o\\te-1', "größe-1", "line\none", "a/b+c=d e"])
def test_a_secret_is_hidden_as_json_and_in_a_uri(secret: str) -> None:
    credential = Credential("c", password=secret)
    spellings = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe=""))
    assert [credential.redact(f"<{spelling}>") for spelling in spellings] == ["<***>"] * 3


@pytest.mark.parametrize("secret", ["????", "?a&b;c", ";;;;", "&sig=", "{oops", "{}{}"])
def test_an_odd_secret_hides_nothing_else(secret: str) -> None:
    assert Credential("c", password=secret).redact(f"a b c {secret} d") == "a b c *** d"


def test_what_a_key_file_says_in_public_stays_readable() -> None:
    public = {"type": "service_account", "client_email": "me@p.iam", "token_uri": "https://oauth2.googleapis.com/token"}
    credential = Credential("c", extra={"keyfile_dict": {**public, "private_key": "private-1"}})
    assert credential.redact("me@p.iam at oauth2.googleapis.com: private-1") == "me@p.iam at oauth2.googleapis.com: ***"


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
        assert (
            rclone_environment("x", at("s3://b", provider="Ceph", endpoint="h"), KEYS)["RCLONE_CONFIG_X_PROVIDER"]
            == "Ceph"
        )

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
        assert (
            store_options(at("s3://b", region="cn-north-1"), KEYS)["endpoint"]
            == "https://s3.cn-north-1.amazonaws.com.cn"
        )
        hosted = store_options(at("s3://b", endpoint="h:1", force_path_style="false"), KEYS)
        assert hosted["endpoint"] == "https://b.h:1" and hosted["virtual_hosted_style_request"] is True
        assert (
            fileio_properties(at("s3://b", endpoint="h:1", force_path_style="false"), KEYS)["s3.path-style-access"]
            == "false"
        )

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
        settings = rclone_environment("x", self.location, credential)
        assert settings["RCLONE_CONFIG_X_SERVICE_ACCOUNT_CREDENTIALS"] == '{"type": "service_account"}'
        assert store_options(self.location, credential) == {
            "base_url": "http://h:4443",
            "skip_signature": False,
            "service_account_key": '{"type": "service_account"}',
        }
        assert fileio_properties(self.location, credential) == {
            "gcs.service.host": "http://h:4443",
            "gcs.project-id": "7",
        }

    def test_a_token(self) -> None:
        credential = Credential("c", extra={"token": "t"})
        assert rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_ACCESS_TOKEN"] == "t"
        assert store_options(self.location, credential)["credential_provider"]() == {"token": "t", "expires_at": None}
        properties = fileio_properties(self.location, credential)
        assert properties["gcs.oauth2.token"] == "t"
        assert int(properties["gcs.oauth2.token-expires-at"]) > 4_000_000_000_000  # PyIceberg takes no token without it

    def test_copies_say_nothing_of_access_lists(self) -> None:
        # A bucket with uniform access, which is what Google makes by default, refuses every request that does.
        assert rclone_environment("x", self.location, None)["RCLONE_CONFIG_X_BUCKET_POLICY_ONLY"] == "true"

    @pytest.mark.parametrize(
        "endpoint", ["http://h:4443", "http://h:4443/", "http://h:4443/storage/v1", "http://h:4443/storage/v1/"]
    )
    def test_every_reader_gets_the_endpoint_in_its_own_form(self, endpoint: str) -> None:
        location = at("gs://b/p", endpoint=endpoint)
        assert rclone_environment("x", location, None)["RCLONE_CONFIG_X_ENDPOINT"] == "http://h:4443/storage/v1/"
        assert store_options(location, None)["base_url"] == "http://h:4443"
        assert fileio_properties(location, None)["gcs.service.host"] == "http://h:4443"

    def test_google_itself(self) -> None:
        # Named, so that no variable of the process can name another one.
        assert store_options(at("gs://b"), None)["base_url"] == "https://storage.googleapis.com"
        assert "RCLONE_CONFIG_X_ENDPOINT" not in rclone_environment("x", at("gs://b"), None)
        assert fileio_properties(at("gs://b"), None) == {}

    @pytest.mark.parametrize(
        ("location", "credential"),
        [
            (at("gs://b", anonymous="true"), None),
            (at("gs://b"), Credential("c", extra={"is_anonymous": True})),
            (at("gs://b"), Credential("c", extra={"is_anonymous": "true", "token": "t"})),
        ],
    )
    def test_anonymous(self, location: Location, credential: Credential | None) -> None:
        settings = rclone_environment("x", location, credential)
        assert settings["RCLONE_CONFIG_X_ANONYMOUS"] == "true" and "RCLONE_CONFIG_X_ACCESS_TOKEN" not in settings
        assert store_options(location, credential) == {
            "base_url": "https://storage.googleapis.com",
            "skip_signature": True,
        }
        assert fileio_properties(location, credential) == {"gcs.no-auth": "true"}

    def test_ambient_and_incomplete(self) -> None:
        assert rclone_environment("x", self.location, None)["RCLONE_CONFIG_X_ENV_AUTH"] == "true"
        for extra in ({}, {"is_anonymous": False}):
            with pytest.raises(CredentialError, match="keyfile_dict"):
                store_options(self.location, Credential("c", "a", "b", extra))


class TestAzure:
    location = at("abfss://c@acc.dfs.core.windows.net/p")
    emulator = at("abfss://c@acc.dfs.core.windows.net/p", endpoint="http://127.0.0.1:10000/acc")
    client = Credential("c", "client-1", SECRET, {"tenant_id": "tenant-1"})

    def test_an_account_key(self) -> None:
        credential = Credential("c", "acc", SECRET)
        settings = rclone_environment("x", self.location, credential)
        assert (settings["RCLONE_CONFIG_X_ACCOUNT"], settings["RCLONE_CONFIG_X_KEY"]) == ("acc", SECRET)
        assert (
            settings["RCLONE_CONFIG_X_NO_CHECK_CONTAINER"] == "true"
        )  # looking for it, or making it, takes a right that a copy needs not
        options = store_options(self.location, credential)
        assert (options["account_name"], options["endpoint"]) == ("acc", "https://acc.blob.core.windows.net")
        assert options["credential_provider"]() == {"access_key": SECRET, "expires_at": None}
        properties = fileio_properties(self.location, credential)
        assert properties["adls.auth.shared-key.account.key"] == properties["adls.account-key"] == SECRET

    def test_a_sas_token(self) -> None:
        credential = Credential("c", extra={"sas_token": "?sv=1&sig=2"})
        url = rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_SAS_URL"]
        assert url == "https://acc.blob.core.windows.net/c?sv=1&sig=2"
        assert store_options(self.location, credential)["credential_provider"]() == {
            "sas_token": "sv=1&sig=2",
            "expires_at": None,
        }
        assert fileio_properties(self.location, credential)["adls.sas-token.acc.dfs.core.windows.net"] == "sv=1&sig=2"

    def test_a_service_principal(self) -> None:
        settings = rclone_environment("x", self.location, self.client)
        names = ("TENANT", "CLIENT_ID", "CLIENT_SECRET")
        assert [settings[f"RCLONE_CONFIG_X_{name}"] for name in names] == ["tenant-1", "client-1", SECRET]
        options = store_options(self.location, self.client)
        assert (options["client_secret"], options["credential_type"]) == (SECRET, "client_secret")
        assert fileio_properties(self.location, self.client)["adls.client-id"] == "client-1"

    def test_a_connection_string(self) -> None:
        text = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={SECRET}==;EndpointSuffix=core.windows.net"
        credential = Credential("c", extra={"connection_string": text})
        for location in (self.location, at("abfss://c/p")):
            settings = rclone_environment("x", location, credential)
            assert (settings["RCLONE_CONFIG_X_ACCOUNT"], settings["RCLONE_CONFIG_X_KEY"]) == ("acc", f"{SECRET}==")
            options = store_options(location, credential)
            assert options["endpoint"] == settings["RCLONE_CONFIG_X_ENDPOINT"] == "https://acc.blob.core.windows.net"
            assert options["credential_provider"]()["access_key"] == f"{SECRET}=="
            assert fileio_properties(location, credential)["adls.account-key"] == f"{SECRET}=="

    def test_a_connection_string_with_a_signature_and_an_address(self) -> None:
        text = "BlobEndpoint=http://127.0.0.1:10000/acc/;SharedAccessSignature=?sv=1&sig=2%3D"
        credential = Credential("c", extra={"connection_string": text})
        url = rclone_environment("x", self.location, credential)["RCLONE_CONFIG_X_SAS_URL"]
        assert url == "http://127.0.0.1:10000/acc/c?sv=1&sig=2%3D"
        options = store_options(self.location, credential)
        assert options["endpoint"] == "http://127.0.0.1:10000/acc"
        assert options["credential_provider"]()["sas_token"] == "sv=1&sig=2%3D"
        assert store_options(self.emulator, credential)["endpoint"] == "http://127.0.0.1:10000/acc"

    def test_the_registry_s_endpoint_reaches_every_reader(self) -> None:
        credential = Credential("c", "acc", SECRET)
        assert (
            rclone_environment("x", self.emulator, credential)["RCLONE_CONFIG_X_ENDPOINT"]
            == "http://127.0.0.1:10000/acc"
        )
        assert store_options(self.emulator, credential)["endpoint"] == "http://127.0.0.1:10000/acc"
        properties = fileio_properties(self.emulator, credential)
        # PyIceberg takes an endpoint in a connection string alone; Java's property of that name is the endpoint itself.
        assert (
            properties["adls.connection-string"]
            == f"AccountName=acc;AccountKey={SECRET};BlobEndpoint=http://127.0.0.1:10000/acc;"
        )
        assert properties["adls.connection-string.acc.dfs.core.windows.net"] == "http://127.0.0.1:10000/acc"
        private = fileio_properties(
            at("abfss://c@acc.dfs.core.windows.net/p", endpoint="acc.privatelink.blob.core.windows.net"), self.client
        )
        assert private["adls.account-host"] == "acc.privatelink.blob.core.windows.net"
        assert (
            private["adls.connection-string.acc.dfs.core.windows.net"] == "https://acc.privatelink.dfs.core.windows.net"
        )

    @pytest.mark.parametrize(
        ("prefix", "endpoint"),
        [
            ("abfss://c@acc.dfs.core.usgovcloudapi.net/p", "https://acc.blob.core.usgovcloudapi.net"),
            ("wasbs://c@acc.blob.core.chinacloudapi.cn/p", "https://acc.blob.core.chinacloudapi.cn"),
            ("abfss://w@onelake.dfs.fabric.microsoft.com/p", "https://onelake.blob.fabric.microsoft.com"),
        ],
    )
    def test_another_cloud_is_named_by_the_prefix(self, prefix: str, endpoint: str) -> None:
        credential = Credential("c", extra={"sas_token": "sv=1&sig=2"})
        assert store_options(at(prefix), credential)["endpoint"] == endpoint
        assert rclone_environment("x", at(prefix), credential)["RCLONE_CONFIG_X_ENDPOINT"] == endpoint
        host = prefix.partition("@")[2].partition("/")[0]
        assert fileio_properties(at(prefix), credential)[f"adls.sas-token.{host}"] == "sv=1&sig=2"

    def test_ambient_and_incomplete(self) -> None:
        assert rclone_environment("x", self.location, None)["RCLONE_CONFIG_X_ENV_AUTH"] == "true"
        options = store_options(self.location, None)
        assert not {"credential_provider", "credential_type"} & options.keys()
        for extra in ({}, {"connection_string": f"AccountName={SECRET}"}, {"connection_string": SECRET}):
            with pytest.raises(CredentialError, match="sas_token") as raised:
                store_options(self.location, Credential("c", "acc", extra=extra))
            assert SECRET not in str(raised.value)
        with pytest.raises(CredentialError, match="login"):
            store_options(self.location, Credential("c", "", SECRET, {"tenant_id": "t"}))
        with pytest.raises(CredentialError, match="account"):
            store_options(at("abfss://c/p"), Credential("c", extra={"sas_token": "sv=1&sig=2"}))

    def test_no_variable_of_the_process_has_a_say(self) -> None:
        options = store_options(self.location, Credential("c", "acc", SECRET))
        assert (options["use_emulator"], options["use_fabric_endpoint"], options["skip_signature"]) == (
            False,
            False,
            False,
        )


def test_local_files_need_nothing() -> None:
    assert store_options(at("file:///data"), None) == fileio_properties(at("file:///data"), None) == {}
    assert rclone_environment("x", at("file:///data"), None)["RCLONE_CONFIG_X_TYPE"] == "local"
