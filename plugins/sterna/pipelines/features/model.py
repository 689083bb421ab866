"""What stands in the store: a value a key, and a view's state. Pure.

A value is a line of text, and the row behind it:

    1 <generation> <run> <snapshot> <its commit's time, ms> row|gone
    ["30","Shanghai"]

The row is the JSON of `sterna.pipelines.features.codec`: its values in the order of the view's columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from sterna.config.sections.features import Entity, FeatureView, KeyType

FORMAT = 1
TOMBSTONE_MS = 3_600_000
_BITS: dict[str, int] = {"int": 32, "long": 64}
_MAX_KEY_CHARS = 1_000


@dataclass(frozen=True)
class Column:
    """A column as it is kept: its name, its id in the table's schema, and Iceberg's name of its type."""

    name: str
    id: int
    type: str


@dataclass(frozen=True)
class State:
    """How far a view is.

    Args:
        generation: counts complete reloads of the store; 0: none yet.
        run: the newest run in it; older ones are refused.
        finished_run: the newest run that came to its end.
        snapshot: the view's snapshot in the store; None: none yet.
        committed_ms: that snapshot's commit time, in milliseconds since 1970.
        pending: the snapshot that a run is on its way to, or was when it died; None: none.
        complete_server: the id of the server that held all rows when the last run ended; "": it may lack some.
        digest: what the rows are made of; see `rows_digest`.
        columns: the columns of each row.
        exclusion: why the view has no rows in this region; "": it has.
    """

    generation: int = 0
    run: int = 0
    finished_run: int = 0
    snapshot: int | None = None
    committed_ms: int = 0
    pending: int | None = None
    complete_server: str = ""
    digest: str = ""
    columns: tuple[Column, ...] = ()
    exclusion: str = ""


# The names of a state's fields in the store, as `read_state` and the scripts have them.
GENERATION = "epoch"
RUN = "run"
DONE = "done"
SNAPSHOT = "snapshot"
AT = "at"
PENDING = "pending"
READY = "ready"
DIGEST = "digest"
COLUMNS = "columns"
REFUSED = "refused"
FIELDS = (GENERATION, RUN, DONE, SNAPSHOT, AT, PENDING, READY, DIGEST, COLUMNS, REFUSED)

# The last word of a value's first line.
ROW = "row"
GONE = "gone"


@dataclass(frozen=True)
class Value:
    """What a key holds: a row, or None where it was deleted."""

    generation: int
    run: int
    snapshot: int
    committed_ms: int
    row: list[Any] | None


UNREADABLE = Value(-1, 0, 0, 0, None)
"""A value that exists and can't be decoded: of no generation, so that it is never used."""


def state_key(view: str) -> str:
    """Return the key of a view's state."""
    return f"features.state:{view}"


def value_key(view: str, id: str) -> str:
    """Return the key of an entity's row, such as `features:user:123`."""
    return f"features:{view}:{id}"


def read_state(fields: Sequence[bytes | None]) -> State:
    """Return a view's state from the fields of `FIELDS`."""
    return _parse_state(tuple(fields))


@lru_cache(maxsize=256)  # read for each answer, and changed by runs only
def _parse_state(fields: tuple[bytes | None, ...]) -> State:
    text = {name: (value or b"").decode() for name, value in zip(FIELDS, fields, strict=True)}
    columns = tuple(Column(*column) for column in json.loads(text[COLUMNS] or "[]"))
    return State(
        int(text[GENERATION] or 0),
        int(text[RUN] or 0),
        int(text[DONE] or 0),
        int(text[SNAPSHOT]) if text[SNAPSHOT] else None,
        int(text[AT] or 0),
        int(text[PENDING]) if text[PENDING] else None,
        text[READY],
        text[DIGEST],
        columns,
        text[REFUSED],
    )


def encode_columns(columns: Sequence[Column]) -> str:
    """Return columns as they stand in a state."""
    return json.dumps([[column.name, column.id, column.type] for column in columns])


def view_digest(view: FeatureView, entity: Entity) -> str:
    """Return what of the services file decides a view's rows."""
    return _digest([FORMAT, view.table, view.columns, view.event_time, view.unique, view.serve, entity.key])


def rows_digest(
    view: FeatureView, entity: Entity, columns: Sequence[Column], keys: Sequence[Column], table: str
) -> str:
    """Return a digest of what determines the rows in the store: if it changes, the store is reloaded.

    Args:
        columns: its columns, as the table has them.
        keys: the key's columns.
        table: the table's UUID.
    """
    layout = [[column.name, column.id, column.type] for column in (*keys, *columns)]
    return f"{view_digest(view, entity)}/{_digest([table, layout])}"


def _digest(content: Any) -> str:
    return sha256(json.dumps(content).encode()).hexdigest()[:24]


def value_head(generation: int, run: int, snapshot: int, committed_ms: int, *, gone: bool) -> bytes:
    """Return the first line of a value."""
    return f"{FORMAT} {generation} {run} {snapshot} {committed_ms} {GONE if gone else ROW}\n".encode()


def read_value(data: bytes) -> Value | None:
    """Return the value of a key; None if it can't be decoded, which doesn't mean that there is no row."""
    head, _, body = data.partition(b"\n")
    parts = head.split(b" ")
    try:
        if len(parts) != 6 or int(parts[0]) != FORMAT or parts[5] not in (ROW.encode(), GONE.encode()):
            return None
        generation, run, snapshot, committed_ms = map(int, parts[1:5])
        row = json.loads(body) if parts[5] == ROW.encode() else None
    except ValueError:
        return None
    if parts[5] == ROW.encode() and not isinstance(row, list):
        return None
    return Value(generation, run, snapshot, committed_ms, row)


def parse_key_part(kind: KeyType, raw_part: Any) -> str | None:
    """Return a column of an id as keys spell it; None where it doesn't fit the key's type.

    Args:
        kind: the key's type.
        raw_part: text, or a number of JSON.
    """
    if isinstance(raw_part, bool) or not isinstance(raw_part, int | str):
        return None
    if kind == "string":
        is_valid = (
            isinstance(raw_part, str)
            and len(raw_part) <= _MAX_KEY_CHARS
            and not any("\ud800" <= char <= "\udfff" for char in raw_part)
        )
        return str(raw_part) if is_valid else None
    text = str(raw_part)
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        return None
    number, bound = int(text), 1 << _BITS[kind] - 1
    return str(number) if -bound <= number < bound else None


def join_id(parts: Sequence[str]) -> str:
    """Return the id that a key's parts make: of one column its text, of several a list of texts, in JSON."""
    return parts[0] if len(parts) == 1 else json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def split_id(entity: Entity, id: str) -> list[str]:
    """Return the parts of an id, one a column of the key."""
    return [id] if len(entity.key) == 1 else json.loads(id)


def id_columns(entity: Entity, id: str) -> dict[str, Any]:
    """Return an id as answers have it: whole numbers of 64 bits are text, as JSON loses digits of them."""
    parts = zip(entity.key.items(), split_id(entity, id), strict=True)
    return {column: int(part) if kind == "int" else part for (column, kind), part in parts}


def is_too_old(row: Mapping[str, Any], view: FeatureView, now_ms: int) -> bool:
    """Return whether a row is older than its view allows; a row without a time is.

    Args:
        row: its values by column.
        now_ms: the time of the request.
    """
    if view.max_age is None or view.event_time is None:
        return False
    text = row[view.event_time]
    return text is None or parse_time_ms(text) < now_ms - 1000 * view.max_age


def parse_time_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a time as rows have it; without an offset it is UTC."""
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
