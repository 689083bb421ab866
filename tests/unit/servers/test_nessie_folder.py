"""What operators find below nessie/ is what sterna runs and what the tests run with."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import yaml
from patroni import global_config
from patroni.postgresql.slots import SlotsHandler

from sterna.servers import sites

ROOT = Path(__file__).parents[3]
NESSIE = ROOT / "nessie"
SQL = ROOT / "plugins" / "sterna" / "replication" / "failover" / "sql"


def test_the_settings_of_postgres_are_those_of_the_regions_in_the_tests() -> None:
    # As they stand in the module: tests of regions in the same process have less room for the log.
    settings = runpy.run_path(str(sites.__file__))["SETTINGS"]
    lines = (
        line for line in (NESSIE / "postgresql.conf").read_text().splitlines() if line and not line.startswith("#")
    )
    assert {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)} == settings


def test_each_setting_has_its_reason() -> None:
    text = (NESSIE / "postgresql.conf").read_text()
    for block in re.split(r"\n\n+", text)[1:]:
        assert block.startswith("# "), block


def test_the_sql_is_sternas_own() -> None:
    assert {path.name for path in (NESSIE / "sql").iterdir()} == {path.name for path in SQL.glob("*.sql")}
    for path in SQL.glob("*.sql"):
        assert os.path.samefile(path, NESSIE / "sql" / path.name)


def test_patroni_leaves_the_slots_of_other_regions_alone() -> None:
    dynamic = yaml.safe_load((NESSIE / "patroni.yml").read_text())["bootstrap"]["dcs"]
    ours = {
        "type": "logical",
        "plugin": "pgoutput",
        "database": "nessie",
    }  # as CREATE_REPLICATION_SLOT in replication/failover/catalog_seed.py makes it
    assert is_left_alone(ours, dynamic)
    assert not is_left_alone({"type": "physical", "plugin": None, "database": None}, dynamic), (
        "a member that went for good"
    )
    assert not is_left_alone(ours, {**dynamic, "ignore_slots": []})


def is_left_alone(slot: dict[str, str | None], dynamic: dict[str, object]) -> bool:
    """Ask Patroni whether it would keep a slot that it doesn't know."""
    before = global_config.ignore_slots_matchers
    cluster = SimpleNamespace(config=SimpleNamespace(modify_version=1, data=dynamic))
    global_config.update(cluster)
    try:
        handler = object.__new__(SlotsHandler)
        handler._replication_slots = {"sterna_eu": slot}
        handler._postgresql = SimpleNamespace(mpp_handler=SimpleNamespace(ignore_replication_slot=lambda slot: False))
        return bool(handler.ignore_replication_slot(cluster, "sterna_eu"))
    finally:
        global_config.update(SimpleNamespace(config=SimpleNamespace(modify_version=1, data={"ignore_slots": before})))
