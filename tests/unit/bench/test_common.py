"""What benches say of what they measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.common import RESULTS_VARIABLE, Result, alternate, kind_of, latest, report
from bench.plot import draw
from bench.table import END, START, write_table


def result(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "name": "scale",
        "case": "10 entries",
        "goal": 3.0,
        "bound": "at least",
        "unit": "times",
        "sides": {"ours": (1.0, 2.0, 1.0), "rival <1>": (4.0, 4.0, 3.0)},
    }
    return Result(**{**fields, **changes})


def test_the_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    assert result().ratio == 3.0  # of 4, 2 and 3; that of the medians would be 4
    assert result().figure == 3.0


@pytest.mark.parametrize(
    ("goal", "bound", "unit", "met"), [(3.1, "at least", "times", False), (3.0, "at least", "times", True)]
)
def test_a_goal_in_times_is_held_against_the_ratio(goal: float, bound: str, unit: str, met: bool) -> None:
    assert result(goal=goal, bound=bound, unit=unit).met is met


@pytest.mark.parametrize(("goal", "met"), [(0.9, False), (1.0, True)])
def test_a_goal_in_seconds_is_held_against_our_median(goal: float, met: bool) -> None:
    measured = result(goal=goal, bound="at most", unit="s")
    assert measured.met is met
    assert measured.ratio is None


def test_what_was_measured_otherwise_stands_for_the_sides() -> None:
    assert not result(goal=5.0, bound="at most", unit="MiB", measured=6.0).met


def test_sides_run_in_turn_and_the_warm_up_does_not_count() -> None:
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return float(len(order))

    timings = alternate({"a": lambda: run("a"), "b": lambda: run("b")}, 2, lambda line: None)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert timings == {"a": (3.0, 5.0), "b": (4.0, 6.0)}


def test_a_report_is_one_line_and_the_last_one_of_a_case_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path))
    for changes in ({}, {"case": "20 entries"}, {"goal": 9.0}):
        report(result(**changes))
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["case"], line["met"]) for line in printed] == [
        ("10 entries", True),
        ("20 entries", True),
        ("10 entries", False),
    ]
    assert latest(tmp_path / "scale.json") == [printed[2], printed[1]]
    assert latest(tmp_path / "place.json") == []
    assert (tmp_path / "scale.svg").read_text() == draw([printed[2], printed[1]])


def test_a_plot_names_every_side_and_longer_bars_are_larger_figures() -> None:
    tree = ElementTree.fromstring(draw([result().as_json()]))
    texts = [element.text or "" for element in tree.findall(".//{*}text")]
    assert {"ours", "rival <1>"} <= set(texts)
    assert any("goal at least 3 times: met" in text for text in texts)
    ours, rival = [
        float(element.attrib["width"]) for element in tree.findall(".//{*}rect") if element.attrib["fill"] != "white"
    ]
    assert rival == pytest.approx(4 * ours, abs=0.1)


def test_the_table_says_what_was_measured_and_what_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path))
    report(result(case="1000000 entries", goal=10.0))
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    write_table(readme, tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    rows = {tuple(cell.strip() for cell in line.split("|")[1:4]) for line in text.splitlines() if line.startswith("| ")}
    assert ("scale", "1000000 entries", "3 times, **missed**") in rows
    assert ("place", "4 manifests of 100 entries", "not yet measured") in rows


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["python", "-m", "pyspark.daemon", "pyspark.worker"], "worker"),
        (["/opt/java/bin/java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit"], "jvm"),
        (["/opt/java/bin/java", "-jar", "nessie-quarkus-runner.jar"], "nessie"),
        (["rclone", "serve", "s3", "--addr", "x"], "endpoint"),
        (["rclone", "copy", "a:", "b:"], "rclone"),
        (["sleep", "1"], "other"),
    ],
)
def test_processes_are_told_apart_by_their_command(command: list[str], kind: str) -> None:
    assert kind_of(command) == kind
