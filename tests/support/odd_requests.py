"""Requests as no client should send them, made of what an app says that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import quote

MARK = "q7Zmark"
"""Stands in texts that are sent, so that a log which repeats one is seen."""
ODD: tuple[str, ...] = (
    "",
    " ",
    "\0" + MARK,
    MARK,
    MARK + "\r\nSet-Cookie: a=b",
    MARK + "\u2028北\U0001f600",
    "[" + MARK,
    "(?<" + MARK,
    "{" + MARK,
    '"' + MARK + "'; --",
    "\\" + MARK,
    "%" + MARK,
    "../../" + MARK,
    MARK + "/" + MARK,
    "Mars/" + MARK,
    MARK * 200,
    "-1",
    "0",
    "1",
    "99",
    "-9223372036854775809",
    "9223372036854775807",
    "9999999999999999999",
    "9" * 400,
    "1e400",
    "1e-400",
    "0x10",
    "NaN",
    "-Infinity",
    "٣",
    "1.5",
    "9" * 38 + "." + "9" * 38,
    "true",
    "null",
    "2026-02-30",
    "0001-01-01",
    "9999-12-31",
    "10000-01-01",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59",
    "9999-12-31T23:59:59Z",
    "2026-W01-1",
    "2026-01-01T00:00:00+99:99",
    "infinity",
    "0" * 64,
    "0" * 64 + "-1",
    "f" * 64 + "-9999999",
)
RAW = ("%ED%A0%80", "%FF%FE", "%00", "%2F", "%2e%2e", "+", "%", "a&", "=")
"""Spellings that stand in an address as they are."""
BODIES: tuple[Any, ...] = (
    None, True, 1, 1e300, "", MARK, [], {}, [[]], {"a": 1}, [None], {MARK: MARK}, [MARK] * 3, [{"a": {"b": []}}],
)  # fmt: skip


@dataclass(frozen=True)
class Odd:
    """One request."""

    method: str
    address: str
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None


def odd_requests(schema: dict[str, Any], fixed: dict[str, str], more: dict[str, list[str]]) -> Iterator[Odd]:
    """Yield requests to each path of an app, each with one thing that is odd.

    Args:
        schema: the app's OpenAPI.
        fixed: what stands in for each parameter while another one is odd; those that aren't named are left out.
        more: parameters by path of which the app says nothing.
    """
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parameters = [(parameter["name"], parameter["in"]) for parameter in operation.get("parameters", ())]
            parameters += [(name, "query") for name in (*more.get(path, ()), MARK)]
            for name, place in parameters:
                filled = {other: fixed[other] for other, _ in parameters if other in fixed and other != name}
                for text in (*map(_quoted, ODD), *RAW):
                    yield _build_request(method, path, parameters, filled, name, place, text)
                if place == "query":
                    yield _build_request(method, path, parameters, filled, name, place, f"1&{name}=2")


def odd_bodies(names: tuple[str, ...], sound: dict[str, Any]) -> Iterator[Any]:
    """Yield bodies, and such as have what is odd in one of their fields, or within its lists.

    Args:
        names: of the fields.
        sound: a body with nothing odd.
    """
    yield from BODIES
    for name, value in product((*names, MARK), (*BODIES, *ODD)):
        yield {**sound, name: value}
        yield {**sound, name: [value]}
        inside = sound.get(name)
        if isinstance(inside, list) and inside and isinstance(inside[0], dict):
            for key in inside[0]:
                yield {**sound, name: [{**inside[0], key: value}]}


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _build_request(
    method: str, path: str, parameters: list[tuple[str, str]], filled: dict[str, str], name: str, place: str, text: str
) -> Odd:
    address, query, headers = path, [], dict[str, str]()
    places = dict(parameters)
    for other, value in (*filled.items(), (name, text)):
        if places[other] == "path":
            address = address.replace(f"{{{other}}}", value)
        elif places[other] == "query":
            query.append(f"{other}={value}")
        else:
            headers[other] = value
    return Odd(method.upper(), address + ("?" + "&".join(query) if query else ""), headers)
