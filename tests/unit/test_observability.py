"""What `deploy/observability` ships: each alert has its entry, each name is one of ours, and Airflow's names fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from sterna.operations.measures import MEASURES
from tests.support.metrics import airflow_metrics

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "observability"
RULES = [
    rule for group in yaml.safe_load((SHIPPED / "sterna-rules.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES = {f"sterna_{name}" for name in MEASURES} | {"sterna_status_up"}
BOOK = (ROOT / "docs" / "operations.md").read_text()


def anchor(heading: str) -> str:
    """Return the anchor that a heading has on GitHub's pages."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_each_alert_names_its_entry_of_the_run_book() -> None:
    headings = set(re.findall(r"^#+ (.+)$", BOOK, re.MULTILINE))
    for rule in RULES:
        annotations = rule["annotations"]
        assert annotations["entry"] in headings, rule["alert"]
        assert annotations["runbook"] == f"docs/operations.md#{anchor(annotations['entry'])}", rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_each_alarm_of_the_run_book_has_an_alert() -> None:
    alarms = BOOK.partition("\n## The lag alert\n")[2].partition("\n## ")[0]
    named = {rule["annotations"]["entry"] for rule in RULES}
    assert set(re.findall(r"^### (.+)$", alarms, re.MULTILINE)) <= named


def test_rules_and_panels_go_by_numbers_that_there_are() -> None:
    dashboard = json.loads((SHIPPED / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for expression in (*queries, *(rule["expr"] for rule in RULES)):
        used = set(re.findall(r"sterna_\w+", expression))
        assert used and used <= NAMES, expression


@pytest.mark.parametrize("prefix", ["", "airflow.", "prod.airflow-3."])
def test_airflows_metrics_get_the_names_of_a_gateway(prefix: str) -> None:
    mappings = yaml.safe_load((SHIPPED / "statsd-mapping.yaml").read_text())["mappings"]
    mapped = {}
    for name, kind in airflow_metrics().items():
        for mapping in mappings:
            match = re.fullmatch(mapping["match"], f"{prefix}{name}")
            if match and mapping["match_metric_type"] == kind:
                mapped[name] = re.sub(r"\$\{?1\}?", match[1], mapping["name"])
                break
    assert mapped.keys() == airflow_metrics().keys()
    assert {f"sterna_{name}" for name in MEASURES} <= set(mapped.values())
    assert mapped["sterna.copied_bytes"] == "sterna_copied_bytes_total"
