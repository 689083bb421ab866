"""JSON lines, as they were uploaded: each a row that all parsers read alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, BinaryIO

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.strict_parsing import load_json

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def check_json(path: Path, limits: TenantLimits) -> int:
    """Return how many rows a file of JSON lines has; empty lines are none.

    Raises:
        BadDrop: a line is no JSON object, or one that readers take differently.
        DropOverLimit: there are too many rows, or one is too long or nested too deeply.
    """
    rows = number = 0
    with path.open("rb") as file:
        while line := _read_line(file, limits, number := number + 1):
            text = _decode_line(line, number)
            if not text.strip(" \t"):
                continue
            check_line(text, limits, number)
            rows += 1
            if rows > limits.rows:
                raise DropOverLimit(f"more than {limits.rows} rows (limits.rows)")
    if not rows:
        raise BadDrop("there are no rows")
    return rows


def _read_line(file: BinaryIO, limits: TenantLimits, number: int) -> bytes:
    line = file.readline(limits.line + 2)
    if len(line.rstrip(b"\r\n")) > limits.line:
        raise DropOverLimit(f"line {number} has more than {limits.line} bytes (limits.line)")
    return line


def _decode_line(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadDrop(f"line {number} is no UTF-8 from byte {error.start + 1} on") from None


def check_line(text: str, limits: TenantLimits, number: int) -> None:
    """See that a line is a JSON object that all parsers read alike.

    Args:
        text: the line, without its end.
        number: how messages call it.

    Raises:
        BadDrop, DropOverLimit: it isn't.
    """
    # Some readers take any carriage return for the end of a line.
    if "\r" in text:
        raise BadDrop(f"line {number} has a carriage return inside")
    try:
        row = load_json(text)
    except RecursionError:
        raise DropOverLimit(f"line {number} is nested deeper than {limits.depth} (limits.depth)") from None
    except json.JSONDecodeError as error:
        raise BadDrop(f"line {number} is no JSON from character {error.pos + 1} on: {error.msg}") from None
    except ValueError as error:
        raise BadDrop(f"line {number}: {error}") from None
    if not isinstance(row, dict):
        raise BadDrop(f"line {number} is no JSON object")
    if text.count("{") + text.count("[") > limits.depth and _depth(row) > limits.depth:
        raise DropOverLimit(f"line {number} is nested deeper than {limits.depth} (limits.depth)")
    if _SURROGATE.search(text) and not _encodable(row):
        raise BadDrop(f"line {number} has half of a surrogate pair")


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict | list):
            deepest = max(deepest, depth)
            children = node.values() if isinstance(node, dict) else node
            stack += [(child, depth + 1) for child in children]
    return deepest


def _encodable(row: dict[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
