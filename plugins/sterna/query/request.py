"""What a request asks for: which query, with which parameters, at which version of its tables."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.errors import BadRequest, NoSuchQuery, printable
from sterna.query.sql import check_sql
from sterna.services.queries import NamedQueries, NamedQuery, param_text

_INT64 = re.compile(r"-?[0-9]{1,19}")
_CURSOR = re.compile(r"([0-9a-f]{64})(?:-[0-9]{1,7})?")  # also an event's id, which has its number in the commit
_SHOWN = 60  # characters of what a client sent
_FORMAT = 1  # of answers: another one has another digest


@dataclass(frozen=True)
class SnapshotPin:
    """One table at one snapshot."""

    snapshot: int


@dataclass(frozen=True)
class CommitPin:
    """All tables as one commit of the replica branch shows them."""

    hash: str


@dataclass(frozen=True)
class Question:
    """A request that was understood; nothing has been looked up yet.

    Args:
        name: the query's.
        query: the query.
        tables: what it reads.
        params: type and value by name, defaults included.
        pin: the version.
    """

    name: str
    query: NamedQuery
    tables: tuple[tuple[str, ...], ...]
    params: Mapping[str, tuple[str, str]]
    pin: SnapshotPin | CommitPin

    @property
    def digest(self) -> str:
        """What the answer depends on, and nothing else."""
        said = [_FORMAT, self.query.sql, self.query.answer, sorted(self.params.items()), _pin_text(self.pin)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:40]


def _pin_text(pin: SnapshotPin | CommitPin) -> str:
    # Clients keep the digest as an ETag: these texts stay, whatever the classes are called.
    return f"CommitPin(hash={pin.hash!r})" if isinstance(pin, CommitPin) else f"SnapshotPin(snapshot={pin.snapshot})"


def named_query(queries: NamedQueries, given: Mapping[str, Sequence[str]]) -> tuple[str, NamedQuery]:
    """Return the query that a request is for, and its name; nothing else of the request is looked at.

    Args:
        queries: those that there are.
        given: the request's parameters, each with all its values.

    Raises:
        BadRequest: it names none, or two.
        NoSuchQuery: there is no such query.
    """
    name = _one("name", given["name"]) if "name" in given else queries.default
    if name is None:
        raise BadRequest("Missing name parameter")
    query = queries.named.get(name)
    if query is None:
        raise NoSuchQuery(f"there is no query {_shown(name)}")
    return name, query


def parse_request(queries: NamedQueries, given: Mapping[str, Sequence[str]]) -> Question:
    """Understand a request.

    Args:
        queries: those that there are.
        given: the request's parameters, each with all its values.

    Raises:
        BadRequest: a parameter is missing, unknown, there twice or not of its type.
        NoSuchQuery: there is no such query.
    """
    name, query = named_query(queries, given)
    values = {name: _one(name, texts) for name, texts in given.items() if name != "name"}
    tables = check_sql(query.sql).tables
    pin = _pin(values.pop("snapshotId", None), values.pop("at", None), len(tables))
    return Question(name, query, tables, _params(query, values), pin)


def _one(name: str, texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise BadRequest(f"parameter {_shown(name)} stands there {len(texts)} times")
    return texts[0]


def _pin(snapshot: str | None, cursor: str | None, tables: int) -> SnapshotPin | CommitPin:
    if snapshot is not None and cursor is not None:
        raise BadRequest("snapshotId and at don't go together")
    if cursor is not None:
        return CommitPin(cursor_commit(cursor))
    if snapshot is None:
        raise BadRequest("Missing snapshotId parameter" if tables == 1 else "Missing at parameter")
    if tables > 1:
        raise BadRequest("the query reads several tables: pin it by at, a cursor, and not by snapshotId")
    if not _INT64.fullmatch(snapshot) or not -(1 << 63) <= int(snapshot) < 1 << 63:
        raise BadRequest(f"snapshotId {_shown(snapshot)} is no whole number of 64 bits")
    return SnapshotPin(int(snapshot))


def cursor_commit(cursor: str, name: str = "at") -> str:
    """Return the replica commit that a cursor stands for.

    Args:
        cursor: the cursor.
        name: what whoever asks calls it.

    Raises:
        BadRequest: it is no cursor.
    """
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadRequest(f"{name} {_shown(cursor)} is no cursor")
    return match[1]


def _params(query: NamedQuery, values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    unknown = sorted(values.keys() - query.params.keys())
    if unknown:
        raise BadRequest(f"unknown parameter {_shown(unknown[0])}")
    found: dict[str, tuple[str, str]] = {}
    for name, param in query.params.items():
        text = values.get(name, param.default)
        if text is None:
            raise BadRequest(f"Missing {name} parameter")
        try:
            found[name] = param.type, param_text(param.type, text)
        except ValueError as error:
            raise BadRequest(f"{name} {_shown(text)}: {error}") from None
    return found


def _shown(text: str) -> str:
    return f"'{printable(text, _SHOWN)}'"
