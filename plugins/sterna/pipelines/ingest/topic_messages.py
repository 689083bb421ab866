"""A message of a topic as a line of JSON; what is none becomes a line that a worker puts into the dead letters."""

from __future__ import annotations

import json

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.validate_json import check_line


def format_line(value: bytes | None, offset: int, limits: TenantLimits) -> bytes:
    """Return the line of a message: the row as it came, or a text, which is no row and says why it isn't.

    Args:
        value: what the message brings; None: a tombstone.
        offset: the message's.
        limits: of the tenant.
    """
    if value is None:
        return _dead_letter_line(offset, "a message without a value", b"", limits)
    try:
        if len(value) > limits.line:
            raise DropOverLimit(f"{len(value)} bytes, {limits.line} are allowed (limits.line)")
        text = value.decode("utf-8")
        if "\n" in text or "\r" in text:
            json.loads(text)  # between values only: within a text JSON allows none
            text = text.replace("\r", " ").replace("\n", " ")
        check_line(text, limits, offset)
    except (BadDrop, DropOverLimit) as error:
        return _dead_letter_line(offset, error.message, value, limits)
    except RecursionError:
        return _dead_letter_line(offset, f"nested deeper than {limits.depth} (limits.depth)", value, limits)
    except ValueError:  # of JSON, and of UTF-8
        return _dead_letter_line(offset, "no JSON", value, limits)
    return text.encode() + b"\n"


def _dead_letter_line(offset: int, reason: str, value: bytes, limits: TenantLimits) -> bytes:
    text = value[: limits.line].decode("utf-8", "backslashreplace")
    return json.dumps(f"offset {offset}: {reason}: {text}").encode() + b"\n"
