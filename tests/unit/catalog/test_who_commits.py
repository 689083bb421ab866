"""Commits are sent in one place, and the right to send them is taken in one: what import rules can't see."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

ROOT = Path(str(files("sterna")))
# A commit of the catalog's port has a branch and an expected head; Iceberg's and psycopg's have no arguments.
_SENDS = re.compile(r"\.commit\((?!\))")


def found(pattern: re.Pattern[str]) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if pattern.search(path.read_text("utf-8"))}


def test_one_module_sends_commits() -> None:
    # By Iceberg's own operations expiry takes snapshots out of a table's metadata, and rows are put on main.
    iceberg = {"edges/spark/snapshots.py", "wap/protocol.py", "wap/spark.py"}
    # What a consumer group is told of its offsets is no commit of the catalog's.
    assert found(_SENDS) == {"catalog/any_branch.py", "edges/brokers/kafka_source.py", *iceberg}


def test_the_right_to_commit_is_taken_in_one_module() -> None:
    assert found(re.compile(r"\.writable_primary\b")) == {"replica/ports.py", "replica/writing.py"}


def test_whoever_takes_it_is_known() -> None:
    users = {"gc/fence.py", "gc/hold.py", "ha/tables.py", "outlets/position.py", "sync/publish.py"}
    assert found(re.compile(r"from sterna\.replica\.writing import")) == users
