"""A store that accepts connections and swallows whatever is sent: it costs one time-out, not one a file or table."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.credential import Credential
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.errors import ObjectMissing, StoreUnreachable
from sterna.storage.circuit_breaker import RETRY_SECONDS
from sterna.storage.objects import Objects
from tests.unit.config import samples

TIMEOUT = 0.5
FILES = [f"s3://us-lake/t/{number}.parquet" for number in range(40)]
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Swallower:
    """A server that reads and, as long as it is dark, answers nothing."""

    def __init__(self, server: socket.socket) -> None:
        self.endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        self.dark = True
        self.connections = 0
        self.over = False
        self._server = server

    def serve(self) -> None:
        while not self.over:
            with suppress(OSError):
                client, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while client.recv(65536):
                if not self.dark:
                    client.sendall(_NOT_FOUND)


@pytest.fixture
def swallower() -> Iterator[Swallower]:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        silent = Swallower(server)
        threading.Thread(target=silent.serve, daemon=True).start()
        yield silent
        silent.over = True


def objects(swallower: Swallower, timeout: float = TIMEOUT, retry_seconds: float = RETRY_SECONDS) -> Objects:
    lake = samples.location("us-lake", "s3://us-lake", "us")
    options = {"endpoint": swallower.endpoint, "region": "us-east-1", "provider": "Other"}
    lake["remote"] = {"type": "s3", "options": options}
    lake["credential_id"] = "us"
    roots = [samples.location(f"{name}-replica", f"s3://{name}-replica", name) for name in ("us", "eu")]
    regions = [samples.region(name, f"s3://{name}-replica") for name in ("us", "eu")]
    registry = Registry.model_validate({"regions": regions, "locations": [lake, *roots]})
    credential = Credential(id="us", login="key", password="secret")
    mapping = Mapping(registry, registry.region("eu"))
    return Objects(mapping, lambda id: credential, timeout=timeout, retry_seconds=retry_seconds)


def test_who_has_waited_for_it_once_waits_for_it_no_more(swallower: Swallower) -> None:
    store = objects(swallower)
    with pytest.raises(StoreUnreachable):
        store.size(FILES[0])
    connections = swallower.connections
    for uri in FILES:
        with pytest.raises(StoreUnreachable, match="did not answer") as excinfo:
            store.read(uri)
        assert excinfo.value.file == uri
    assert swallower.connections == connections


def test_what_it_did_not_answer_is_told_in_short(swallower: Swallower) -> None:
    """The client repeats the whole path, however long: it would stand in the error of each table."""
    store = objects(swallower)
    with pytest.raises(StoreUnreachable):
        store.size(f"s3://us-lake/{'x' * 900}.parquet")
    with pytest.raises(StoreUnreachable, match="did not answer") as excinfo:
        store.read(FILES[0])
    assert "x" * 500 not in excinfo.value.message


def test_another_sync_asks_it_again_at_once(swallower: Swallower) -> None:
    store = objects(swallower, 3.0)
    with pytest.raises(StoreUnreachable):
        store.size(FILES[0])
    swallower.dark = False
    store.reset_circuit_breakers()
    with pytest.raises(ObjectMissing):
        store.read(FILES[1])


def test_it_is_asked_again_after_a_while_by_one_call_at_a_time(swallower: Swallower) -> None:
    store = objects(swallower, 3.0, retry_seconds=0.0)
    with pytest.raises(StoreUnreachable):
        store.size(FILES[0])
    swallower.dark = False
    with pytest.raises(ObjectMissing):
        store.read(FILES[1])
    assert store.size(FILES[2]) is None


def test_one_call_that_hangs_beside_others_that_don_t_says_nothing_of_the_store(swallower: Swallower) -> None:
    store = objects(swallower, 3.0)
    failed: list[BaseException] = []

    def hang() -> None:
        try:
            store.read(FILES[0])
        except StoreUnreachable as error:
            failed.append(error)

    slow = threading.Thread(target=hang)
    slow.start()
    while not swallower.connections:
        time.sleep(0.01)
    time.sleep(0.05)
    swallower.dark = False
    assert store.size(FILES[1]) is None
    slow.join()
    assert store.size(FILES[2]) is None


def test_other_processes_wait_as_long_between_two_calls(swallower: Swallower) -> None:
    store = objects(swallower, retry_seconds=7.0)
    store.secrets = environment_secrets()
    copies = (pickle.loads(pickle.dumps(store)), Objects.from_spec(store.spec(), store.secrets))
    assert [copy.retry_seconds for copy in copies] == [7.0, 7.0]
