"""The section `outlets` of the services file: what is right, and what is refused with its place."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sterna.errors import ServicesError
from sterna.services.load import parse_services
from sterna.services.outlets import Target

WHOLE = """\
outlets:
  pager:
    tables: [finance.**]
    regions: [eu]
    target:
      webhook: {url: "https://hooks.example.com/sterna?team=a", timeout: 10s}
    credential_id: pager_hook
    roles: [finance]
    give_up: 2d
  inside:
    target: {webhook: {url: "http://hooks.internal:8080/", allow_networks: [10.1.0.0/16, "fd00::/8"]}}
    credential_id: hook
"""


def test_what_may_be_said() -> None:
    read = parse_services(WHOLE, "s.yaml")
    assert read.configured == ["outlets"]
    assert [each.target.kind for each in read.outlets.values()] == ["webhook", "webhook"]
    pager, inside = read.outlets["pager"], read.outlets["inside"]
    assert (pager.give_up, pager.target.webhook.timeout) == (172_800, 10)
    assert pager.sends_from("eu") and not pager.sends_from("us") and inside.sends_from("us")
    assert (inside.tables, inside.give_up, inside.target.webhook.timeout) == (["**"], 86_400, 15)


REST = "    credential_id: b\n    target: {webhook: {url: 'https://a.example'}}"


@pytest.mark.parametrize(
    ("said", "line", "field"),
    [
        ("outlets: [a]", 1, "outlets"),
        ("outlets:\n  Pager: {}", 1, "outlets"),
        ("outlets:\n  a-b: {}", 1, "outlets"),
        ("outlets:\n  a: {credential_id: b}", 2, "outlets.a.target"),
        ("outlets:\n  a:\n    credential_id: b\n    target: {}", 4, "outlets.a.target.webhook"),
        ("outlets:\n  a:\n    target: {webhook: {url: 'https://a.example'}}", 2, "outlets.a.credential_id"),
        (f"outlets:\n  a:\n    give_up: soon\n{REST}", 3, "outlets.a.give_up"),
        (f"outlets:\n  a:\n    give_up: 0s\n{REST}", 3, "outlets.a.give_up"),
        (f"outlets:\n  a:\n    tables: []\n{REST}", 3, "outlets.a.tables"),
        (f"outlets:\n  a:\n    topic: t\n{REST}", 3, "outlets.a.topic"),
        (f"outlets:\n  a:\n    password: x\n{REST}", 3, "outlets.a.password"),
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
        parse_services(f"outlets: {{a: {{credential_id: b, target: {{webhook: {{url: '{url}'}}}}}}}}", "s.yaml")
    assert "webhook" in str(raised.value) and "hunter2" not in str(raised.value)


def test_http_is_for_the_loopback() -> None:
    assert Target.model_validate({"webhook": {"url": "http://localhost:8080/"}}).kind == "webhook"
    with pytest.raises(ValidationError):
        Target.model_validate({"webhook": {"url": "https://a.example", "allow_networks": ["10.0.0.1/8"]}})


@pytest.mark.parametrize("broker", ["kafka: {servers: ['b:1']}", "amqp: {host: b}"])
def test_brokers_are_refused_until_they_are_built(broker: str) -> None:
    with pytest.raises(ServicesError, match=r"outlets\.a\.target\.(kafka|amqp): "):
        parse_services(f"outlets: {{a: {{credential_id: b, target: {{{broker}}}}}}}", "s.yaml")
