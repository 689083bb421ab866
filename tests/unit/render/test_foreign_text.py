"""Whatever a writer put into a URI, a key or a message is told on one line, and every line can be printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sterna.catalog.model import Commit
from sterna.cleaning.model import NotDeleted
from sterna.cli.output import Output
from sterna.ha.model import CatalogSite, Slot
from sterna.ha.rejoin import Lost, Rejoined
from sterna.ha.seed import Seeded
from sterna.ha.tables import Move, Moves
from sterna.ingest.came_back import CameBack
from sterna.render import catalog as catalogs
from sterna.render.gc import collected_text
from sterna.render.plan import plan_text
from sterna.render.registry import check_text
from sterna.render.repair import repaired_text
from sterna.render.status import held_line, short_line, status_text
from sterna.render.sync import report_text
from sterna.render.verify import verified_text
from sterna.repair.diagnose import Left, Mend
from sterna.repair.run import Repaired
from sterna.replica.held import Held
from sterna.replica.records import Report
from sterna.status.model import HeldNow, Refused, ShortRetention
from sterna.status.probes import Probe, RegistryCheck
from sterna.sync.explain import ExplainedAction, OriginSum
from sterna.verify.findings import Finding, Verified
from tests.unit.render.test_plan import EXPLAINED
from tests.unit.render.test_results import COLLECTED
from tests.unit.render.test_status import STATUS

ODD = "s3://us/\nFAKE\r\x1b[2J\x85\u2028\u202e\ud800x"
COMMIT = Commit("ab" * 32, "", datetime(2026, 7, 1, tzinfo=UTC), ODD, ODD, {})
HELD = Held(ODD, "Unsupported", ODD, ODD, since=ODD)
NOW = HeldNow(HELD, 1.0, "wait", 3, ODD)
LOST = Lost(ODD, ODD, ODD, (COMMIT,))
MOVES = Moves("eu", ("us",), (Move(ODD, ODD, ODD, (COMMIT,)),), {ODD: ODD})
SLOT = Slot("sterna_eu", False, "lost", 900, 0.9)
FOUND = Verified(1, 5, 50, 0, (Finding(ODD, "missing", ODD, ODD),), 1)
TEXTS: dict[str, Callable[[], str]] = {
    "verify": lambda: verified_text(FOUND, deep=True),
    "repair": lambda: repaired_text(
        Repaired(False, 2, (Mend(ODD, ODD, ODD, "copy", ODD),), (Left(ODD, ODD, ODD, ODD),), 2)
    ),
    "gc": lambda: collected_text(
        replace(COLLECTED, failures=(NotDeleted(ODD, ODD),), in_flight=(ODD,), still_shown=(ODD,)), evict=True
    ),
    "status": lambda: status_text(
        replace(
            STATUS,
            held=(NOW,),
            refused=(Refused(ODD, ODD, 1, 1),),
            short_retention=(ShortRetention(ODD, 1.0, 1.0),),
            unseen=(ODD,),
            problem=ODD,
            slots=(SLOT,),
            last_run=ODD,
        )
    ),
    "a held key": lambda: held_line(NOW),
    "a short retention": lambda: short_line(ShortRetention(ODD, 1.0, 1.0)),
    "sync": lambda: report_text(
        Report("r", "eu", "ab" * 32, "published", "cd", "ab" * 32, (ODD,), (HELD,), seconds=1), "main_replica_eu"
    ),
    "plan": lambda: plan_text(
        replace(
            EXPLAINED,
            actions=(ExplainedAction(ODD, "ICEBERG_TABLE", "put", 3, 4096, 2), ExplainedAction(ODD, "UDF", "drop")),
            held=(HELD,),
            origins={"us-lake": OriginSum(1, 3, 4096)},
        )
    ),
    "registry check": lambda: check_text(RegistryCheck(False, (Probe("eu", ODD, False, ODD),))),
    "moves": lambda: catalogs.moves_text(MOVES),
    "rejoined": lambda: catalogs.rejoined_text(
        Rejoined(Seeded("us", "eu", 1, "ab"), (LOST,)), [CameBack(ODD, problem=ODD)]
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
    Output(as_json=True).result(FOUND, "")
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed)["findings"][0]["file"] == ODD
