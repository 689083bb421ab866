"""A message of a topic as a line of JSON; what is none becomes a line that a worker puts into the dead letters."""

from __future__ import annotations

import json

from sterna.errors import BadDrop, DropOverLimit
from sterna.ingest.check_json import check_line
from sterna.services.ingest import TenantLimits


def line_of(value: bytes | None, offset: int, limits: TenantLimits) -> bytes:
    """Return the line of a message: the row as it came, or a text, which is no row and says why it isn't.

    Args:
        value: what the message brings; None: a tombstone.
        offset: the message's.
        limits: of the tenant.
    """
    if value is None:
        return _dead(offset, "a message without a value", b"", limits)
    try:
        if len(value) > limits.line:
            raise DropOverLimit(f"{len(value)} bytes, {limits.line} are allowed (limits.line)")
        text = value.decode("utf-8")
        if "\n" in text or "\r" in text:
            json.loads(text)  # between values only: within a text JSON allows none
            text = text.replace("\r", " ").replace("\n", " ")
        check_line(text, limits, offset)
    except (BadDrop, DropOverLimit) as error:
        return _dead(offset, error.message, value, limits)
    except RecursionError:
        return _dead(offset, f"nested deeper than {limits.depth} (limits.depth)", value, limits)
    except ValueError:  # of JSON, and of UTF-8
        return _dead(offset, "no JSON", value, limits)
    return text.encode() + b"\n"


def _dead(offset: int, why: str, value: bytes, limits: TenantLimits) -> bytes:
    text = value[: limits.line].decode("utf-8", "backslashreplace")
    return json.dumps(f"offset {offset}: {why}: {text}").encode() + b"\n"
