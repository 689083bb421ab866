"""Messages of a topic as JSON lines: each is a row, or a text that goes to the dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.validate_json import check_line

_COMPACTED = "its topic lost this message before it was published, as compaction takes them out: its content is unknown"


def join_messages(
    first: int, offsets: Sequence[int], values: Sequence[bytes | None], limits: TenantLimits
) -> tuple[bytes, bool]:
    """Return messages as lines, and whether these are the messages as they came: then `format_line` is still due.

    That is only so where each is one line, of an allowed length, and no offset from the first on is missing.

    Args:
        first: the offset at which their range begins.
        offsets: of each.
        values: their bodies; None: a tombstone.
        limits: the tenant's limits for one line.
    """
    if offsets and None not in values and offsets[0] == first and offsets[-1] - first == len(offsets) - 1:
        content = b"\n".join(values) + b"\n"  # type: ignore[arg-type]
        has_lines = content.count(b"\n") == len(values) and b"\r" not in content
        if has_lines and max(map(len, values)) <= limits.line:  # type: ignore[arg-type]
            return content, True
    return format_lines(offsets, values, limits), False


def format_lines(offsets: Sequence[int], values: Sequence[bytes | None], limits: TenantLimits) -> bytes:
    """Return messages as lines of JSON, each as `format_line` makes it."""
    return b"".join(format_line(value, offset, limits) for offset, value in zip(offsets, values, strict=True))


def list_gaps(first: int, present: Sequence[int], end: int) -> list[tuple[int, int]]:
    """Return the stretches of a range of offsets that have no message, each with its first offset and the one behind.

    Args:
        first: the range's first offset.
        present: its offsets with a message, in order.
        end: the offset behind the range.
    """
    bounds = zip((first, *(offset + 1 for offset in present)), (*present, end), strict=True)
    return [(start, stop) for start, stop in bounds if start < stop]


def format_gone(gaps: Sequence[tuple[int, int]], count: int) -> bytes:
    """Return a string for each message that compaction took out of a range, which a worker writes to the dead letters.

    Args:
        gaps: as `list_gaps` returns them; also of what never was a message, such as control records.
        count: how many of their offsets had a message.
    """
    if sum(stop - start for start, stop in gaps) == count:
        places: Iterable[object] = chain.from_iterable(range(start, stop) for start, stop in gaps)
    else:
        places = repeat(f"{gaps[0][0]} to {gaps[-1][1] - 1}", count)
    lines = (json.dumps(f"offset {place}: {_COMPACTED}").encode() + b"\n" for place in places)
    return b"".join(lines)


def format_line(value: bytes | None, offset: int, limits: TenantLimits) -> bytes:
    """Return a message as a line of JSON: its row unchanged, or a string that a worker writes to the dead letters.

    Args:
        value: the message's value; None: a tombstone.
        offset: its offset, which the string names.
        limits: the tenant's limits for one line.
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
