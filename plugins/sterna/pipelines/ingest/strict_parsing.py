"""Values that JSON writes as texts, parsed strictly: a text that isn't exactly one is refused; pure.

The standard library's own readers take more: spaces, `_`, digits of other scripts, weeks, and they cut nanoseconds. So
a text is held against its form first, and the library is handed what is in that form alone.

Sources: RFC 3339 and ISO 8601 (calendar dates, in the extended format), RFC 8259 (numbers), RFC 9562 (UUIDs), RFC 4648
section 3.5 (base64 whose last bits are zero).
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
_TIME = re.compile(_CLOCK)
_TIMESTAMP = re.compile(rf"({_DATE.pattern})[T ]({_CLOCK})(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MICROSECOND_DIGITS = 6
_MAX_NUMBER_LENGTH = 1_000  # letters: a decimal has 38 digits, and reading one takes the square of its length


class InvalidText(ValueError):
    """A text that isn't a value of its type; the message shows nothing of it."""


def read_date(text: str) -> date:
    """Return a date.

    Raises:
        InvalidText: it is none such as 2026-11-23.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise InvalidText("no date such as 2026-11-23")
    try:
        return date(*(int(part) for part in match.groups()))
    except ValueError:
        raise InvalidText("no date of the calendar") from None


def read_time(text: str) -> time:
    """Return a time of the day.

    Raises:
        InvalidText: it is none such as 10:00:00, or has more than microseconds.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidText("no time of the day such as 10:00:00")
    hour, minute, second, fraction = match.groups()
    try:
        return time(int(hour), int(minute), int(second or 0), _microseconds(fraction or ""))
    except InvalidText:
        raise
    except ValueError:
        raise InvalidText("no time of the day") from None


def read_timestamp(text: str, *, zoned: bool) -> datetime:
    """Return a point in time, in UTC where it has an offset.

    Args:
        zoned: it has to have an offset; else it has none.

    Raises:
        InvalidText: it is none such as 2026-11-23T10:00:00, or has more than microseconds.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise InvalidText("no time such as 2026-11-23T10:00:00")
    offset = match[match.re.groups]
    if zoned != (offset is not None):
        raise InvalidText("a time needs its offset here" if zoned else "a time has no offset here")
    timestamp = datetime.combine(read_date(match[1]), read_time(match[5]))
    if offset is None:
        return timestamp
    try:
        return timestamp.replace(tzinfo=_zone(offset)).astimezone(UTC)
    except OverflowError:  # at either end of the calendar
        raise InvalidText("no time such as 2026-11-23T10:00:00 in UTC") from None


def read_decimal(text: str) -> Decimal:
    """Return a number.

    Raises:
        InvalidText: it isn't written as JSON writes one.
    """
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        raise InvalidText("no number as JSON writes one")
    return Decimal(text)


def read_integer(text: str) -> int:
    """Return a whole number.

    Raises:
        InvalidText: it isn't written as JSON writes one.
    """
    if len(text) > _MAX_NUMBER_LENGTH or not _INTEGER.fullmatch(text):
        raise InvalidText("no whole number as JSON writes one")
    return int(text)


def read_uuid(text: str) -> str:
    """Return a UUID in its usual form.

    Raises:
        InvalidText: it is none.
    """
    if not _UUID.fullmatch(text):
        raise InvalidText("no UUID")
    return text.lower()


def read_base64(text: str) -> bytes:
    """Return bytes.

    Raises:
        InvalidText: it is no base64, or not the only one of these bytes.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidText("no base64") from None
    if base64.b64encode(data).decode() != text:
        raise InvalidText("no base64")
    return data


def _microseconds(fraction: str) -> int:
    digits, rest = fraction[:_MICROSECOND_DIGITS], fraction[_MICROSECOND_DIGITS:]
    if rest.strip("0"):
        raise InvalidText("more than microseconds")
    return int(digits.ljust(_MICROSECOND_DIGITS, "0"))


def _zone(offset: str) -> timezone:
    if offset == "Z":
        return UTC
    hours, minutes = int(offset[1:3]), int(offset[-2:]) if len(offset) > 3 else 0
    if hours > 23 or minutes > 59:
        raise InvalidText("no offset such as +01:00")
    delta = timedelta(hours=hours, minutes=minutes)
    return timezone(-delta if offset[0] == "-" else delta)
