"""The commands `pause` and `resume`: a dry run until `--yes`, a list without names, and JSON."""

from __future__ import annotations

import json

from sterna.text.lines import NOTHING_CHANGED
from tests.support.small_world import World, run
from tests.unit.cli.conftest import Sterna


def test_a_table_is_paused_listed_and_resumed(world: World, sterna: Sterna) -> None:
    world.commit(a=world.write("a"))
    run(world)
    assert sterna("pause").last_line == "nothing is paused"
    answer = sterna("pause", "ns.a", "--reason", "backfill")
    assert (answer.code, answer.out, sterna("pause").last_line) == (
        0,
        f"pause ns.a\n{NOTHING_CHANGED}\n",
        "nothing is paused",
    )
    assert sterna("pause", "ns.a", "--reason", "backfill", "--yes").out == "pause ns.a\n"
    assert sterna("pause").out.startswith("ns.a: paused by an operator since 2")
    listed = json.loads(sterna("pause", "--json").out)
    assert [(each["key"], each["reason"]) for each in listed["paused"]] == [("ns.a", "backfill")]
    assert sterna("resume", "ns.a").last_line == NOTHING_CHANGED
    assert json.loads(sterna("resume", "ns.a", "--yes", "--json").out)["applied"] is True
    assert sterna("resume", "ns.a", "--yes").last_line == "none of them is paused"


def test_a_wrong_name_is_refused(world: World, sterna: Sterna) -> None:
    answer = sterna("pause", "ns.nowhere", "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert "no such table or view: ns.nowhere" in answer.err
