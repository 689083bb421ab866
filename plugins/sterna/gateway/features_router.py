"""The features' part of the gateway: `/features/{view}/{id}`, and `/v1/features` for many."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Body, Path, Query, Request
from starlette.responses import Response

from sterna.errors import OutOfTime, Remedy, SnapshotGone, SternaError
from sterna.features.model import id_parts, joined_id, key_part, shown
from sterna.features.online import Asker, AsOf, How, SourceRows, Told
from sterna.gateway import features_examples as examples
from sterna.gateway.features_room import FeaturesRoom
from sterna.gateway.gateway import Gateway
from sterna.gateway.logs import FIELDS
from sterna.gateway.plain_route import admitting
from sterna.gateway.replies import GONE, RefusedRequest
from sterna.gateway.stream import while_there
from sterna.gateway.tokens import Reader
from sterna.services.features import Entity, View

_LOG = logging.getLogger("sterna.features")
_MOST = 1_000
_MOST_FEATURES = 200
FEATURE_HEADERS = ("X-Sterna-Cache", "X-Sterna-Snapshot", "X-Sterna-Age")
"""Headers of answers, which pages may read, too."""
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_FIRST_DAY, _LAST_DAY = datetime(1, 1, 2), datetime(9999, 12, 31)
_SNAPSHOT = re.compile(r"-?[0-9]{1,19}")
_NUMBERS = {"int": "a whole number of 32 bits", "long": "a whole number of 64 bits", "string": "text"}
_AsOf = Annotated[
    str,
    Query(
        description="A snapshot of the view's table, or a time with an offset: what was told then.",
        examples=["8744736658442914487", "2026-01-31T12:00:00Z"],
    ),
]


class FeaturesRouter:
    """The routes of one region's features.

    Args:
        gateway: what all rooms share.
        room: the features.
    """

    def __init__(self, gateway: Gateway, room: FeaturesRoom) -> None:
        self._gateway, self._room = gateway, room
        self.router = APIRouter(tags=["features"], route_class=admitting(self._admit, self._read))
        self.router.get("/features/{view}/{id:path}", responses=examples.ONE)(self.one)
        self.router.post("/v1/features", responses=examples.MANY)(self.many)

    async def one(
        self,
        request: Request,
        view: Annotated[str, Path(description="The view.", examples=["user"])],
        id: Annotated[str, Path(description="The entity's id.", examples=["123"])],
        as_of: _AsOf = "",
    ) -> Response:
        """Tell one entity's features, flat.

        Whole numbers of 64 bits and decimals are text, and so are times and what JSON has no number for.
        """
        roles = self._roles(request, {"as_of"})
        found, past = self._view(view, roles), _as_of(as_of)
        entity = self._room.features.entity_of(found)
        key = _id(entity, _path_parts(request, entity, id))
        told = await self._told(request, found, [key], past)
        row = told.rows[key]
        headers = _headers([told])
        if row is None:
            raise _refused(404, f"{entity.name.capitalize()} {', '.join(id_parts(entity, key))} not found.", headers)
        return _answer({**shown(entity, key), **row}, headers)

    async def many(
        self,
        request: Request,
        asked: Annotated[dict[str, Any], Body(openapi_examples=examples.ASKED)],
        as_of: _AsOf = "",
    ) -> Response:
        """Tell features of many entities: a service's, or a list of them. An entity without a row has nulls.

        With `"statuses": true` the answer has, for each row, `statuses` and `event_timestamps` of its values, by the
        same names.
        """
        roles = self._roles(request, {"as_of"})
        columns, past = self._columns(asked), _as_of(as_of)
        views = [self._view(name, roles) for name in dict.fromkeys(view for view, _ in columns)]
        entity = self._room.features.entity_of(views[0])
        ids = _ids(entity, asked.get("entities"))
        once = list(dict.fromkeys(ids))
        if len(views) == 1:
            told = [await self._told(request, views[0], once, past)]  # without the cost of a task
        else:
            told = await asyncio.gather(*(self._told(request, view, once, past) for view in views))
        by_view = dict(zip((view.name for view in views), told, strict=True))
        named = [(f"{view}.{column}", by_view[view].rows, column) for view, column in columns]
        rows = [shown(entity, id) | {name: (of[id] or {}).get(column) for name, of, column in named} for id in ids]
        snapshots = {name: None if each.snapshot is None else str(each.snapshot) for name, each in by_view.items()}
        found = [any(each.rows[id] is not None for each in told) for id in ids]
        more = _statuses(columns, by_view, ids) if asked.get("statuses") else {}
        return _answer({"rows": rows, "found": found, "snapshots": snapshots, **more}, _headers(told))

    async def _admit(self, request: Request) -> None:
        request.scope["state"]["reader"] = await self._gateway.reader(request)

    async def _read(self, request: Request) -> dict[str, Any]:
        return await self._gateway.bodies.read_object(request, request.scope["state"]["reader"].name)

    def _roles(self, request: Request, known: Collection[str]) -> Collection[str]:
        reader: Reader = request.scope["state"]["reader"]
        if request.scope["query_string"] and (unknown := [each for each in request.query_params if each not in known]):
            shown_name = unknown[0] if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", unknown[0]) else "(not shown)"
            raise RefusedRequest(400, f"unknown parameter: {shown_name}")
        given = request.query_params.getlist("as_of") if request.scope["query_string"] else []
        if len(given) > 1 or given == [""]:
            raise _refused(400, "as_of: expected once, and with a value: without one the rows of today are told")
        return reader.roles

    def _view(self, name: str, roles: Collection[str]) -> View:
        view = self._room.features.by_name.get(name)
        if view is None or not self._room.is_here(view):
            raise _refused(404, "There is no such view.")
        if not self._gateway.audience.rules_allow(view.table, roles):
            raise _refused(403, "a rule keeps the table of this view from you")
        return view

    def _columns(self, asked: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the views and columns that are asked for, of one entity."""
        if unknown := set(asked) - {"service", "features", "entities", "statuses"}:
            known = "expected service or features, entities and statuses"
            raise _refused(400, f"{known}, and nothing else: {len(unknown)} more")
        if not isinstance(asked.get("statuses", False), bool):
            raise _refused(400, "statuses: expected true or false")
        if "features" in asked:
            if "service" in asked:
                raise _refused(400, "expected one of service and features")
            return self._listed(asked["features"])
        found = [each for each in self._room.features.services if each.name == asked.get("service")]
        if not found:
            raise _refused(404, "There is no such service.")
        return [_split(name) for name in found[0].features]

    def _listed(self, given: Any) -> list[tuple[str, str]]:
        if (
            not isinstance(given, list)
            or not 1 <= len(given) <= _MOST_FEATURES
            or len(set(map(str, given))) < len(given)
        ):
            raise _refused(400, f"features: expected a list of 1 to {_MOST_FEATURES} different ones, such as user.age")
        views = self._room.features.by_name
        columns = [_split(name) if isinstance(name, str) else ("", "") for name in given]
        for view, column in columns:
            if view not in views or column not in views[view].features or not self._room.is_here(views[view]):
                raise _refused(404, "There is no such feature.")
        if len({views[view].entity for view, _ in columns}) > 1:
            raise _refused(400, "features: expected those of one entity")
        return columns

    async def _told(self, request: Request, view: View, ids: Sequence[str], as_of: AsOf | None) -> Told:
        number = request.scope["state"]["request_id"]
        try:
            told = await self._room.reader.read(view, ids, as_of, _asker(request))
        except RefusedRequest:
            raise
        except SternaError as error:
            passes = error.remedy is Remedy.RETRY or isinstance(error, OutOfTime)
            level = logging.WARNING if passes or isinstance(error, SnapshotGone) else logging.ERROR
            _LOG.log(
                level, "view %s: %s: %s", view.name, type(error).__name__, error, extra={FIELDS: {"request_id": number}}
            )
            if isinstance(error, SnapshotGone):
                raise _refused(410, "That snapshot, or that time's, is not kept here.") from None
            if passes:
                raise _refused(503, "Feature service backend is unavailable.", {"Retry-After": "5"}) from None
            raise _refused(500, "Internal server error retrieving features.") from None
        except Exception:  # noqa: BLE001 - a client is told nothing of it but that it happened
            _LOG.exception("view %s can't be told", view.name, extra={FIELDS: {"request_id": number}})
            raise _refused(500, "Internal server error retrieving features.") from None
        if told is None:
            raise _refused(404, "There is no such view.")
        return told


def _asker(request: Request) -> Asker:
    async def waits(work: Coroutine[Any, Any, SourceRows]) -> SourceRows:
        found = await while_there(request.receive, work)
        if found is None:
            raise RefusedRequest(GONE, "whoever asked has gone")
        return found

    reader: Reader = request.scope["state"]["reader"]
    return Asker(reader.name, waits)  # what the store answers at once isn't worth two tasks


def _split(name: str) -> tuple[str, str]:
    view, _, column = name.partition(".")
    return view, column


def _statuses(columns: Sequence[tuple[str, str]], told: Mapping[str, Told], ids: Sequence[str]) -> dict[str, Any]:
    """Return what there is of each value of each row, and since when it is true."""
    return {
        "statuses": [{f"{view}.{column}": told[view].status(id, column) for view, column in columns} for id in ids],
        "event_timestamps": [{f"{view}.{column}": told[view].times.get(id) for view, column in columns} for id in ids],
    }


def _refused(status: int, detail: str, headers: Mapping[str, str] | None = None) -> RefusedRequest:
    # `detail` is where clients of such services look.
    return RefusedRequest(status, detail, headers, detail=detail)


def _answer(body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    return Response(_JSON.encode(body).encode(), 200, {**headers, "Cache-Control": "no-store"}, "application/json")


def _headers(told: Sequence[Told]) -> dict[str, str]:
    """Return what is said of an answer: of several views the oldest, and where most work was done for one."""
    order = [How.HIT, How.MISS, How.BYPASS]
    how = max((each.how for each in told), key=order.index)
    oldest = min(told, key=lambda each: each.at)
    found = {"X-Sterna-Cache": str(how)}
    if oldest.snapshot is not None:
        found["X-Sterna-Snapshot"] = str(oldest.snapshot)
        found["X-Sterna-Age"] = str(max(0, int(time.time() - oldest.at / 1000)))
    return found


def _id(entity: Entity, given: Sequence[Any]) -> str:
    parts = []
    for (column, kind), value in zip(entity.key.items(), given, strict=True):
        if (part := key_part(kind, value)) is None:
            raise _refused(400, f"{column}: expected {_NUMBERS[kind]}")
        parts.append(part)
    return joined_id(parts)


def _path_parts(request: Request, entity: Entity, id: str) -> list[str]:
    """Return a key's values from the path: of several columns one a segment, as the client encoded them."""
    if len(entity.key) == 1:
        return [id]
    parts = [unquote(part) for part in request.scope["raw_path"].decode("ascii").split("/")[-len(entity.key) :]]
    if "/".join(parts) != id:
        raise _refused(400, f"expected {'/'.join(entity.columns)} behind the view")
    return parts


def _ids(entity: Entity, given: Any) -> list[str]:
    columns = " and ".join(entity.columns)
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST:
        raise _refused(400, f"entities: expected a list of 1 to {_MOST} objects with {columns}")
    for each in given:
        if not isinstance(each, dict) or set(each) != set(entity.columns):
            raise _refused(400, f"entities: expected objects with {columns} alone")
    return [_id(entity, [each[column] for column in entity.columns]) for each in given]


def _as_of(given: str) -> AsOf | None:
    if not given:
        return None
    if _SNAPSHOT.fullmatch(given):
        return AsOf(snapshot=int(given))
    try:
        moment = datetime.fromisoformat(given.replace(" ", "+"))  # a plus sign that nobody encoded
    except ValueError:
        moment = None
    # `timestamp` can't tell of a time whose zone takes it out of the calendar.
    if moment is None or moment.tzinfo is None or not _FIRST_DAY < moment.replace(tzinfo=None) < _LAST_DAY:
        raise _refused(400, "as_of: expected a snapshot's id, or a time with an offset such as 2026-01-31T12:00:00Z")
    if moment > (now := datetime.now(UTC)):
        raise _refused(400, f"as_of: that time is still to come: here it is {now.isoformat(timespec='seconds')[:19]}Z")
    return AsOf(moment=int(moment.timestamp() * 1000))
