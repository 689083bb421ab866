"""What operators find below nessie/ is what sterna runs and what the tests run with."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sterna.local.sites import SETTINGS

ROOT = Path(__file__).parents[3]
NESSIE = ROOT / "nessie"
SQL = ROOT / "plugins" / "sterna" / "ha" / "sql"


def test_the_settings_of_postgres_are_those_of_the_regions_in_the_tests() -> None:
    lines = (line for line in (NESSIE / "postgresql.conf").read_text().splitlines() if line and not line.startswith("#"))
    assert {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)} == SETTINGS


def test_each_setting_has_its_reason() -> None:
    text = (NESSIE / "postgresql.conf").read_text()
    for block in re.split(r"\n\n+", text)[1:]:
        assert block.startswith("# "), block


def test_the_sql_is_sternas_own() -> None:
    assert {path.name for path in (NESSIE / "sql").iterdir()} == {path.name for path in SQL.glob("*.sql")}
    for path in SQL.glob("*.sql"):
        assert os.path.samefile(path, NESSIE / "sql" / path.name)
