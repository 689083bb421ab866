"""A credential that runs out while Spark's workers use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from sterna.errors import StoreDenied
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from tests.support.small_world import World, quiet


def on_spark(world: World) -> World:
    regions = [region.model_copy(update={"localize": "spark"}) for region in world.registry.regions]
    return replace(world, registry=world.registry.model_copy(update={"regions": regions}))


class Refused:
    """An engine whose workers' store refuses the first items that it is given, so many times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls: list[list[str]] = []

    def __call__(self, function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
        self.calls.append(list(items))
        self.times -= 1
        answers = [function(item) for item in items[1:]]
        return [
            json.dumps({"error": [StoreDenied.__name__, "refused", ""]}) if self.times >= 0 else function(items[0]),
            *answers,
        ]


def test_what_a_store_refused_is_localized_once_more(world: World):
    world = on_spark(world)
    world.commit(a=world.write("a"), b=world.write("b"))
    engine = Refused(1)
    report = sync(world.context(), SyncOptions(), quiet, engine=engine)
    assert (report.outcome, report.held) == ("published", ())
    assert engine.calls[1] == engine.calls[0][:1], "only what was refused"


def test_what_stays_refused_stops_the_sync(world: World):
    world = on_spark(world)
    world.commit(a=world.write("a"), b=world.write("b"))
    with pytest.raises(StoreDenied):
        sync(world.context(), SyncOptions(), quiet, engine=Refused(2))
