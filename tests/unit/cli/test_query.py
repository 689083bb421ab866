"""`sterna query`: a figure at exactly one snapshot, and how it ends where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.small_world import World, run
from tests.unit.cli.conftest import Sterna
from tests.unit.queries.tables import document

FILE = """
queries:
  total: {sql: SELECT sum(id) AS total FROM ns.a, default: true}
  over: {sql: SELECT id FROM ns.a WHERE id > $n ORDER BY id, params: {n: long}, answer: rows}
"""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "services.yaml").write_text(FILE)
    monkeypatch.setenv("STERNA_SERVICES", str(tmp_path / "services.yaml"))


@pytest.mark.slow
def test_a_query_is_answered_at_its_pin(world: World, sterna: Sterna, services: None) -> None:
    world.commit(a=world.write("a", 3))
    run(world)
    first = world.catalog.reference("main_replica_eu").hash
    world.commit(a=world.write("a", 5))
    run(world)
    ids = [
        snapshot["snapshot-id"] for snapshot in document(world.replica()["ns.a"].metadata_location or "")["snapshots"]
    ]
    answer = sterna("query", "--snapshot-id", str(ids[1]), "--json")
    assert (answer.code, json.loads(answer.out)) == (
        0,
        {"kpi": {"total": "13"}, "types": {"total": "decimal(38, 0)"}, "snapshot_id": str(ids[1])},
    )
    pinned = sterna("query", "over", "--at", first, "--param", "n=0")
    assert pinned.out.splitlines() == ["id: 1", "id: 2", f"2 rows at cursor {first}"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "Missing snapshotId parameter"),
        (("nope", "--snapshot-id", "1"), 2, "there is no query 'nope'"),
        (("over", "--snapshot-id", "5", "--param", "n"), 2, "expected name=value"),
        (("over", "--snapshot-id", "5", "--param", "n=x"), 2, "expected a whole number"),
        (("--snapshot-id", "5"), 1, "snapshot 5 is not here"),
    ],
)
def test_what_has_no_answer(
    world: World, sterna: Sterna, services: None, arguments: tuple[str, ...], code: int, says: str
) -> None:
    world.commit(a=world.write("a"))
    run(world)
    answer = sterna("query", *arguments)
    assert (answer.code, answer.out) == (code, "") and says in answer.err


def test_a_file_without_queries_has_nothing_to_ask(world: World, sterna: Sterna, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("version: 1\n")
    answer = sterna("query", "--snapshot-id", "1", "--services", str(tmp_path / "empty.yaml"))
    assert (answer.code, answer.out) == (2, "") and "has no queries" in answer.err
