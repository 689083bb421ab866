"""What each region's Postgres says of the epoch, without one: for regions that have catalogs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sterna.config.registry.model import Region
from sterna.errors import DatabaseRefused, DatabaseUnreachable, SternaError
from sterna.postgres import term
from sterna.postgres.term import Term
from sterna.replication.failover import site
from tests.support.small_world import World, with_registry

Answers = dict[str, Term | SternaError | None]
OURS, THEIRS = Term(1, "us"), Term(2, "eu")
SILENT = DatabaseUnreachable("the catalog's Postgres of region eu does not answer")
REFUSES = DatabaseRefused("the catalog's Postgres of region eu refused the login")


def postgres_answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Let each region's Postgres say what stands in the result, at first that us began epoch 1."""
    answers: Answers = {"us": OURS, "eu": OURS}

    @contextmanager
    def looking(region: Region, secrets: object) -> Iterator[Term | None]:
        answer = answers[region.name]
        if isinstance(answer, SternaError):
            raise answer
        yield answer

    looks, reads = term.probe_connection.__name__, term.read_term.__name__
    for module in (term, site):
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
