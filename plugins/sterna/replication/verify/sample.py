"""The part of a replica that a day's check compares with its source, so that all of it has its turn."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import date

from sterna.errors import UsageError

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Sample:
    """A share of all files, another one each day.

    Args:
        parts: how many of the parts that files are dealt into are taken.
        total_parts: how many parts there are.
        day: days since 1970.
    """

    parts: int
    total_parts: int
    day: int

    def includes(self, uri: str) -> bool:
        """Tell whether a file is among today's: each is once within `of / parts` days, rounded up."""
        part = int.from_bytes(hashlib.sha256(uri.encode()).digest()[:8], "big") % self.total_parts
        return (part - self.day * self.parts) % self.total_parts < self.parts


def parse_sample(text: str, today: date) -> Sample:
    """Read a share such as `1/30`.

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    parts, total_parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < parts <= total_parts:
        raise UsageError(f"{text!r} is no share: expected one such as 1/30")
    return Sample(parts, total_parts, (today - _EPOCH).days)
