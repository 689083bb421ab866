"""A clean-up by an old primary's catalog deletes nothing: the new one may show what that doesn't.

The kind, and what else falls under it, stands in `tests/unit/maintenance/test_interrupted.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.errors import Busy, SternaError, UpkeepBlocked
from sterna.maintenance.gc.model import GcReport
from sterna.maintenance.gc.scope import ReplicaScope
from sterna.postgres.term import Term
from tests.support.epochs import OURS, REFUSES, SILENT, THEIRS, Answers, postgres_answers, with_copies
from tests.support.gc import clean, files, later, much_later, rewritten
from tests.support.small_world import World, make_world, run


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return postgres_answers(monkeypatch)


@pytest.fixture
def world(tmp_path: Path, answers: Answers) -> World:
    """A first pass has seen garbage in eu, where all regions have catalogs of their own."""
    world = make_world(tmp_path)
    world.commit(a=world.write("a"))
    run(world)
    rewritten(world)
    world = with_copies(world)
    clean(world, later())
    return world


def test_where_every_region_was_seen_garbage_goes(world: World) -> None:
    assert clean(world, much_later()).deleted.files > 0


@pytest.mark.parametrize("said", [SILENT, REFUSES, None], ids=["silent", "refuses", "lost its epoch"])
def test_where_another_may_be_the_primary_nothing_goes(
    world: World, answers: Answers, said: SternaError | None
) -> None:
    before = files(world)
    answers |= {"us": Term(2, "eu") if said is None else OURS, "eu": said}
    with pytest.raises(UpkeepBlocked, match="eu"):
        clean(world, much_later())
    assert files(world) == before
    answers |= {"us": OURS, "eu": OURS}
    assert clean(world, much_later()).deleted.files > 0


def test_one_that_an_operator_left_out_may_be_silent(world: World, answers: Answers) -> None:
    answers["eu"] = SILENT
    assert clean(world, much_later(), excluded_regions=("eu",)).deleted.files > 0


@pytest.mark.parametrize(("said", "why"), [(SILENT, UpkeepBlocked), (THEIRS, Busy)], ids=["silent", "promoted"])
def test_what_changes_between_decision_and_deletion_ends_it(
    world: World, answers: Answers, said: Any, why: type[SternaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = files(world), ReplicaScope.build_report

    def changed(*arguments: Any, **options: Any) -> GcReport:
        answers["eu"] = said
        return real(*arguments, **options)

    monkeypatch.setattr(ReplicaScope, ReplicaScope.build_report.__name__, changed)
    with pytest.raises(why):
        clean(world, much_later())
    assert files(world) == before
