"""Commits are sent in one place, and the right to send them is taken in one: what import rules can't see.

Modules are named by importing them: whoever gives one another name changes the import, and asks for nothing else.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from sterna.brokers import kafka_source
from sterna.catalog import any_branch
from sterna.maintenance.gc import fencing, pin
from sterna.maintenance.restore import commit as restore_commit
from sterna.maintenance.restore import pins as restore_pins
from sterna.notifications.sinks import offset
from sterna.pipelines.publish import protocol
from sterna.pipelines.publish import spark as wap_spark
from sterna.replication.failover import tables
from sterna.replication.replica import commit_access, ports
from sterna.replication.replica.ports import Ports
from sterna.replication.sync import publish
from sterna.serving.rest_catalog import commit
from sterna.spark import expire_snapshots

ROOT = Path(str(files("sterna")))
# A commit of the catalog's port has a branch and an expected head; Iceberg's and psycopg's have no arguments.
_SENDS = re.compile(r"\.commit\((?!\))")


def matching_files(pattern: re.Pattern[str]) -> set[Path]:
    return {path for path in ROOT.rglob("*.py") if pattern.search(path.read_text("utf-8"))}


def files_of(*modules: ModuleType) -> set[Path]:
    return {Path(str(module.__file__)) for module in modules}


def test_one_module_sends_commits() -> None:
    # By Iceberg's own operations expiry takes snapshots out of a table's metadata, and rows are put on main.
    iceberg = files_of(expire_snapshots, protocol, wap_spark)
    # What a consumer group is told of its offsets is no commit of the catalog's.
    assert matching_files(_SENDS) == files_of(any_branch, kafka_source) | iceberg


def test_the_right_to_commit_is_taken_in_one_module() -> None:
    right = Ports.writable_primary.fget.__name__  # type: ignore[attr-defined]
    assert matching_files(re.compile(rf"\.{re.escape(right)}\b")) == files_of(ports, commit_access)


def test_whoever_takes_it_is_known() -> None:
    users = files_of(fencing, pin, tables, offset, publish, commit, restore_commit, restore_pins)
    assert matching_files(re.compile(rf"from {re.escape(commit_access.__name__)} import")) == users
