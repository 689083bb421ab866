"""One behaviour over every kind of store."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import boto3
import pytest

from sterna.config.secrets import connection_environment
from sterna.errors import (
    EngineError,
    ObjectMissing,
    OverLimit,
    UnregisteredUri,
    UnsafeUri,
)
from sterna.storage.objects import Objects
from sterna.storage.read_cache import cache_uri, read_cached
from sterna.storage.write import update
from tests.support.stores import KEY, ODD, SECRET, Stores, moto_stores


def folder(stores: Stores, request: pytest.FixtureRequest) -> str:
    return f"{stores.us}/{request.node.name.partition('[')[0]}"


@pytest.fixture
def here(stores: Stores, request: pytest.FixtureRequest) -> str:
    return folder(stores, request)


def test_what_is_written_is_read(stores: Stores, here: str) -> None:
    assert stores.objects.write_new(f"{here}/f", b"hello") == 5
    assert stores.objects.read(f"{here}/f") == b"hello"
    assert stores.objects.size(f"{here}/f") == 5


def test_an_object_is_never_replaced(stores: Stores, here: str) -> None:
    stores.objects.write_new(f"{here}/f", b"first")
    assert stores.objects.write_new(f"{here}/f", b"another") == 5
    assert stores.objects.read(f"{here}/f") == b"first"


def test_an_object_is_changed_again_and_again(stores: Stores, here: str) -> None:
    """Each kind of store names an object's version in its own way."""
    uri = f"{here}/counts"
    for number in range(3):
        assert update(stores.objects, uri, lambda content: (content or b"") + b"a")
        assert stores.objects.read(uri) == b"a" * (number + 1)
    assert not update(stores.objects, uri, lambda content: None)


def test_an_empty_object_is_there(stores: Stores, here: str) -> None:
    assert stores.objects.write_new(f"{here}/f", b"") == 0
    assert (stores.objects.size(f"{here}/f"), stores.objects.read(f"{here}/f")) == (0, b"")


def test_what_is_read_of_others_is_kept_for_a_run_and_its_own_is_not(stores: Stores, here: str) -> None:
    run, own = (
        f"{stores.mapping.region.replica_root}/_sterna/runs/{here.rpartition('/')[2]}",
        f"{stores.eu}/kept by nobody",
    )
    stores.put(f"{here}/kept", b"from afar")
    stores.put(own, b"at home")
    fetching = stores.objects.with_read_cache(run)
    assert dict(fetching.read_many([f"{here}/kept", own])) == {f"{here}/kept": b"from afar", own: b"at home"}
    assert stores.objects.read(cache_uri(run, f"{here}/kept")) == b"from afar"
    assert stores.objects.size(cache_uri(run, own)) is None


def test_a_run_reads_what_it_kept_and_the_source_where_it_kept_nothing(stores: Stores, here: str) -> None:
    run = f"{stores.mapping.region.replica_root}/_sterna/runs/{here.rpartition('/')[2]}"
    stores.put(f"{here}/kept", b"as it is now")
    stores.put(f"{here}/other", b"never kept")
    stores.put(cache_uri(run, f"{here}/kept"), b"as it was read")
    assert read_cached(stores.objects, run, f"{here}/kept") == b"as it was read"
    assert read_cached(stores.objects, run, f"{here}/other") == b"never kept"
    with pytest.raises(ObjectMissing):
        read_cached(stores.objects, run, f"{here}/nowhere")


def test_a_missing_object(stores: Stores, here: str) -> None:
    assert stores.objects.size(f"{here}/none") is None
    assert stores.objects.sizes([f"{here}/none"]) == {f"{here}/none": None}
    with pytest.raises(ObjectMissing) as raised:
        stores.objects.read(f"{here}/none")
    assert raised.value.file == f"{here}/none"


@pytest.mark.parametrize("name", ODD)
def test_odd_keys_are_kept_byte_for_byte(stores: Stores, name: str) -> None:
    uri = f"{stores.us}/odd keys/{ODD.index(name)}/{name}"
    stores.put(uri, name.encode())
    assert stores.objects.read(uri) == name.encode()
    assert [listed for listed, _, _ in stores.objects.list(uri.removesuffix(f"/{name}"))] == [uri]


def test_odd_keys_are_apart_from_one_another(stores: Stores, here: str) -> None:
    uris = [f"{here}/{name}" for name in ODD if name not in stores.alike]
    for uri in uris:
        stores.put(uri, uri.encode())
    assert stores.objects.sizes(uris) == {uri: len(uri.encode()) for uri in uris}
    assert all(stores.objects.read(uri) == uri.encode() for uri in uris)


def test_uris_below_the_replica_root_belong_to_its_location(stores: Stores) -> None:
    target = stores.mapping.replica_uri(f"{stores.us}/t/f")
    stores.put(target, b"copy")
    assert stores.objects.read(target) == b"copy"
    assert stores.mapping.locate(target).location.id == "eu"


@pytest.mark.parametrize("path", ["../x", "a//b", "%2e%2e/x", "x?y", "a\nb", ""])
def test_unsafe_uris_are_refused_by_every_method(stores: Stores, path: str) -> None:
    uri = f"{stores.us}/{path}"
    for call in (
        lambda: stores.objects.read(uri),
        lambda: stores.objects.size(uri),
        lambda: stores.objects.sizes([uri]),
        lambda: stores.objects.write_new(uri, b""),
    ):
        with pytest.raises(UnsafeUri):
            call()
    with pytest.raises(UnregisteredUri):
        stores.objects.read("s3://elsewhere/x")


def test_a_file_over_the_limit_is_refused(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"12345")
    assert stores.objects.read(f"{here}/f", limit=5) == b"12345"
    with pytest.raises(OverLimit, match=r"has 5 bytes, 4 were expected"):
        stores.objects.read(f"{here}/f", limit=4)


def test_read_many_yields_every_uri_in_order_with_its_content_or_error(stores: Stores, here: str) -> None:
    uris = [f"{here}/{number}" for number in range(40)]
    for uri in uris[::2]:
        stores.put(uri, uri.encode())
    got = list(stores.objects.read_many([*uris, "s3://elsewhere/x"], workers=4))
    assert [uri for uri, _ in got] == [*uris, "s3://elsewhere/x"]
    assert all(data == uri.encode() for uri, data in got[:40:2])
    assert all(isinstance(data, ObjectMissing) for _, data in got[1:40:2])
    assert isinstance(got[-1][1], UnregisteredUri)


def test_read_many_can_be_left_early(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"x")
    for _, data in stores.objects.read_many([f"{here}/f"] * 100, workers=2):
        assert data == b"x"
        break


def test_sizes_of_many_files_in_many_folders(stores: Stores, here: str) -> None:
    uris = [f"{here}/p={number % 3}/{number:03}" for number in range(90)]
    for number, uri in enumerate(uris):
        if number % 4:
            stores.put(uri, b"x" * number)
    expected = {uri: number if number % 4 else None for number, uri in enumerate(uris)}
    assert stores.objects.sizes(uris) == expected
    assert stores.objects.sizes(uris[:3]) == {uri: expected[uri] for uri in uris[:3]}
    assert stores.objects.sizes([]) == {}


def test_list_names_objects_as_the_folder_is_spelled(stores: Stores, here: str) -> None:
    started = datetime.now(UTC).timestamp()
    for name in ("t/a", "t/deep/b", "t2/c"):
        stores.put(f"{here}/{name}", b"12")
    listed = sorted(stores.objects.list(f"{here}/t/"))
    assert [(uri, size) for uri, size, _ in listed] == [(f"{here}/t/a", 2), (f"{here}/t/deep/b", 2)]
    assert all(abs(changed.timestamp() - started) < 3600 for _, _, changed in listed)
    assert {uri for uri, _, _ in stores.objects.list(stores.us)} >= {f"{here}/t/a", f"{here}/t2/c"}
    assert list(stores.objects.list(f"{here}/none")) == []


def test_delete_takes_away_what_it_was_told_and_nothing_else(stores: Stores, request: pytest.FixtureRequest) -> None:
    root = f"{stores.mapping.region.replica_root}/{request.node.name.partition('[')[0]}"
    names = [*(f"many/{number}" for number in range(30)), *(f"odd/{number}/{name}" for number, name in enumerate(ODD))]
    uris = [f"{root}/{name}" for name in names if name.split("/", 2)[-1] not in stores.alike]
    for uri in uris:
        stores.put(uri, b"x")
    gone = uris[::2]
    assert stores.objects.delete([*gone, f"{root}/many/never there"]) == {}
    assert {uri for uri, _, _ in stores.objects.list(root)} == set(uris) - set(gone)
    assert stores.objects.delete(gone) == {}, "what is gone already is no failure"
    assert stores.objects.delete([]) == {}


def test_delete_stays_below_the_replica_root(stores: Stores, here: str) -> None:
    root = stores.mapping.region.replica_root
    inside = f"{root}/delete/f"
    for uri in (f"{here}/f", f"{root}-old/f", inside):
        stores.put(uri, b"x")
    for uri in (f"{here}/f", f"{root}-old/f", f"{root}/../f", f"{root}/a/%2e%2e/f", root):
        with pytest.raises(UnsafeUri):
            stores.objects.delete([inside, uri])
    assert stores.objects.size(inside) == 1, "not even what might be deleted"
    assert stores.objects.size(f"{root}-old/f") == 1
    assert list(stores.objects.delete([inside], may_continue=lambda: False)) == [inside]
    assert stores.objects.size(inside) == 1


def test_an_alias_is_the_same_object_under_its_own_spelling(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"x")
    respelled = stores.respelled(here)
    assert respelled != here
    assert stores.objects.sizes([f"{here}/f", f"{respelled}/f"]) == {f"{here}/f": 1, f"{respelled}/f": 1}
    assert [uri for uri, _, _ in stores.objects.list(respelled)] == [f"{respelled}/f"]


def test_many_threads_share_one_and_open_each_location_once(stores: Stores, here: str) -> None:
    credential_ids: list[str] = []
    objects = Objects(stores.mapping, lambda id: credential_ids.append(id) or stores.objects.secrets(id))  # type: ignore[func-returns-value]
    stores.put(f"{here}/f", b"x")
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(objects.read(f"{here}/f"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [b"x"] * 16
    assert credential_ids == ["us_store"]


def test_it_can_be_rebuilt_elsewhere_from_plain_data_or_a_pickle(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"x")
    plain = json.dumps(stores.objects.spec())
    assert SECRET not in plain
    assert Objects.from_spec(json.loads(plain), stores.objects.secrets).read(f"{here}/f") == b"x"
    assert pickle.loads(pickle.dumps(stores.objects)).read(f"{here}/f") == b"x"


def test_another_process_finds_the_credentials_in_its_environment(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"over there")
    program = (
        "import json, sys; from sterna.storage.objects import Objects; from sterna.config.secrets import "
        "environment_secrets; "
        "print(Objects.from_spec(json.loads(sys.argv[1]), environment_secrets()).read(sys.argv[2]).decode())"
    )
    environment = {**os.environ, **connection_environment(["us_store"], stores.objects.secrets)}
    command = [sys.executable, "-c", program, json.dumps(stores.objects.spec()), f"{here}/f"]
    assert (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
        == "over there\n"
    )


def _forked(objects: Objects, uri: str, answer: multiprocessing.Queue) -> None:
    try:
        answer.put(objects.read(uri).decode())
    except EngineError as error:
        answer.put(str(error))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_is_told_so_instead_of_waiting_for_ever(stores: Stores, here: str) -> None:
    stores.put(f"{here}/f", b"x")
    fork = multiprocessing.get_context("fork")
    answer: multiprocessing.Queue = fork.Queue()
    child = fork.Process(target=_forked, args=(stores.objects, f"{here}/f", answer))
    child.start()
    assert "forked" in answer.get(timeout=60)
    child.join(60)


@pytest.mark.parametrize("key", ["f011//x", "f011/../x", "./x"])
def test_a_strangers_key_that_no_path_can_be_hides_nothing(key: str) -> None:
    with moto_stores() as stores:
        uris = [f"{stores.us}/strange/f{number:03}" for number in range(30)]
        for uri in uris:
            stores.put(uri, b"1")
        location = stores.mapping.locate(uris[0]).location
        client = boto3.client(
            "s3",
            endpoint_url=location.remote.options["endpoint"],
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        bucket, _, base = location.prefix.removeprefix("s3://").partition("/")
        client.put_object(Bucket=bucket, Key="/".join(filter(None, (base, "strange"))) + f"/{key}", Body=b"odd")
        assert stores.objects.sizes([*uris, f"{stores.us}/strange/missing"]) == {
            **dict.fromkeys(uris, 1),
            f"{stores.us}/strange/missing": None,
        }


class TestRequests:
    """What `sizes` costs."""

    def count(self, served: Stores, method: str) -> int:
        return sum(1 for request in served.endpoints[0].requests(self.mark) if request.method == method)

    def test_files_side_by_side_are_listed(self, served: Stores) -> None:
        uris = [f"{served.us}/side/{number:04}" for number in range(60)]
        for uri in uris[:50]:
            served.put(uri, b"x")
        self.mark = len(served.endpoints[0].requests())
        assert list(served.objects.sizes(uris).values()) == [1] * 50 + [None] * 10
        assert (self.count(served, "LIST"), self.count(served, "HEAD")) == (1, 0)

    def test_a_few_files_are_asked_for_one_by_one(self, served: Stores) -> None:
        served.put(f"{served.us}/few/0", b"x")
        self.mark = len(served.endpoints[0].requests())
        served.objects.sizes([f"{served.us}/few/{number}" for number in range(3)])
        assert (self.count(served, "LIST"), self.count(served, "HEAD")) == (0, 3)

    def test_a_listing_that_passes_too_much_else_is_given_up(self, served: Stores) -> None:
        others = [f"{served.us}/sparse/0/{number:05}" for number in range(1100)]
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda uri: served.put(uri, b""),
                    [*others, *(f"{served.us}/sparse/9/{number:05}" for number in range(20))],
                )
            )
        uris = [f"{served.us}/sparse/0/00000", *(f"{served.us}/sparse/9/{number:05}" for number in range(20))]
        self.mark = len(served.endpoints[0].requests())
        assert set(served.objects.sizes(uris).values()) == {0}
        assert (self.count(served, "LIST"), self.count(served, "HEAD")) == (1, 20)
