"""The section `sinks` of the services file: what is right, and what is refused with its place."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sterna.config.sections.load import parse_services
from sterna.config.sections.sinks import Target
from sterna.errors import ServicesError

WHOLE = """\
sinks:
  pager:
    tables: [finance.**]
    regions: [eu]
    target:
      webhook: {url: "https://hooks.example.com/sterna?team=a", timeout: 10s}
    credential_id: pager_hook
    roles: [finance]
    retry_timeout: 2d
  inside:
    target: {webhook: {url: "http://hooks.internal:8080/", allow_networks: [10.1.0.0/16, "fd00::/8"]}}
    credential_id: hook
  stream:
    target: {kafka: {servers: [k1.example.com:9093, "[fd00::1]:9093"], topic: fresh.tables, mechanism: SCRAM-SHA-512}}
    credential_id: kafka
  bus:
    target: {amqp: {host: bus.servicebus.windows.net}}
    credential_id: bus
  plain:
    target: {amqp: {host: 127.0.0.1, port: 5672, topic: "fresh::queue", tls: false}}
"""


def test_what_may_be_said() -> None:
    read = parse_services(WHOLE, "s.yaml")
    assert read.configured_sections == ["sinks"]
    assert [outlet.target.kind for outlet in read.sinks.values()] == ["webhook", "webhook", "kafka", "amqp", "amqp"]
    pager, inside, stream, bus, _ = read.sinks.values()
    assert (pager.retry_timeout, pager.target.webhook and pager.target.webhook.timeout) == (172_800, 10)
    assert pager.sends_from("eu") and not pager.sends_from("us") and inside.sends_from("us")
    assert (inside.tables, inside.retry_timeout) == (["**"], 86_400)
    assert stream.target.kafka and (stream.target.kafka.topic, stream.target.kafka.tls) == ("fresh.tables", True)
    target = bus.target.amqp
    assert target and (target.topic, target.port, target.tls) == ("iceberg.table.updates", 5671, True)


REST = "    credential_id: b\n    target: {webhook: {url: 'https://a.example'}}"


@pytest.mark.parametrize(
    ("said", "line", "field"),
    [
        ("sinks: [a]", 1, "sinks"),
        ("sinks:\n  Pager: {}", 1, "sinks"),
        ("sinks:\n  a-b: {}", 1, "sinks"),
        ("sinks:\n  a: {credential_id: b}", 2, "sinks.a.target"),
        ("sinks:\n  a:\n    credential_id: b\n    target: {}", 4, "sinks.a.target"),
        ("sinks:\n  a:\n    target: {webhook: {url: 'https://a.example'}}", 2, "sinks.a"),
        ("sinks:\n  a:\n    target: {webhook: {url: 'https://a.b'}, amqp: {host: b}}", 3, "sinks.a.target"),
        ("sinks:\n  a:\n    target:\n      pulsar: {}", 4, "sinks.a.target.pulsar"),
        ("sinks:\n  a:\n    target: {amqp: {host: 'b c'}}", 3, "sinks.a.target.amqp.host"),
        ("sinks:\n  a:\n    target: {amqp: {host: b, port: 0}}", 3, "sinks.a.target.amqp.port"),
        ("sinks:\n  a:\n    target: {amqp: {host: b, topic: a b}}", 3, "sinks.a.target.amqp.topic"),
        ("sinks:\n  a:\n    target: {amqp: {host: 10.0.0.1}}", 3, "sinks.a.target.amqp"),
        ("sinks:\n  a:\n    target: {amqp: {host: 'u:p@b'}}", 3, "sinks.a.target.amqp.host"),
        ("sinks:\n  a:\n    target: {kafka: {servers: []}}", 3, "sinks.a.target.kafka.servers"),
        ("sinks:\n  a:\n    target: {kafka: {servers: [b]}}", 3, "sinks.a.target.kafka.servers"),
        ("sinks:\n  a:\n    target: {kafka: {servers: ['b:0']}}", 3, "sinks.a.target.kafka.servers"),
        ("sinks:\n  a:\n    target: {kafka: {servers: ['b:1,c:1']}}", 3, "sinks.a.target.kafka.servers"),
        ("sinks:\n  a:\n    target: {kafka: {servers: ['b:1'], topic: a/b}}", 3, "sinks.a.target.kafka.topic"),
        (
            "sinks:\n  a:\n    target: {kafka: {servers: ['b:1'], mechanism: GSSAPI}}",
            3,
            "sinks.a.target.kafka.mechanism",
        ),
        ("sinks:\n  a:\n    credential_id: x\n    target: {kafka: {servers: ['b:1'], tls: false}}", 2, "sinks.a"),
        ("sinks:\n  a:\n    credential_id: x\n    target: {amqp: {host: b, tls: false}}", 2, "sinks.a"),
        (f"sinks:\n  a:\n    retry_timeout: soon\n{REST}", 3, "sinks.a.retry_timeout"),
        (f"sinks:\n  a:\n    retry_timeout: 0s\n{REST}", 3, "sinks.a.retry_timeout"),
        (f"sinks:\n  a:\n    tables: []\n{REST}", 3, "sinks.a.tables"),
        (f"sinks:\n  a:\n    topic: t\n{REST}", 3, "sinks.a.topic"),
        (f"sinks:\n  a:\n    password: x\n{REST}", 3, "sinks.a.password"),
    ],
)
def test_what_is_refused_with_its_place(said: str, line: int, field: str) -> None:
    with pytest.raises(ServicesError) as raised:
        parse_services(said, "s.yaml")
    assert str(raised.value).startswith(f"s.yaml:{line}: {field}: "), str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "a.example",
        "https://",
        "https://user:hunter2@a.example/",
        "https://a.example/#x",
        "https://a.example:port/",
        "https://a.example/\u00fc",
        "https://a_b/",
        "http://a.example/",
        "https://a.example/" + "x" * 2000,
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ServicesError) as raised:
        parse_services(f"sinks: {{a: {{credential_id: b, target: {{webhook: {{url: '{url}'}}}}}}}}", "s.yaml")
    assert "webhook" in str(raised.value) and "hunter2" not in str(raised.value)


def test_http_is_for_the_loopback() -> None:
    assert Target.model_validate({"webhook": {"url": "http://localhost:8080/"}}).kind == "webhook"
    with pytest.raises(ValidationError):
        Target.model_validate({"webhook": {"url": "https://a.example", "allow_networks": ["10.0.0.1/8"]}})
