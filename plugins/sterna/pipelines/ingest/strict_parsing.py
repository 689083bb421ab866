"""Values that JSON writes as texts, parsed strictly: a text that isn't exactly one is refused; pure.

The standard library's own readers take more: spaces, `_`, digits of other scripts, weeks, and they cut nanoseconds. So
a text is held against its form first, and the library is handed what is in that form alone.

Sources: RFC 3339 and ISO 8601 (calendar dates, in the extended format), RFC 8259 (numbers), RFC 9562 (UUIDs), RFC 4648
section 3.5 (base64 whose last bits are zero).
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-9]{2}(?::[0-9]{2}(?:\.(?P<fraction>[0-9]+))?)?")
_OFFSET = r"(?P<offset>Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_TIMESTAMP = re.compile(rf"{_DATE.pattern}[T ]{_TIME.pattern}{_OFFSET}?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MICROSECOND_DIGITS = 6
_MAX_NUMBER_LENGTH = 1_000  # letters: a decimal has 38 digits, and reading one takes the square of its length


class BadValue(ValueError):
    """A value that its column doesn't take.

    Args:
        text: why; it shows nothing of the value.
        path: of the field that has it, from the value down; "": the value itself.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path

    def nested_in(self, name: str) -> BadValue:
        """Return the same of the value that this one is a field of."""
        return BadValue(str(self), f"{name}.{self.path}" if self.path else name)


def load_json(text: str, **options: Any) -> Any:
    """Return a value that all parsers of JSON read alike.

    Args:
        options: of `json.loads`.

    Raises:
        BadValue: an object has a name twice, or a number is none of JSON.
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_build_object, parse_constant=_refuse_constant, **options)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BadValue("an object has a name twice")
    return members


def _refuse_constant(name: str) -> Any:
    raise BadValue(f"{name} is no number of JSON")


def read_date(text: str) -> date:
    """Return a date.

    Raises:
        BadValue: it is none such as 2026-11-23.
    """
    _match_form(_DATE, text, "no date such as 2026-11-23")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadValue("no date of the calendar") from None


def read_time(text: str) -> time:
    """Return a time of the day.

    Raises:
        BadValue: it is none such as 10:00:00, or has more than microseconds.
    """
    match = _match_form(_TIME, text, "no time of the day such as 10:00:00")
    _require_microseconds(match)
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise BadValue("no time of the day") from None


def read_timestamp(text: str, *, zoned: bool) -> datetime:
    """Return a point in time, in UTC where it has an offset.

    Args:
        zoned: it has to have an offset; else it has none.

    Raises:
        BadValue: it is none such as 2026-11-23T10:00:00, or has more than microseconds.
    """
    match = _match_form(_TIMESTAMP, text, "no time such as 2026-11-23T10:00:00")
    if zoned != (match["offset"] is not None):
        raise BadValue("a time needs its offset here" if zoned else "a time has no offset here")
    _require_microseconds(match)
    try:
        timestamp = datetime.fromisoformat(text)
        return timestamp.astimezone(UTC) if zoned else timestamp
    except (ValueError, OverflowError):  # of no calendar, or in UTC at either end of it
        raise BadValue("no time such as 2026-11-23T10:00:00 in UTC") from None


def _match_form(form: re.Pattern[str], text: str, refusal: str) -> re.Match[str]:
    match = form.fullmatch(text)
    if match is None:
        raise BadValue(refusal)
    return match


def _require_microseconds(match: re.Match[str]) -> None:
    if (match["fraction"] or "")[_MICROSECOND_DIGITS:].strip("0"):
        raise BadValue("more than microseconds")


def read_decimal(text: str) -> Decimal:
    """Return a number.

    Raises:
        BadValue: it isn't written as JSON writes one.
    """
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        raise BadValue("no number as JSON writes one")
    return Decimal(text)


def read_integer(text: str) -> int:
    """Return a whole number.

    Raises:
        BadValue: it isn't written as JSON writes one.
    """
    if len(text) > _MAX_NUMBER_LENGTH or not _INTEGER.fullmatch(text):
        raise BadValue("no whole number as JSON writes one")
    return int(text)


def read_uuid(text: str) -> str:
    """Return a UUID in its usual form.

    Raises:
        BadValue: it is none.
    """
    if not _UUID.fullmatch(text):
        raise BadValue("no UUID")
    return text.lower()


def read_base64(text: str) -> bytes:
    """Return bytes.

    Raises:
        BadValue: it is no base64, or not the only one of these bytes.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise BadValue("no base64") from None
    if base64.b64encode(data).decode() != text:
        raise BadValue("no base64")
    return data
