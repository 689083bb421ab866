"""New names through an address: only one that is taken is answered with the status that clients read so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sterna.errors import AlreadyExists, CatalogConflict, CommitOutcomeUnknown, StaleBase
from sterna.serving.rest_catalog import commit
from sterna.serving.rest_catalog import entry_changes as changes
from sterna.serving.rest_catalog.new_names import adding_name
from sterna.serving.rest_catalog.replays import IdempotencyKeys
from sterna.serving.rest_catalog.swap import swap_on_main
from tests.support.rest_address import address_of
from tests.support.small_world import World, run

NEW = ("ns", "new")
RENAME = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "new"}}
REQUEST = {"name": "new", "schema": {"type": "struct", "fields": []}}


@pytest.fixture(autouse=True)
def table(world: World) -> None:
    world.commit(t=world.write("t"))
    run(world)


def overtaken(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Have the next swap on `main` come too late."""
    late = [True]

    def swap(*arguments: Any, **more: Any) -> str:
        if not late:
            return swap_on_main(*arguments, **more)
        late.clear()
        meanwhile()
        raise StaleBase("main changes faster than this commits")

    monkeypatch.setattr(commit, "swap_on_main", swap)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/namespaces/ns/tables", REQUEST),
        ("/v1/namespaces", {"namespace": ["other"]}),
        ("/v1/namespaces/ns/properties", {"updates": {"a": "1"}}),
        (
            "/v1/tables/rename",
            {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "new"}},
        ),
    ],
)
def test_a_name_that_others_commits_keep_from_being_added_is_not_told_to_be_taken(
    address: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    overtaken(monkeypatch)
    answer = address.post(path, json=body)
    assert answer.status_code == 503 and answer.json()["error"]["type"] == "ServiceUnavailableException", answer.text
    assert answer.headers["retry-after"]
    assert address.post(path, json=body).is_success


def test_a_name_that_another_took_meanwhile_is_taken_though_this_region_does_not_show_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_of(world)
    overtaken(monkeypatch, lambda: world.commit(new=world.write("new")))
    monkeypatch.setattr(commit, "bring_up", lambda *_: None)
    with pytest.raises(AlreadyExists, match="Table already exists"):
        changes.create_table(address, ("ns",), REQUEST)
    assert address.shown([NEW])[NEW] is None


def test_what_is_replaced_is_not_told_to_be_taken(world: World) -> None:
    address = address_of(world)
    with pytest.raises(CatalogConflict, match="other commits"), adding_name(address, ("ns", "t"), may_be_taken=True):
        raise StaleBase("it came too late")


def test_a_request_that_another_instance_carried_out_is_not_told_to_have_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_of(world)
    monkeypatch.setattr(IdempotencyKeys, "has", lambda *_: True)
    with pytest.raises(CommitOutcomeUnknown, match="carried out meanwhile"), adding_name(address, NEW, "key"):
        raise StaleBase("it came too late")
