"""How amounts and files that can't be deleted stand in the records of clean-ups and sweeps."""

from __future__ import annotations

from typing import Final

from sterna.codec import INTEGER, TEXT, Field, Record, UnknownFields
from sterna.maintenance.deletion.model import Amount, NotDeleted

AMOUNT: Final = Record(Amount, (Field("files", INTEGER), Field("bytes", INTEGER)), UnknownFields.IGNORE)
NOT_DELETED: Final = Record(NotDeleted, (Field("file", TEXT), Field("message", TEXT)), UnknownFields.IGNORE)
