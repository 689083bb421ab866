"""Amounts of files, and files that could not be deleted, with their records in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sterna.codec import INTEGER, TEXT, Field, Record, UnknownFields, tuple_of
from sterna.errors import UsageError

MIN_GRACE = timedelta(hours=1)


def validate_grace(grace: timedelta) -> None:
    """Require a grace that is longer than any run, query or write takes.

    Raises:
        UsageError: it is shorter than `MIN_GRACE`.
    """
    if grace < MIN_GRACE:
        raise UsageError(
            f"a grace of {grace} is too short: it has to be longer than any run or query takes, 1h at least"
        )


@dataclass(frozen=True)
class Amount:
    """Some files and their size."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.files + other.files, self.bytes + other.bytes)

    def __sub__(self, other: Amount) -> Amount:
        """Return the difference."""
        return Amount(self.files - other.files, self.bytes - other.bytes)


ZERO_AMOUNT = Amount()
AMOUNT: Final = Record(Amount, (Field("files", INTEGER), Field("bytes", INTEGER)), UnknownFields.IGNORE)


@dataclass(frozen=True)
class NotDeleted:
    """A file that could not be deleted; the next pass tries again."""

    file: str
    message: str


NOT_DELETED: Final = Record(NotDeleted, (Field("file", TEXT), Field("message", TEXT)), UnknownFields.IGNORE)


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What a pass found in its scope, and what it deleted.

    Args:
        region, pass_id: the region and the pass.
        dry_run: nothing was to be deleted.
        at: when it began (ISO 8601, UTC).
        objects: everything in its scope.
        strange: of these, what isn't the scope's; it is never deleted.
        unreachable: what nothing needs, garbage included.
        garbage: what may be deleted now: unreachable since a pass at least `grace` ago, and older than that itself.
        failed: how many files could not be.
        failures: these, the first 100.
        left: what is unreachable still after it.
    """

    region: str
    pass_id: str
    dry_run: bool
    at: str = ""
    objects: Amount
    strange: Amount
    unreachable: Amount
    garbage: Amount
    deleted: Amount = ZERO_AMOUNT
    failed: int = 0
    failures: tuple[NotDeleted, ...] = ()
    left: Amount = ZERO_AMOUNT


# Of the reports of all scopes.
COUNT_FIELDS: Final = tuple(Field(name, AMOUNT.codec) for name in ("objects", "strange", "unreachable", "garbage"))
DELETED_FIELDS: Final = (
    Field("deleted", AMOUNT.codec, ZERO_AMOUNT),
    Field("failed", INTEGER, 0),
    Field("failures", tuple_of(NOT_DELETED.codec), ()),
)
LEFT_FIELD: Final = Field("left", AMOUNT.codec, ZERO_AMOUNT)
