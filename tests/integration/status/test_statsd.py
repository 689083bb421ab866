"""A real statsd_exporter with the mapping that we ship, to which Airflow's own client sends what DAGs report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sterna.airflow.metrics import to_tag
from sterna.operations.measures import MEASURES, region_measures
from sterna.servers.process import LOOPBACK
from tests.support.airflow_statistics import LIMITS, WATCH_ERRORS, region_status
from tests.support.metrics import airflow_metrics
from tests.support.servers.prometheus import RULES, panel_queries, running_prometheus
from tests.support.servers.statsd_exporter import MAPPING, Samples, StatsdExporter, running_statsd_exporter
from tests.support.sinks import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.rare]

ROOT = Path(__file__).parents[3]
# Labels of what a gateway doesn't have, or has without the region.
OWN_LABELS = {
    "sterna_copied_bytes_total": {"region"},
    "sterna_copied_from_bytes_total": {"region", "source"},
    "sterna_watch_errors_total": {"region"},
    "sterna_reconciler_failures_total": {"region", "kind", "name"},
    "sterna_reconciler_lag_seconds": {"region", "kind", "name"},
    "sterna_reconciler_blocked": {"region", "kind", "name"},
}


def one(name: str, value: float, /, **labels: str) -> Samples:
    return {(name, frozenset(labels.items())): value}


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatsdExporter]:
    """One that has got every metric once, by the settings that the run book names."""
    folder = tmp_path_factory.mktemp("statsd")
    with running_statsd_exporter(folder) as exporter:
        settings = {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": LOOPBACK,
            "AIRFLOW__METRICS__STATSD_PORT": str(exporter.statsd_port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "sterna",  # and none of Airflow's own
        }
        command = [sys.executable, "-m", "tests.support.airflow_statistics"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=True)
        last = one("sterna_watch_errors_total", WATCH_ERRORS, region="eu")
        wait_until(lambda: last.items() <= exporter.samples().items())
        yield exporter


def test_each_metric_has_its_number_under_the_names_of_a_gateway(exporter: StatsdExporter) -> None:
    expected = {
        (f"sterna_{measure.name}", frozenset({"region": "eu", **measure.labels}.items())): measure.value
        for measure in region_measures(region_status(), LIMITS)
    }
    assert expected[("sterna_objective_left", frozenset({("region", "eu"), ("policy", "1")}))] < 0
    for name in ("lag_seconds", "watermark_lag_seconds"):
        expected |= one(f"sterna_{name}", 1.5, region="us")
    still = ("held_lag_seconds", "transit_lag_seconds", "held_tables", "held_ignored_tables")
    for name in (*still, "transit_tables", "transit_bytes"):
        expected |= one(f"sterna_{name}", 0, region="us")
    expected |= {
        **one("sterna_copied_bytes_total", 10, region="us"),
        **one("sterna_copied_from_bytes_total", 7, region="us", source="ap"),
        **one("sterna_watch_errors_total", WATCH_ERRORS, region="eu"),
        **one("sterna_reconciler_failures_total", 1, region="eu", kind="cdc", name="shop/public.orders"),
        **one("sterna_reconciler_failures_total", 1, region="eu", kind="cdc", name=to_tag("shop/public.order lines")),
        **one("sterna_reconciler_failures_total", 1, region="eu", kind="features", name="clicks"),
        **one("sterna_reconciler_lag_seconds", 12.5, region="eu", kind="features", name="clicks"),
        **one("sterna_reconciler_blocked", 1, region="eu", kind="features", name="clicks"),
        **one("sterna_reconciler_blocked", 0, region="eu", kind="features", name="buys"),
    }
    assert exporter.samples() == pytest.approx(expected, rel=1e-4)  # ages of a month go on


def test_each_metric_has_the_kind_and_the_labels_that_the_pages_say(exporter: StatsdExporter) -> None:
    seen = {
        sample.name: (family.type, sample.labels.keys())
        for family in exporter.families()
        for sample in family.samples
        if "sterna" in sample.name
    }
    assert seen == documented()
    assert {name for name in seen if name.removeprefix("sterna_") in MEASURES} == {
        f"sterna_{name}" for name in MEASURES
    }


def documented() -> dict[str, tuple[str, set[str]]]:
    """Return the kind and the labels of what the pages list for Airflow, by the names of a gateway."""
    gateway = (ROOT / "docs" / "metrics.md").read_text()
    labels = {name: set(text.split(",")) for name, text in re.findall(r"^\| `(\w+)\{(.+)\}` \|", gateway, re.M)}
    kinds = dict(re.findall(r"^\| `(sterna\.\w+)` \| (\w+) \|", (ROOT / "docs" / "airflow.md").read_text(), re.M))
    assert kinds == airflow_metrics()
    names = {name.replace(".", "_") + ("_total" if kind == "counter" else ""): kind for name, kind in kinds.items()}
    return {name: (kind, OWN_LABELS.get(name) or labels[name]) for name, kind in names.items()}


def test_nothing_is_refused_or_falls_to_a_name_of_its_own(exporter: StatsdExporter) -> None:
    assert exporter.problems() == {}


def test_alerts_and_panels_go_by_what_airflow_reports(exporter: StatsdExporter, tmp_path: Path) -> None:
    known = {name for name, _ in exporter.samples()}
    rules = (RULES / "sterna-rules.yaml").read_text()
    expressions = [rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    expressions += [expression for _, expression in panel_queries()]
    # Only a gateway reads the status for others.
    assert set(re.findall(r"sterna_\w+", json.dumps(expressions))) - known == {"sterna_status_up"}
    fired = {"SternaHeld", "SternaObjectiveBurning", "SternaObjectiveUnknown", "SternaSlot", "SternaAlarm"}
    with running_prometheus(tmp_path, [exporter.address]) as prometheus:
        wait_until(lambda: fired <= prometheus.alerts().keys(), seconds=30)
        assert [title for title, expression in panel_queries() if not prometheus.query(expression)] == []


def test_a_number_that_is_reported_no_more_is_forgotten_and_a_count_stays(tmp_path: Path) -> None:
    text = MAPPING.read_text()
    assert text.count("15m") == 1
    with running_statsd_exporter(tmp_path, text.replace("15m", "1s")) as exporter:
        exporter.send("airflow.sterna.alarms,region=eu:1|g", "airflow.sterna.watch_errors,region=eu:1|c")
        wait_until(lambda: len(exporter.samples()) == 2)
        wait_until(lambda: exporter.samples() == one("sterna_watch_errors_total", 1, region="eu"))


@pytest.mark.parametrize("prefix", ["", "airflow.", "prod.airflow-3."])
def test_airflow_may_have_any_prefix(tmp_path: Path, prefix: str) -> None:
    with running_statsd_exporter(tmp_path) as exporter:
        exporter.send(f"{prefix}sterna.alarms,region=eu:3|g")
        wait_until(lambda: exporter.samples() == one("sterna_alarms", 3, region="eu"))
        assert exporter.problems() == {}
