"""SIGKILL at every boundary of a stage and in the middle of each.

Run again, and nothing is lost, sent twice or committed twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.errors import ReferenceNotFound
from tests.support.faults.killed import POINTS
from tests.support.faults.pair import BRANCH, Pair

_ROOT = Path(__file__).parents[2]
outputs: list[str] = []
# Points that are passed many times: the first time, and later ones.
_CALLS = {"while metadata is read": (1, 3, 6), "while the plan is written": (2, 4), "while Nessie is asked": (1, 4, 7)}


def killed_at(pair: Pair, point: str, call: int) -> None:
    command = [sys.executable, "-m", "tests.support.faults.killed", str(pair.stage.registry), point, str(call)]
    child = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, (child.returncode, child.stderr)
    outputs.append(child.stdout + child.stderr)


def head(pair: Pair) -> str:
    try:
        return pair.catalog.reference(BRANCH).hash
    except ReferenceNotFound:
        return ""


@pytest.mark.parametrize(("point", "call"), [(point, call) for point in POINTS for call in _CALLS.get(point, (1,))])
def test_whoever_is_killed_anywhere_is_taken_up_by_the_next_run(pair: Pair, point: str, call: int) -> None:
    tables = [pair.create(), pair.create()]
    pair.append(tables[0])
    before, mark = head(pair), len(pair.stage.endpoints["eu"].requests())
    killed_at(pair, point, call)
    published = head(pair) != before
    nothing_sent_again = pair.nothing_sent_again(mark)
    assert published == (point in ("after the commit", "before the report", "after the report")), (
        "half a sync is never seen"
    )
    report = pair.sync()
    assert report.held == ()
    assert report.outcome == ("idle" if published else "published")
    pair.assert_equal()
    assert pair.copied(mark) and nothing_sent_again()
    assert pair.sync().outcome == "idle"


def test_killed_again_and_again_it_still_gets_ahead(pair: Pair) -> None:
    pair.create()
    for point in (
        "after the plan is written",
        "after rclone has ended",
        "before localizing",
        "after localizing",
        "before the commit",
    ):
        killed_at(pair, point, 1)
    assert pair.sync().outcome == "published"
    pair.assert_equal()
    pair.assert_no_secret(*outputs)
