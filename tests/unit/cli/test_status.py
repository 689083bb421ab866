"""`sterna status`: one answer with all that is known, and its exit codes.

The kind: what can't be told isn't called well. A table of `main` that can't be read, a list of held tables that is
gone, a store that doesn't answer (tests/unit/status), and a primary that is silent (tests/ha) end it with 4.
"""

from __future__ import annotations

import json

from tests.support.small_world import World, run
from tests.unit.cli.conftest import Sterna

KEYS = [
    "region",
    "branch",
    "replica_hash",
    "watermark",
    "source_hash",
    "lag_seconds",
    "last_run",
    "last_commit",
    "held",
    "other_registry",
    "problem",
    "refused",
    "unserved",
    "cut_off",
    "short_retention",
    "watermark_lag_seconds",
    "held_lag_seconds",
    "slots",
    "oldest_evidence",
    "unseen",
    "unread_held",
    "stored",
    "transit",
    "transit_lag_seconds",
    "silent",
    "uncopied",
    "delays",
    "problem_kind",
    "problem_card",
]


def test_json_has_the_keys_that_it_always_had(world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"), gone=f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json")
    run(world)
    answer = sterna("status", "--json")
    status = json.loads(answer.out)
    assert (answer.code, list(status)) == (0, KEYS)
    (held,) = status["held"]
    assert list(held) == ["held", "lag_seconds", "do", "tries", "last_try", "card"]
    assert (held["held"]["key"], held["tries"]) == ("ns.gone", 1)
    assert "tried 1 times" in sterna("status").out


def test_a_branch_that_somebody_changed_ends_it_with_6(world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"))
    run(world)
    world.catalog.assign("main_replica_eu", world.catalog.reference("main").hash)
    answer = sterna("status")
    assert answer.code == 6
    assert "lag unknown" in answer.out


def test_what_can_not_be_looked_at_ends_it_with_4(world: World, sterna: Sterna) -> None:
    """A table that came since the last sync, whose metadata can't be read: how long `main` keeps it nobody can tell."""
    world.commit(a=world.write("a"))
    run(world)
    assert sterna("status").code == 0
    world.commit(gone=f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json")
    answer = sterna("status", "--json")
    assert json.loads(answer.out)["unseen"] == ["how long main keeps the snapshots of 1 tables: ns.gone"]
    assert answer.code == 4
