"""What each region's Postgres says of the epoch, without one: for regions that have catalogs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sterna.edges.postgres import epoch
from sterna.edges.postgres.epoch import Epoch
from sterna.errors import DatabaseRefused, DatabaseUnreachable, SternaError
from sterna.ha import site
from sterna.registry.model import Region
from tests.support.small_world import World, with_registry

Answers = dict[str, Epoch | SternaError | None]
OURS, THEIRS = Epoch(1, "us"), Epoch(2, "eu")
SILENT = DatabaseUnreachable("the catalog's Postgres of region eu does not answer")
REFUSES = DatabaseRefused("the catalog's Postgres of region eu refused the login")


def postgres_answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Let each region's Postgres say what stands in the result, at first that us began epoch 1."""
    answers: Answers = {"us": OURS, "eu": OURS}

    @contextmanager
    def looking(region: Region, secrets: object) -> Iterator[Epoch | None]:
        answer = answers[region.name]
        if isinstance(answer, SternaError):
            raise answer
        yield answer

    looks, reads = epoch.looking.__name__, epoch.read_epoch.__name__
    for module in (epoch, site):
        monkeypatch.setattr(module, looks, looking)
        monkeypatch.setattr(module, reads, lambda connection: connection)
    return answers


def with_copies(world: World) -> World:
    """The same lake, swept in us, where each region has a catalog of its own."""
    registry = world.registry.model_dump(mode="json")
    for region in registry["regions"]:
        database = {"hosts": ["127.0.0.1:1"], "credential_id": f"{region['name']}-pg", "sslmode": "disable"}
        region["catalog"] = {"read": f"http://127.0.0.1:1/{region['name']}/api/v2", "database": database}
    for location in registry["locations"]:
        location["sweep"] = location["id"] == "us-lake"
    return with_registry(world, regions=registry["regions"], locations=registry["locations"])
