"""A statsd_exporter of Prometheus' makers, with the mapping that we ship."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from tests.support.built_programs import go_program

MAPPING = Path(__file__).parents[3] / "deploy" / "observability" / "statsd-mapping.yaml"
_PACKAGE = "github.com/prometheus/statsd_exporter"
_PROBLEM = re.compile("_(unmapped|conflict|error|errors)_total$")
_START_SECONDS = 60.0

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


@dataclass(frozen=True)
class StatsdExporter:
    """One that runs.

    Args:
        address: `host:port` of its `/metrics`.
        statsd_port: the UDP port that it takes metrics at.
    """

    address: str
    statsd_port: int

    def families(self) -> list[Metric]:
        """Return all metrics, as Prometheus' own parser reads them."""
        return list(text_string_to_metric_families(httpx.get(f"http://{self.address}/metrics").text))

    def samples(self, part: str = "sterna") -> Samples:
        """Return the values of all metrics with a part of a name."""
        samples = (sample for family in self.families() for sample in family.samples if part in sample.name)
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    def problems(self) -> Samples:
        """Return its own counts of what has no mapping, is refused, or conflicts; without those that are 0."""
        samples = self.samples("statsd_exporter_")
        return {key: value for key, value in samples.items() if value and _PROBLEM.search(key[0])}

    def send(self, *lines: str) -> None:
        """Send metrics as StatsD has them, each in a packet of its own."""
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            for line in lines:
                client.sendto(line.encode(), (LOOPBACK, self.statsd_port))


@contextmanager
def running_statsd_exporter(folder: Path, mapping: str = "") -> Iterator[StatsdExporter]:
    """Run a statsd_exporter; it is built at first.

    Args:
        folder: for its log and settings.
        mapping: another text than the mapping that we ship.
    """
    settings = folder / "mapping.yaml"
    settings.write_text(mapping or MAPPING.read_text())
    port, statsd_port = free_port(), free_port()
    command = [
        *(go_program("statsd_exporter", _PACKAGE), f"--statsd.mapping-config={settings}", "--statsd.listen-tcp="),
        *(f"--statsd.listen-udp={LOOPBACK}:{statsd_port}", f"--web.listen-address={LOOPBACK}:{port}"),
    ]
    process = start_process("statsd_exporter", command, log=folder / "log")
    try:
        wait_until_ready(process, lambda: _listens(port), timeout=_START_SECONDS)  # the UDP port is taken before
        yield StatsdExporter(f"{LOOPBACK}:{port}", statsd_port)
    finally:
        process.stop()


def _listens(port: int) -> bool:
    socket.create_connection((LOOPBACK, port)).close()
    return True
