"""How amounts and files that can't be deleted stand in the records of clean-ups and sweeps."""

from __future__ import annotations

from typing import Final

from sterna.cleaning.model import Amount, NotDeleted
from sterna.json_record import INTEGER, TEXT, Field, Record, Unknown

AMOUNT: Final = Record(Amount, (Field("files", INTEGER), Field("bytes", INTEGER)), Unknown.IGNORE)
NOT_DELETED: Final = Record(NotDeleted, (Field("file", TEXT), Field("message", TEXT)), Unknown.IGNORE)
