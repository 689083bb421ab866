"""Parsing requests: the query, its parameters, and the version of its tables."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.config.sections.queries import NamedQueries, NamedQuery, normalize_parameter
from sterna.errors import BadRequest, NoSuchQuery, printable
from sterna.replication.replica.past_replica import PAST_PREFIX
from sterna.serving.queries.sql import check_sql

_INT64 = re.compile(r"-?[0-9]{1,19}")
_CURSOR = re.compile(r"([0-9a-f]{64})(?:-[0-9]{1,7})?")  # also an event's id, which has its number in the commit
_MAX_SHOWN_CHARS = 60  # characters of what a client sent
_ANSWER_FORMAT = 1  # of answers: another one has another digest


@dataclass(frozen=True)
class SnapshotPin:
    """One table at one snapshot."""

    snapshot: int


@dataclass(frozen=True)
class CommitPin:
    """All tables as one commit of the replica branch shows them.

    Args:
        main: hash of the commit of `main` that it is all of, where a moment led to it; else "".
    """

    hash: str
    main: str = ""


@dataclass(frozen=True)
class MomentPin:
    """All tables as the replica has or had them of a moment of `main`, which `SnapshotResolver` makes a `CommitPin`.

    Args:
        moment: as `sterna.replication.replica.point_in_time` takes it.
    """

    moment: str


@dataclass(frozen=True)
class Question:
    """A request that was understood; nothing has been looked up yet.

    Args:
        name: the query's.
        tables: what it reads.
        params: type and value by name, defaults included.
        pin: the version; a moment's has no digest.
        repair: the repair that overwrote files of the replica last; "": none.
    """

    name: str
    query: NamedQuery
    tables: tuple[tuple[str, ...], ...]
    params: Mapping[str, tuple[str, str]]
    pin: SnapshotPin | CommitPin | MomentPin
    repair: str = ""

    @property
    def digest(self) -> str:
        """What the answer depends on, and nothing else."""
        content = [_ANSWER_FORMAT, self.query.sql, self.query.answer, sorted(self.params.items()), _pin_text(self.pin)]
        content += [self.repair] if self.repair else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]


def _pin_text(pin: SnapshotPin | CommitPin | MomentPin) -> str:
    assert not isinstance(pin, MomentPin), "what a moment shows may be another commit later"
    # Clients keep the digest as an ETag: these texts stay, whatever the classes are called.
    if isinstance(pin, SnapshotPin):
        return f"SnapshotPin(snapshot={pin.snapshot})"
    main = f", main={pin.main!r}" if pin.main else ""  # the answer has it
    return f"CommitPin(hash={pin.hash!r}{main})"


def find_query(queries: NamedQueries, params: Mapping[str, Sequence[str]]) -> tuple[str, NamedQuery]:
    """Return the query that a request is for, and its name; nothing else of the request is looked at.

    Args:
        queries: those that there are.
        params: the request's parameters, each with all its values.

    Raises:
        BadRequest: it names none, or two.
        NoSuchQuery: there is no such query.
    """
    name = _require_single("name", params["name"]) if "name" in params else queries.default
    if name is None:
        raise BadRequest("Missing name parameter")
    query = queries.by_name.get(name)
    if query is None:
        raise NoSuchQuery(f"there is no query {_quoted(name)}")
    return name, query


def parse_request(queries: NamedQueries, params: Mapping[str, Sequence[str]]) -> Question:
    """Understand a request.

    Args:
        queries: those that there are.
        params: the request's parameters, each with all its values.

    Raises:
        BadRequest: a parameter is missing, unknown, there twice or not of its type.
        NoSuchQuery: there is no such query.
    """
    name, query = find_query(queries, params)
    values = {name: _require_single(name, texts) for name, texts in params.items() if name != "name"}
    tables = check_sql(query.sql).tables
    pin = _parse_pin(values.pop("snapshotId", None), values.pop("at", None), len(tables))
    return Question(name, query, tables, _parse_params(query, values), pin)


def _require_single(name: str, texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise BadRequest(f"parameter {_quoted(name)} stands there {len(texts)} times")
    return texts[0]


def _parse_pin(snapshot: str | None, cursor: str | None, tables: int) -> SnapshotPin | CommitPin | MomentPin:
    if snapshot is not None and cursor is not None:
        raise BadRequest("snapshotId and at don't go together")
    if cursor is not None and cursor.startswith(PAST_PREFIX):
        return MomentPin(cursor.removeprefix(PAST_PREFIX))
    if cursor is not None:
        return CommitPin(parse_cursor_commit(cursor))
    if snapshot is None:
        raise BadRequest("Missing snapshotId parameter" if tables == 1 else "Missing at parameter")
    if tables > 1:
        raise BadRequest("the query reads several tables: pin it by at, a cursor, and not by snapshotId")
    if not _INT64.fullmatch(snapshot) or not -(1 << 63) <= int(snapshot) < 1 << 63:
        raise BadRequest(f"snapshotId {_quoted(snapshot)} is no whole number of 64 bits")
    return SnapshotPin(int(snapshot))


def parse_cursor_commit(cursor: str, name: str = "at") -> str:
    """Return the replica commit of a cursor.

    Args:
        name: the parameter's name, for messages.

    Raises:
        BadRequest: it is no cursor.
    """
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadRequest(f"{name} {_quoted(cursor)} is no cursor")
    return match[1]


def _parse_params(query: NamedQuery, values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    unknown = sorted(values.keys() - query.params.keys())
    if unknown:
        raise BadRequest(f"unknown parameter {_quoted(unknown[0])}")
    parsed: dict[str, tuple[str, str]] = {}
    for name, param in query.params.items():
        text = values.get(name, param.default)
        if text is None:
            raise BadRequest(f"Missing {name} parameter")
        try:
            parsed[name] = param.type, normalize_parameter(param.type, text)
        except ValueError as error:
            raise BadRequest(f"{name} {_quoted(text)}: {error}") from None
    return parsed


def _quoted(text: str) -> str:
    return f"'{printable(text, _MAX_SHOWN_CHARS)}'"
