"""Whatever a writer put into a URI, a key or a message is told on one line, and every line can be printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sterna.catalog.model import Commit
from sterna.cli.output import Output
from sterna.errors import list_some
from sterna.maintenance.deletion.model import NotDeleted
from sterna.operations.registry_check import Probe, RegistryCheck
from sterna.operations.status.model import ExcludedTable, HeldStatus, ShortRetention
from sterna.operations.status.table_model import TableState, TableStatus
from sterna.pipelines.ingest.recovered_batches import RecoveredBatches
from sterna.replication.failover.catalog_seed import Seeded
from sterna.replication.failover.model import CatalogSite, Slot
from sterna.replication.failover.rejoin import LostCommits, Rejoined
from sterna.replication.failover.tables import Move, MovePlan
from sterna.replication.repair.plan import FileRepair, RemainingFault
from sterna.replication.repair.run import RepairReport
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report
from sterna.replication.sync.explain import ExplainedAction, OriginTotal
from sterna.replication.verify.findings import Finding, VerificationReport
from sterna.text import catalog as catalogs
from sterna.text.gc import collected_text
from sterna.text.plan import plan_text
from sterna.text.registry import check_text
from sterna.text.status import held_line, short_retention_line, status_text
from sterna.text.sync import report_text
from sterna.text.table_status import table_status_text
from sterna.text.verify import repaired_text, verified_text
from tests.unit.text.test_plan import EXPLAINED
from tests.unit.text.test_results import COLLECTED
from tests.unit.text.test_status import STATUS

ODD = "s3://us/\nFAKE\r\x1b[2J\x85\u2028\u202e\ud800x"
COMMIT = Commit("ab" * 32, "", datetime(2026, 7, 1, tzinfo=UTC), ODD, ODD, {})
HELD = Held(ODD, "Unsupported", ODD, ODD, since=ODD)
NOW = HeldStatus(HELD, 1.0, "wait", 3, ODD)
LOST = LostCommits(ODD, ODD, ODD, (COMMIT,))
MOVES = MovePlan("eu", ("us",), (Move(ODD, ODD, ODD, (COMMIT,)),), {ODD: ODD})
SLOT = Slot("sterna_eu", False, "lost", 900, 0.9)
VERIFIED = VerificationReport(1, 5, 50, 0, (Finding(ODD, "missing", ODD, ODD),), 1)
TEXTS: dict[str, Callable[[], str]] = {
    "verify": lambda: verified_text(VERIFIED, deep=True),
    "repair": lambda: repaired_text(
        RepairReport(False, 2, (FileRepair(ODD, ODD, ODD, "copy", ODD),), (RemainingFault(ODD, ODD, ODD, ODD),), 2)
    ),
    "gc": lambda: collected_text(
        replace(COLLECTED, failures=(NotDeleted(ODD, ODD),), in_flight=(ODD,), still_shown=(ODD,)), evict=True
    ),
    "status": lambda: status_text(
        replace(
            STATUS,
            held=(NOW,),
            refused=(ExcludedTable(ODD, ODD, 1, 1),),
            short_retention=(ShortRetention(ODD, 1.0, 1.0),),
            unseen=(ODD,),
            problem=ODD,
            slots=(SLOT,),
            last_run=ODD,
            uncopied=(ODD,),
        )
    ),
    "a held key": lambda: held_line(NOW),
    "a table's state": lambda: table_status_text(
        TableStatus("eu", ODD, TableState.HELD, ODD, ODD, ODD, ODD, 1.0, (ODD,), NOW, 1, ODD, ODD, ODD, ODD, ODD)
    ),
    "a short retention": lambda: short_retention_line(ShortRetention(ODD, 1.0, 1.0)),
    "sync": lambda: report_text(
        Report("r", "eu", "ab" * 32, "published", "cd", "ab" * 32, (ODD,), (HELD,), seconds=1), "main_replica_eu"
    ),
    "plan": lambda: plan_text(
        replace(
            EXPLAINED,
            actions=(ExplainedAction(ODD, "ICEBERG_TABLE", "put", 3, 4096, 2), ExplainedAction(ODD, "UDF", "drop")),
            held=(HELD,),
            origins={"us-lake": OriginTotal(1, 3, 4096)},
        )
    ),
    "registry check": lambda: check_text(RegistryCheck(False, (Probe("eu", ODD, False, ODD, 1, ODD, ODD, ODD),))),
    "moves": lambda: catalogs.moves_text(MOVES),
    "rejoined": lambda: catalogs.rejoined_text(
        Rejoined(Seeded("us", "eu", 1, "ab"), (LOST,)), [RecoveredBatches(ODD, problem=ODD)]
    ),
    "catalog status": lambda: catalogs.status_text([CatalogSite("eu", problem=ODD)]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_foreign_text_stays_on_its_line(name: str) -> None:
    text = TEXTS[name]()
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("FAKE")
    assert "FAKE" in text


def test_json_of_foreign_text_is_one_line_that_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).result(VERIFIED, "")
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed)["findings"][0]["file"] == ODD


def test_many_texts_are_the_first_ones_and_a_number():
    assert list_some([]) == ""
    assert list_some(["a", "b"], 2) == "a, b"
    assert list_some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert list_some(["a: 1", "b", "c"], 1, "; ") == "a: 1; and 2 more"
