"""Traces of syncs and of requests, from real commands over a real Nessie to a collector that decodes OTLP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sterna.servers.process import free_port
from tests.support.command import STERNA, gateway_url
from tests.support.nessie_world import nessie_world
from tests.support.otlp import Collector, collector
from tests.support.small_world import World

_SECONDS = 120
_STAGES = ("sterna.plan", "sterna.copy", "sterna.localize", "sterna.publish")
_TRACE, _CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_SECRET = "hunter2"


@dataclass(frozen=True)
class Site:
    """Region eu beside a real Nessie, for commands in processes of their own."""

    world: World
    registry: Path

    def command(self, *arguments: str) -> list[str]:
        return [*STERNA, *arguments, "--region", "eu", "--registry", str(self.registry)]

    def run(self, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command whose only variables `OTEL_*` are those given."""
        return subprocess.run(
            self.command(*arguments), env=clean(environment), capture_output=True, text=True, timeout=_SECONDS
        )

    def head(self, branch: str) -> str:
        return self.world.catalog.reference(branch).hash


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**inherited, **environment}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("traces")
    with nessie_world(folder) as (world, uri):
        document = world.registry.model_dump(mode="json")
        for region in document["regions"]:
            region["catalog"] = {"read": uri}
        registry = folder / "registry.json"
        registry.write_text(json.dumps(document))
        yield Site(world, registry)


def require_one_trace(received: Collector, source_hash: str) -> None:
    """Require a sync's span with one of each stage below it, all about a commit of `main`, and without names."""
    sync = received.one("sterna.sync")
    assert (sync.parent, sync.failed, sync.attributes["sterna.outcome"]) == ("", False, "published")
    for span in map(received.one, _STAGES):
        assert (span.trace, span.parent, span.failed) == (sync.trace, sync.id, False)
    for span in received.spans:
        assert span.attributes["sterna.region"] == "eu"
        assert span.attributes["sterna.branch"] == "main_replica_eu"
        assert span.attributes["sterna.source_hash"] == source_hash
        assert "ns" not in span.text.replace("sterna", "").split('"') and "file:" not in span.text
    assert len({span.attributes["sterna.run_id"] for span in received.spans}) == 1


def test_a_sync_has_a_span_a_stage_with_the_commit_and_counts(site: Site) -> None:
    head = site.world.commit(a=site.world.write("a"))
    with collector() as received:
        ended = site.run(received.environment, "sync", "--json")
        assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    require_one_trace(received, head)
    assert received.one("sterna.sync").attributes["sterna.run_id"] == report["run_id"]
    assert received.one("sterna.plan").attributes["sterna.outcome"] == "planned"
    copy = received.one("sterna.copy").attributes
    assert (copy["sterna.batch"], copy["sterna.files"], copy["sterna.failed"]) == (0, 1, 0)
    assert copy["sterna.bytes"] == report["copied"]["bytes"] > 0
    assert received.one("sterna.localize").attributes["sterna.files"] == report["localized"]["files"] > 0
    publish = received.one("sterna.publish").attributes
    assert publish["sterna.published"] == len(report["published"])
    assert publish["sterna.replica_hash"] == site.head("main_replica_eu")
    assert {resource["service.name"] for resource in received.resources} == {"sterna"}


def test_a_follower_has_a_trace_a_sync(site: Site) -> None:
    head = site.world.commit(b=site.world.write("b"))
    with collector() as received:
        environment = clean({**received.environment, "OTEL_SERVICE_NAME": "follower", "OTEL_BSP_SCHEDULE_DELAY": "100"})
        command = site.command("follow", "--poll", "0.1", "--json")
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            published = json.loads(process.stdout.readline())
            received.wait_until(lambda: received.named("sterna.sync"))  # a signal would interrupt it
            process.send_signal(signal.SIGTERM)
            assert process.wait(_SECONDS) == 0
    assert published["source_hash"] == head
    require_one_trace(received, head)
    assert {resource["service.name"] for resource in received.resources} == {"follower"}


def test_a_request_has_a_span_in_the_caller_s_trace_and_no_secret_in_it(site: Site, tmp_path: Path) -> None:
    with collector() as received:
        log = tmp_path / "log"
        with log.open("w") as stderr:
            command = site.command("serve", "--port", "0")
            process = subprocess.Popen(command, env=clean(received.environment), cwd=tmp_path, stderr=stderr)
        try:
            url = gateway_url(log, process)
            headers = {"traceparent": f"00-{_TRACE}-{_CALLER}-01", "Authorization": f"Bearer {_SECRET}"}
            answer = httpx.get(f"{url}/v1/changes/{_SECRET}", params={"token": _SECRET}, headers=headers)
            assert answer.status_code == 404
            assert (
                httpx.get(f"{url}/metrics", headers={"traceparent": _SECRET, "tracestate": f"{_SECRET}=="}).status_code
                == 200
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_SECONDS)
    missing, metrics = received.one("GET other"), received.one("GET /metrics")
    assert (missing.trace, missing.parent, missing.kind) == (_TRACE, _CALLER, Span.SPAN_KIND_SERVER)
    assert metrics.parent == "" and metrics.trace != _TRACE
    assert missing.attributes == {
        "sterna.region": "eu",
        "sterna.request_id": answer.headers["x-request-id"],
        "http.request.method": "GET",
        "http.route": "other",
        "http.response.status_code": 404,
    }
    assert not any(_SECRET in span.text for span in received.spans)


def test_a_sync_that_fails_has_the_error_s_name_and_not_its_text(site: Site, tmp_path: Path) -> None:
    document = json.loads(site.registry.read_text())
    for region in document["regions"]:
        region["catalog"] = {"read": f"http://127.0.0.1:{free_port()}/api/v2"}
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(document))
    with collector() as received:
        ended = Site(site.world, registry).run(received.environment, "sync", "--json")
        assert ended.returncode != 0
    error = json.loads(ended.stderr.splitlines()[-1])["error"]
    for name in ("sterna.sync", "sterna.plan"):
        span = received.one(name)
        assert span.failed and span.attributes["error.type"] == error
        assert "127.0.0.1" not in span.text and "Traceback" not in span.text


@pytest.mark.parametrize(
    "kind", ["refuses", "takes no such headers", "is silent", "over gRPC", "isn't installed", "speaks nothing known"]
)
def test_a_collector_that_is_dead_keeps_no_sync_from_being_done(site: Site, kind: str) -> None:
    head = site.world.commit(c=site.world.write("c"))
    nobody = f"http://key:{_SECRET}@127.0.0.1:{free_port()}"
    with collector(answers=False) as silent:
        environment, told = {
            "refuses": ({**silent.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": nobody}, "exporting traces fails"),
            "takes no such headers": (
                {**silent.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": nobody, "OTEL_EXPORTER_OTLP_HEADERS": _SECRET},
                "exporting traces fails: see the variables OTEL_*",
            ),
            "is silent": ({**silent.environment, "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}, "takes too long"),
            "over gRPC": ({"OTEL_EXPORTER_OTLP_ENDPOINT": nobody}, "traces"),
            "isn't installed": ({"OTEL_TRACES_EXPORTER": "zipkin"}, "the exporter zipkin is missing"),
            "speaks nothing known": (
                {"OTEL_EXPORTER_OTLP_ENDPOINT": nobody, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
                "the exporter otlp over http/json is missing",
            ),
        }[kind]
        ended = site.run(environment, "sync", "--json")
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["outcome"], report["source_hash"]) == ("published", head)
    assert told in ended.stderr
    assert _SECRET not in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("variables", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_without_an_exporter_nothing_of_opentelemetry_is_imported(site: Site, variables: dict[str, str]) -> None:
    if variables.get("OTEL_SDK_DISABLED"):
        variables = {**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    code = (
        "import sys\nfrom sterna.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    site.world.commit(d=site.world.write("d"))
    arguments = site.command("sync")[len(STERNA) :]
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=clean(variables), capture_output=True, text=True, timeout=_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"
