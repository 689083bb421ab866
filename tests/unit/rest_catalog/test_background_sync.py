"""The small sync after each change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.serving.rest_catalog import background_sync
from tests.support.rest_address import address_of
from tests.support.small_world import make_world, run


def test_a_thread_that_cant_start_doesnt_end_all_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path)
    world.commit(orders=world.write("orders"))
    run(world)
    sync, refusals = address_of(world).sync, ["can't start new thread"]
    start = background_sync.run_in_background

    def refuse_once(work: Callable[[], Any], name: str) -> Any:
        if refusals:
            raise RuntimeError(refusals.pop())
        return start(work, name)

    monkeypatch.setattr(background_sync, "run_in_background", refuse_once)
    with pytest.raises(RuntimeError):
        sync.request()
    world.commit(orders=world.write("orders"))
    before = world.replica()["ns.orders"]
    assert sync.wait(sync.request(), 60)
    assert world.replica()["ns.orders"] != before
