"""The report that a pass leaves beside its record, in the same folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from sterna.codec import INTEGER, Field, Record, tuple_of
from sterna.errors import ObjectMissing
from sterna.maintenance.deletion.model import AMOUNT, NOT_DELETED, ZERO_AMOUNT, PassReport

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

R = TypeVar("R", bound=PassReport)
_SUFFIX = ".json"

COUNT_FIELDS: Final = tuple(Field(name, AMOUNT.codec) for name in ("objects", "strange", "unreachable", "garbage"))
DELETED_FIELDS: Final = (
    Field("deleted", AMOUNT.codec, ZERO_AMOUNT),
    Field("failed", INTEGER, 0),
    Field("failures", tuple_of(NOT_DELETED.codec), ()),
)
LEFT_FIELD: Final = Field("left", AMOUNT.codec, ZERO_AMOUNT)


def save_report(objects: Objects, folder: str, record: Record[R], report: R) -> None:
    """Store the report of a pass."""
    objects.write_new(f"{folder}/{report.pass_id}{_SUFFIX}", record.dumps(report).encode())


def read_newest_report(objects: Objects, folder: str, record: Record[R]) -> R | None:
    """Return the report of the newest pass in a folder; None where there is none, or it can't be read.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    reports = [(modified, uri) for uri, _, modified in objects.list(folder) if uri.endswith(_SUFFIX)]
    try:
        return record.loads(objects.read(max(reports)[1])) if reports else None
    except (ValueError, ObjectMissing):
        return None
