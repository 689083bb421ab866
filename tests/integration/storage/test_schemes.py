"""Google's and Azure's stores do what S3's do.

The behaviours of test_objects.py and test_copy.py over their emulators.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from pyiceberg.io import load_file_io

from sterna.config.mapping import Mapping
from sterna.config.registry.credential import fileio_properties
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.errors import CredentialError, StoreDenied, StoreUnreachable, UnsafeUri
from sterna.replication.execution.copy_file import CopyFile
from sterna.servers.s3 import start_s3
from sterna.storage.objects import Objects
from sterna.storage.rclone.transfer import Folder, copy_files
from tests.integration.storage import test_copy, test_objects

# The behaviours themselves, over this module's `stores`.
from tests.integration.storage.test_objects import (  # noqa: F401
    test_a_file_over_the_limit_is_refused,
    test_a_missing_object,
    test_an_empty_object_is_there,
    test_an_object_is_changed_again_and_again,
    test_an_object_is_never_replaced,
    test_another_process_finds_the_credentials_in_its_environment,
    test_delete_stays_below_the_replica_root,
    test_delete_takes_away_what_it_was_told_and_nothing_else,
    test_it_can_be_rebuilt_elsewhere_from_plain_data_or_a_pickle,
    test_list_names_objects_as_the_folder_is_spelled,
    test_many_threads_share_one_and_open_each_location_once,
    test_odd_keys_are_apart_from_one_another,
    test_read_many_can_be_left_early,
    test_read_many_yields_every_uri_in_order_with_its_content_or_error,
    test_sizes_of_many_files_in_many_folders,
    test_unsafe_uris_are_refused_by_every_method,
    test_uris_below_the_replica_root_belong_to_its_location,
    test_what_is_written_is_read,
)
from tests.support.emulators import ACCOUNT, Azure, Google, sas, service_account, start_azure, start_google
from tests.support.stores import KEY, ODD, RCLONE_ALIKE, SECRET, Stores

S3, FILE = ("s3", ""), ("file", "")
# Names that a store takes for others.
ALIKE = {"s3": RCLONE_ALIKE, "azure": frozenset({"a\\b", "..."})}
DARK = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Place:
    """One region's store: its prefix, how to reach it, and its Airflow connection."""

    prefix: str
    remote: dict[str, Any]
    connection: str


@dataclass(frozen=True)
class World:
    """A store of each kind."""

    folder: Path
    s3: str
    google: Google
    azure: Azure

    def place(self, bucket: str, kind: str, shape: str) -> Place:
        if kind == "gs":
            remote = {"type": "google cloud storage", "options": {"endpoint": self.google.endpoint}}
            return Place(
                f"gs://{bucket}/ware house", remote, shape if shape.startswith("{") else self.google.connection(shape)
            )
        if kind == "azure":
            # An endpoint that the connection string has, too, need not stand in the registry.
            options = {} if "string" in shape else {"endpoint": self.azure.endpoint}
            prefix = f"abfss://{bucket}@{ACCOUNT}.dfs.core.windows.net/ware house"
            connection = shape if shape.startswith("{") else self.azure.connection(shape)
            return Place(prefix, {"type": "azureblob", "options": options}, connection)
        if kind == "s3":
            remote = {"type": "s3", "options": {"provider": "Rclone", "endpoint": self.s3}}
            return Place(f"s3://{bucket}/ware house", remote, json.dumps({"login": KEY, "password": SECRET}))
        (self.folder / bucket).mkdir(exist_ok=True)
        return Place(f"file://{self.folder}/{bucket}", {"type": "local"}, "{}")

    def stores(self, us: tuple[str, str], eu: tuple[str, str], **changes: Any) -> Stores:
        """Return two regions, each with a store of a kind that is opened with a connection of a shape, or with that
        very connection.

        Args:
            us, eu: kind and shape.
            changes: what stands otherwise in the registry, for us.
        """
        places = {"us": self.place("lake", *us), "eu": self.place("home", *eu)}
        regions = [
            {"name": name, "replica_root": f"{place.prefix}/replica's root", "catalog": {"read": "http://127.0.0.1:1"}}
            for name, place in places.items()
        ]
        locations: list[dict[str, Any]] = [
            {
                "id": name,
                "prefix": place.prefix,
                "region": name,
                "remote": place.remote,
                "credential_id": f"{name}_store",
            }
            for name, place in places.items()
        ]
        locations[0].update(changes)
        regions[0]["replica_root"] = f"{locations[0]['prefix']}/replica's root"
        registry = Registry.model_validate({"regions": regions, "locations": locations})
        secrets = environment_secrets(
            {f"AIRFLOW_CONN_{name.upper()}_STORE": place.connection for name, place in places.items()}
        )
        objects = Objects(Mapping(registry, registry.region("eu")), secrets, timeout=20.0, workers=8)
        alike = frozenset(name for kind, _ in (us, eu) for name in ALIKE.get(kind, ()))
        return Stores(objects, locations[0]["prefix"], places["eu"].prefix, alike=alike)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, buckets = tmp_path_factory.mktemp("schemes"), ["lake", "home"]
    with ExitStack() as stack:
        google = start_google(folder, [*buckets, "public"])
        stack.callback(google.stop)
        azure = start_azure(folder, buckets)
        stack.callback(azure.stop)
        s3 = start_s3(folder, "schemes", buckets, KEY, SECRET)
        stack.callback(s3.stop)
        yield World(folder, s3.url, google, azure)


here = test_objects.here


@pytest.fixture(
    scope="module",
    params=[(("gs", "token"), ("azure", "key")), (("azure", "sas"), ("gs", "keyfile"))],
    ids=["gs", "azure"],
)
def stores(request: pytest.FixtureRequest, world: World) -> Stores:
    return world.stores(*request.param)


@pytest.mark.parametrize("name", ODD)
def test_odd_keys_are_kept_byte_for_byte_or_refused(stores: Stores, name: str) -> None:
    if name not in stores.alike or stores.us.startswith("gs://"):
        return test_objects.test_odd_keys_are_kept_byte_for_byte(stores, name)
    with pytest.raises(UnsafeUri, match=r"in Azure's stores|of type azureblob takes a key for another"):
        stores.objects.write_new(f"{stores.us}/odd keys/{name}", b"")


def test_an_alias_is_the_same_object_under_its_own_spelling(world: World, request: pytest.FixtureRequest) -> None:
    azure = world.stores(("azure", "key"), FILE)
    test_objects.test_an_alias_is_the_same_object_under_its_own_spelling(azure, test_objects.folder(azure, request))


COPIES = {
    "s3-gs": (S3, ("gs", "keyfile")),
    "gs-azure": (("gs", "keyfile text"), ("azure", "connection string")),
    "azure-s3": (("azure", "connection string with sas"), S3),
    "file-azure": (FILE, ("azure", "sas")),
    "azure-gs": (("azure", "key"), ("gs", "token")),
}
EVERY_KIND = ("s3-gs", "gs-azure", "azure-s3")
"""Copies that have each kind as source and as target once."""


class TestCopies(test_copy.TestEveryStore):
    """Every kind as source and as target, with every shape of a connection."""

    @pytest.fixture(params=COPIES.values(), ids=COPIES)
    def stores(self, request: pytest.FixtureRequest, world: World) -> Stores:
        return world.stores(*request.param)

    @pytest.fixture
    def here(self, request: pytest.FixtureRequest) -> str:
        return f"{request.node.name.partition('[')[0]}/{request.node.callspec.id}"

    @pytest.mark.parametrize(
        "stores",
        [
            pytest.param(copies, id=name, marks=() if name in EVERY_KIND else pytest.mark.rare)
            for name, copies in COPIES.items()
        ],
        indirect=True,
    )
    def test_a_large_file_in_parts(self, stores: Stores, here: str) -> None:
        super().test_a_large_file_in_parts(stores, here)

    def test_another_spelling_has_a_place_of_its_own(self, stores: Stores, here: str) -> None:
        if stores.us.startswith("gs://"):
            pytest.skip("gs:// has no other spelling")
        super().test_another_spelling_has_a_place_of_its_own(stores, here)


def test_a_public_bucket_is_read_without_a_credential(world: World) -> None:
    place = world.place("public", "gs", "token")
    stores = world.stores(("gs", "token"), FILE, prefix=place.prefix)
    files = test_copy.put(stores, "open", {"f": b"12345"})
    anonymous = world.stores(("gs", "anonymous"), FILE, prefix=place.prefix)
    assert anonymous.objects.read(files[0].source) == b"12345"
    assert [size for _, size, _ in anonymous.objects.list(f"{anonymous.us}/open")] == [5]
    assert test_copy.copy(anonymous, files).sent == 5
    with pytest.raises(StoreDenied):
        anonymous.objects.write_new(f"{anonymous.us}/g", b"")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        S3,
        ("gs", "token"),
        *(("azure", shape) for shape in ("key", "sas", "connection string", "connection string with sas")),
    ],
)
def test_pyiceberg_reads_with_the_properties_that_follow_from_the_credential(
    world: World, kind: str, shape: str, request: pytest.FixtureRequest
) -> None:
    stores = world.stores((kind, shape), FILE)
    uri = f"{test_objects.folder(stores, request)}/a b/{shape}%2F.bin"
    stores.put(uri, b"12345")
    location = stores.mapping.locate(uri).location
    properties = fileio_properties(location, stores.objects.secrets("us_store"))
    for spelling in {uri, stores.respelled(uri)}:
        with load_file_io(properties, spelling).new_input(spelling).open() as file:
            assert file.read() == b"12345"


def wrong_connections(world: World) -> dict[tuple[str, str], list[str]]:
    """Return connections that the stores refuse, by kind; with the texts that no message may show."""
    stranger = service_account(rsa.generate_private_key(public_exponent=65537, key_size=2048), world.google.endpoint)
    key, signature = base64.b64encode(b"another account's key").decode(), "anothersignature123"
    forged = f"{sas().partition('sig=')[0]}sig={signature}"
    return {
        ("gs", json.dumps({"extra": {"token": "another-token"}})): ["another-token"],
        ("gs", json.dumps({"extra": {"keyfile_dict": stranger}})): [
            stranger["private_key"],
            stranger["private_key"][30:60],
        ],
        ("azure", json.dumps({"password": key})): [key],
        ("azure", json.dumps({"extra": {"sas_token": forged}})): [signature],
        (
            "azure",
            json.dumps({"extra": {"connection_string": f"AccountKey={key};BlobEndpoint={world.azure.endpoint}"}}),
        ): [key],
    }


class TestFaults:
    @pytest.mark.parametrize("number", range(5))
    def test_a_refused_credential_is_named_and_not_shown(self, world: World, number: int) -> None:
        (kind, connection), secrets = list(wrong_connections(world).items())[number]
        wrong = world.stores((kind, connection), S3)
        file = CopyFile("t", f"{wrong.us}/f", wrong.mapping.replica_uri(f"{wrong.us}/f"), 1)
        for call in (
            lambda: wrong.objects.read(file.source),
            lambda: wrong.objects.size(file.source),
            lambda: wrong.objects.write_new(file.source, b""),
            lambda: list(wrong.objects.list(wrong.us)),
        ):
            with pytest.raises(StoreDenied, match="'us_store'") as raised:
                call()
            assert not any(secret in repr(raised.value) for secret in secrets)
        (failure,) = test_copy.copy(wrong, [file]).failures
        assert isinstance(failure, StoreDenied)
        assert "'us_store'" in str(failure)
        assert not any(secret in repr(failure) for secret in secrets)

    @pytest.mark.parametrize("number", range(5))
    def test_what_rclone_says_shows_no_secret(self, world: World, number: int) -> None:
        (kind, connection), secrets = list(wrong_connections(world).items())[number]
        wrong = world.stores((kind, connection), FILE)
        locations = {location.id: location for location in wrong.mapping.registry.locations}
        origin = Folder(locations["us"], wrong.objects.secrets("us_store"))
        errors = copy_files(origin, Folder(locations["eu"], None), ["f"], progress=lambda *_: None).errors
        assert errors
        assert not any(secret in errors for secret in secrets)

    @pytest.mark.parametrize("us", [("gs", "keyfile"), ("azure", "sas")], ids=["gs", "azure"])
    def test_a_dark_endpoint_is_named_and_a_later_run_resumes(self, world: World, us: tuple[str, str]) -> None:
        remote = {**world.place("lake", *us).remote, "options": {"endpoint": DARK}}
        dark = world.stores(us, S3, remote=remote)
        for call in (
            lambda: dark.objects.read(f"{dark.us}/f"),
            lambda: dark.objects.sizes(f"{dark.us}/{number}" for number in range(20)),
            lambda: list(dark.objects.list(dark.us)),
        ):
            with pytest.raises(StoreUnreachable, match=r"http://127\.0\.0\.1:1.*a later run resumes") as raised:
                call()
            assert "sig=" not in str(raised.value)

    def test_a_missing_container_is_no_missing_object(self, world: World) -> None:
        place = world.place("nobody", "azure", "key")
        regions = [{"name": "us", "replica_root": place.prefix, "catalog": {"read": DARK}}]
        locations = [
            {"id": "us", "prefix": place.prefix, "region": "us", "remote": place.remote, "credential_id": "us_store"}
        ]
        registry = Registry.model_validate({"regions": regions, "locations": locations})
        objects = Objects(
            Mapping(registry, registry.region("us")), environment_secrets({"AIRFLOW_CONN_US_STORE": place.connection})
        )
        with pytest.raises(StoreUnreachable, match="no such bucket"):
            objects.read(f"{place.prefix}/f")

    @pytest.mark.parametrize("us", [("gs", "keyfile"), ("azure", "sas")], ids=["gs", "azure"])
    def test_no_secret_stands_on_a_command_line(
        self, world: World, us: tuple[str, str], request: pytest.FixtureRequest
    ) -> None:
        slow = world.stores(us, FILE, bandwidth="100k")
        files = test_copy.put(slow, request.node.name, {"f": os.urandom(400_000)})
        endpoint = f"{world.google.endpoint}/storage/v1/" if us[0] == "gs" else world.azure.endpoint
        worker = threading.Thread(target=test_copy.copy, args=(slow, files))
        worker.start()
        commands: set[str] = set()
        while worker.is_alive():
            commands |= set(test_copy.list_copy_processes(endpoint).values())
            time.sleep(0.05)
        worker.join()
        assert any(command.startswith("rclone copy sterna_origin: sterna_replica:") for command in commands)
        assert not any(
            secret in command for command in commands for secret in ("sig=", "PRIVATE KEY", "ware house", ACCOUNT)
        )

    @pytest.mark.parametrize(
        "us", [("gs", "token"), ("azure", "key"), ("azure", "sas")], ids=["gs", "azure-key", "azure-sas"]
    )
    def test_the_environment_can_not_redirect_a_location(
        self, world: World, us: tuple[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        files = test_copy.put(world.stores(us, FILE), request.node.name, {"f": b"right"})
        for name in ("GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"):
            monkeypatch.setenv(name, DARK)
        for name in (
            "GOOGLE_BEARER_TOKEN",
            "GOOGLE_BUCKET",
            "AZURE_STORAGE_TOKEN",
            "AZURE_CONTAINER_NAME",
            "AZURE_STORAGE_SAS_TOKEN",
        ):
            monkeypatch.setenv(name, "wrong=wrong")
        for name in (
            "GOOGLE_SKIP_SIGNATURE",
            "AZURE_SKIP_SIGNATURE",
            "AZURE_STORAGE_USE_EMULATOR",
            "AZURE_USE_FABRIC_ENDPOINT",
        ):
            monkeypatch.setenv(name, "true")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"wrong").decode())
        stores = world.stores(us, FILE)
        assert stores.objects.read(files[0].source) == b"right"
        assert test_copy.copy(stores, files).sent == 5

    @pytest.mark.parametrize(
        "name", ["GOOGLE_BEARER_TOKEN", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"]
    )
    def test_a_variable_that_would_replace_a_service_account_is_named(
        self, world: World, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "somebody")
        stores = world.stores(("gs", "keyfile"), FILE)
        with pytest.raises(CredentialError, match=rf"{name}\b.*'us_store'"):
            stores.objects.read(f"{stores.us}/f")

    @pytest.mark.parametrize(
        "keyfile",
        [
            {"type": "service_account", "client_email": "x", "private_key_id": "1", "private_key": "no key at all"},
            '{"no key at all"',
            "no key at all",
        ],
        ids=["other", "half", "text"],
    )
    def test_a_key_file_that_is_none_is_no_fault_of_the_store(self, world: World, keyfile: Any) -> None:
        stores = world.stores(("gs", json.dumps({"extra": {"keyfile_dict": keyfile}})), FILE)
        with pytest.raises(CredentialError, match="'us_store'") as raised:
            stores.objects.read(f"{stores.us}/f")
        assert "no key at all" not in str(raised.value)
