"""The metrics that sterna reports, as the code has them: those of a gateway, and those that DAGs give to Airflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock, patch

from sterna.operations.measures import MEASURES
from sterna.serving.http import metrics
from sterna.serving.queries.counters import DURATION_BOUNDS_SECONDS

_AIRFLOW = Path(metrics.__file__).parents[2] / "airflow"
_TAKES = re.compile(r'stats\.(gauge|incr)\("(sterna\.\w+)"')


@dataclass(frozen=True)
class _Family:
    """A metric's name, description and labels, in place of one with numbers."""

    kind: str
    name: str
    text: str
    labels: Sequence[str] = ()

    def add_metric(self, *_: object) -> None:
        """Leave the numbers out."""

    @property
    def row(self) -> str:
        """Its line of the table."""
        labels = f"{{{','.join(self.labels)}}}" if self.labels else ""
        return f"| `{self.name}{labels}` | {self.kind} | {self.text} |"


def gateway_metrics_table() -> str:
    """Return the table of what a gateway with all of its services has under `/metrics`."""
    services = MagicMock()
    services.ingest.stopped_partitions = 0
    services.status.region, services.status.measures = "eu", []
    services.queries.counts.executions = [0] * (len(DURATION_BOUNDS_SECONDS) + 1)
    families: list[_Family] = []
    with ExitStack() as patches:
        patches.enter_context(patch.object(metrics, "CounterMetricFamily", partial(_Family, "counter")))
        patches.enter_context(patch.object(metrics, "GaugeMetricFamily", partial(_Family, "gauge")))
        patches.enter_context(patch.object(metrics, "HistogramMetricFamily", _histogram))
        patches.enter_context(patch.object(metrics, "generate_latest", lambda it: families.extend(it.collect())))
        metrics.metrics_text(metrics.Metrics(), services)
    return "\n".join(["| metric | kind | |", "|---|---|---|", *(family.row for family in families)])


def _histogram(name: str, text: str, *_: object) -> _Family:
    return _Family("histogram", name, text)


def airflow_metrics() -> dict[str, str]:
    """Return the kinds of all metrics that the code gives to Airflow, by their names."""
    texts = [path.read_text() for path in _AIRFLOW.glob("*.py")]
    calls = (call for text in texts for call in _TAKES.findall(text))
    kinds = {name: "counter" if method == "incr" else "gauge" for method, name in calls}
    return kinds | dict.fromkeys((f"sterna.{name}" for name in MEASURES), "gauge")
