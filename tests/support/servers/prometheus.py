"""A Prometheus of Debian's package, unpacked and not installed, and its promtool."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from sterna.servers.process import free_port
from tests.support.debian import environment, unpacked

RULES = Path(__file__).parents[3] / "deploy" / "observability"
_START_SECONDS = 60.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", answer
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def alerts(self) -> dict[str, str]:
        """Return the state of each alert that isn't quiet, by its name."""
        answer = httpx.get(f"{self.url}/api/v1/alerts").json()
        return {alert["labels"]["alertname"]: alert["state"] for alert in answer["data"]["alerts"]}


def promtool(*arguments: str) -> str:
    """Run promtool and return what it prints; AssertionError where it fails."""
    root = unpacked("prometheus")
    done = subprocess.run(
        [root / "usr" / "bin" / "promtool", *arguments],
        cwd=RULES,
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def panel_queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel of the dashboard, and each of its queries, for all regions."""
    dashboard = json.loads((RULES / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$region", ".*", target["expr"])


@contextmanager
def running_prometheus(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run a Prometheus over some targets, with our rules, each of which fires at once.

    Args:
        folder: an empty one, for its data and settings.
        targets: `host:port` of what it reads.
    """
    rules = yaml.safe_load((RULES / "sterna-rules.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule.pop("for", None)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    settings = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "sterna", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    port, root = free_port(), unpacked("prometheus")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(root / "usr" / "bin" / "prometheus", f"--config.file={folder / 'prometheus.yaml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
            ],
            env=environment(root),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/-/ready").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(_POLL_SECONDS)
    raise TimeoutError("Prometheus doesn't come up")
