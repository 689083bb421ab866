"""Expiry ends with a table for the reason there is: others were faster, nobody was, or Iceberg refuses it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.config.sections.maintenance import Maintenance
from sterna.errors import CatalogStateUnknown, EngineRefused, UpkeepBlocked
from sterna.maintenance.tables.expire import RemoveSnapshots, expire_snapshots, require_unblocked
from sterna.maintenance.tables.results import ExpiredTable, ExpiryReport
from sterna.spark.expire_snapshots import remove_snapshots
from sterna.spark.main_catalog import CommitConflict, TableChanged
from tests.support.gc import after
from tests.support.small_world import World, make_world, run

SETTINGS = Maintenance.model_validate(
    {"tables": [{"match": ["**"], "keep": "1s"}], "keep_heads": "1s", "exclude_regions": ["us"]}
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two tables of two snapshots each, all of which eu has."""
    world = make_world(tmp_path)
    for name in ("a", "b", "a", "b"):
        world.commit(**{name: world.write(name)})
    run(world)
    return world


def expire(world: World, remove: RemoveSnapshots) -> ExpiryReport:
    return expire_snapshots(world.context("us"), SETTINGS, remove=remove, now=after(hours=3))


def by_key(report: ExpiryReport) -> dict[str, ExpiredTable]:
    return {table.key: table for table in report.tables}


def test_what_iceberg_refuses_is_told_once_and_the_others_go_on(world: World) -> None:
    attempts: list[str] = []

    def remove(key: str, metadata: str, snapshots: Any) -> bool:
        attempts.append(key)
        if key == "ns.a":
            raise EngineRefused("Iceberg refuses to remove the snapshots: a rule of its own", table=key)
        return True

    report = expire(world, remove)
    tables = by_key(report)
    assert (tables["ns.a"].done, tables["ns.b"].done) == (False, True)
    assert "a rule of its own" in tables["ns.a"].problem and "others" not in tables["ns.a"].problem
    assert sorted(attempts) == ["ns.a", "ns.b"], "a refusal is tried once"
    with pytest.raises(UpkeepBlocked, match="a rule of its own") as caught:
        require_unblocked(report)
    assert caught.value.table == "ns.a"


def test_a_table_that_nobody_else_changes_is_not_said_to_be_changed_by_others(world: World) -> None:
    tables = by_key(expire(world, lambda key, metadata, snapshots: key == "ns.b"))
    assert tables["ns.a"].problem == (
        "each attempt to commit failed, though nobody else changed the table: a later run continues"
    )
    assert tables["ns.b"].done


def test_a_table_that_others_change_at_each_attempt_says_so(world: World) -> None:
    attempts: list[str] = []

    def beaten(key: str, metadata: str, snapshots: Any) -> bool:
        if key == "ns.a":
            attempts.append(metadata)
            world.commit(a=world.write("a"))
            run(world)
        return key == "ns.b"

    tables = by_key(expire(world, beaten))
    assert tables["ns.a"].problem == "others committed first at each attempt: a later run continues"
    assert len(set(attempts)) == 5


@pytest.mark.parametrize("lost", [CommitConflict("others"), CatalogStateUnknown("no answer")], ids=["conflict", "lost"])
def test_a_commit_of_others_or_a_lost_answer_is_no_refusal(lost: Exception) -> None:
    assert remove_snapshots(_failing(lost), ("ns", "a"), "file:///a.json", [1]) is False


def test_a_rule_of_icebergs_is_a_refusal() -> None:
    with pytest.raises(EngineRefused, match="must not be") as caught:
        remove_snapshots(_failing(TableChanged("it must not be")), ("ns", "a"), "file:///a.json", [1])
    assert caught.value.table == "ns.a"


def _failing(error: Exception) -> Any:
    def call(work: Any, table: str) -> Any:
        raise error

    return SimpleNamespace(call=call)
