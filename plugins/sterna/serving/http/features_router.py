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

from sterna.config.sections.features import Entity, FeatureView
from sterna.errors import OutOfTime, Remedy, SnapshotGone, SternaError
from sterna.pipelines.features.model import id_columns, join_id, parse_key_part, split_id
from sterna.pipelines.features.online import AsOf, CacheStatus, FeatureAnswer, Requester, SourceRows
from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST, RequestError
from sterna.serving.http.fast_route import build_route_class
from sterna.serving.http.features_responses import (
    ENTITIES_RESPONSES,
    ENTITY_RESPONSES,
    REQUEST_EXAMPLES,
    EntitiesBody,
    FeaturesBody,
    features_error,
)
from sterna.serving.http.features_service import FeaturesService
from sterna.serving.http.logs import FIELDS
from sterna.serving.http.stream import run_while_connected
from sterna.serving.http.tokens import Reader

_LOG = logging.getLogger("sterna.pipelines.features")
_MAX_ENTITIES = 1_000
_MAX_FEATURES = 200
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_FIRST_DAY, _LAST_DAY = datetime(1, 1, 2), datetime(9999, 12, 31)
_SNAPSHOT = re.compile(r"-?[0-9]{1,19}")
_EXPECTED_TYPES = {"int": "a whole number of 32 bits", "long": "a whole number of 64 bits", "string": "text"}
_AsOf = Annotated[
    str,
    Query(
        description="A snapshot of the view's table, or a time with an offset: the answer of then.",
        examples=["8744736658442914487", "2026-01-31T12:00:00Z"],
    ),
]


class FeaturesRouter:
    """The routes of one region's features.

    Args:
        gateway: what all routers share.
    """

    def __init__(self, gateway: Gateway, service: FeaturesService) -> None:
        self._gateway, self._service = gateway, service
        self.router = APIRouter(tags=["features"], route_class=build_route_class(self._admit, self._read))
        self.router.get("/features/{view}/{id:path}", responses=ENTITY_RESPONSES)(self.one)
        self.router.post("/v1/features", responses=ENTITIES_RESPONSES)(self.many)

    async def one(
        self,
        request: Request,
        view: Annotated[str, Path(description="The view.", examples=["user"])],
        id: Annotated[str, Path(description="The entity's id.", examples=["123"])],
        as_of: _AsOf = "",
    ) -> Response:
        """Return one entity's features, flat.

        Whole numbers of 64 bits and decimals are text, and so are times and what JSON has no number for.
        """
        roles = self._roles(request, {"as_of"})
        feature_view, as_of_time = self._require_view(view, roles), _parse_as_of(as_of)
        entity = self._service.features.entity_of(feature_view)
        key = _parse_id(entity, _path_parts(request, entity, id))
        answer = await self._read_answer(request, feature_view, [key], as_of_time)
        row = answer.rows[key]
        headers = _answer_headers([answer])
        if row is None:
            raise features_error(
                404, f"{entity.name.capitalize()} {', '.join(split_id(entity, key))} not found.", headers
            )
        return _answer({**id_columns(entity, key), **row}, headers)

    async def many(
        self,
        request: Request,
        asked: Annotated[dict[str, Any], Body(openapi_examples=REQUEST_EXAMPLES)],
        as_of: _AsOf = "",
    ) -> Response:
        """Return features of many entities: a service's, or a list of them. An entity without a row has nulls.

        With `"statuses": true` the answer has, for each row, `statuses` and `event_timestamps` of its values, by the
        same names.
        """
        roles = self._roles(request, {"as_of"})
        columns, as_of_time = self._parse_columns(asked), _parse_as_of(as_of)
        views = [self._require_view(name, roles) for name in dict.fromkeys(view for view, _ in columns)]
        entity = self._service.features.entity_of(views[0])
        ids = _parse_ids(entity, asked.get("entities"))
        unique_ids = list(dict.fromkeys(ids))
        if len(views) == 1:
            answers = [await self._read_answer(request, views[0], unique_ids, as_of_time)]  # without the cost of a task
        else:
            answers = await asyncio.gather(
                *(self._read_answer(request, view, unique_ids, as_of_time) for view in views)
            )
        by_view = dict(zip((view.name for view in views), answers, strict=True))
        selections = [(f"{view}.{column}", by_view[view].rows, column) for view, column in columns]
        rows = [
            id_columns(entity, id) | {name: (view_rows[id] or {}).get(column) for name, view_rows, column in selections}
            for id in ids
        ]
        snapshots = {
            name: None if answer.snapshot is None else str(answer.snapshot) for name, answer in by_view.items()
        }
        present = [any(answer.rows[id] is not None for answer in answers) for id in ids]
        body: EntitiesBody = {"rows": rows, "found": present, "snapshots": snapshots}
        if asked.get("statuses"):
            _add_statuses(body, columns, by_view, ids)
        return _answer(body, _answer_headers(answers))

    async def _admit(self, request: Request) -> None:
        request.scope["state"]["reader"] = await self._gateway.require_reader(request)

    async def _read(self, request: Request) -> dict[str, Any]:
        return await self._gateway.bodies.read_object(request, request.scope["state"]["reader"].name)

    def _roles(self, request: Request, allowed: Collection[str]) -> Collection[str]:
        reader: Reader = request.scope["state"]["reader"]
        if request.scope["query_string"] and (
            unknown := [name for name in request.query_params if name not in allowed]
        ):
            printable_name = unknown[0] if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", unknown[0]) else "(not shown)"
            raise RequestError(400, f"unknown parameter: {printable_name}")
        as_of_values = request.query_params.getlist("as_of") if request.scope["query_string"] else []
        if len(as_of_values) > 1 or as_of_values == [""]:
            raise features_error(
                400, "as_of: expected once, and with a value: without one the current rows are returned"
            )
        return reader.roles

    def _require_view(self, name: str, roles: Collection[str]) -> FeatureView:
        view = self._service.features.views_by_name.get(name)
        if view is None or not self._service.is_admitted(view):
            raise features_error(404, "There is no such view.")
        if not self._gateway.audience.rules_allow(view.table, roles):
            raise features_error(403, "a rule keeps the table of this view from you")
        return view

    def _parse_columns(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the requested views and columns, all of one entity."""
        if unknown := set(body) - {"service", "features", "entities", "statuses"}:
            expected = "expected service or features, entities and statuses"
            raise features_error(400, f"{expected}, and nothing else: {len(unknown)} more")
        if not isinstance(body.get("statuses", False), bool):
            raise features_error(400, "statuses: expected true or false")
        if "features" in body:
            if "service" in body:
                raise features_error(400, "expected one of service and features")
            return self._parse_features(body["features"])
        matching = [service for service in self._service.features.services if service.name == body.get("service")]
        if not matching:
            raise features_error(404, "There is no such service.")
        return [_split_feature(name) for name in matching[0].features]

    def _parse_features(self, names: Any) -> list[tuple[str, str]]:
        if (
            not isinstance(names, list)
            or not 1 <= len(names) <= _MAX_FEATURES
            or len(set(map(str, names))) < len(names)
        ):
            raise features_error(
                400, f"features: expected a list of 1 to {_MAX_FEATURES} different ones, such as user.age"
            )
        views = self._service.features.views_by_name
        columns = [_split_feature(name) if isinstance(name, str) else ("", "") for name in names]
        for view, column in columns:
            if view not in views or column not in views[view].features or not self._service.is_admitted(views[view]):
                raise features_error(404, "There is no such feature.")
        if len({views[view].entity for view, _ in columns}) > 1:
            raise features_error(400, "features: expected those of one entity")
        return columns

    async def _read_answer(
        self, request: Request, view: FeatureView, ids: Sequence[str], as_of: AsOf | None
    ) -> FeatureAnswer:
        request_id = request.scope["state"]["request_id"]
        try:
            answer = await self._service.reader.read(view, ids, as_of, _requester(request))
        except RequestError:
            raise
        except SternaError as error:
            is_transient = error.remedy is Remedy.RETRY or isinstance(error, OutOfTime)
            level = logging.WARNING if is_transient or isinstance(error, SnapshotGone) else logging.ERROR
            _LOG.log(
                level,
                "view %s: %s: %s",
                view.name,
                type(error).__name__,
                error,
                extra={FIELDS: {"request_id": request_id}},
            )
            if isinstance(error, SnapshotGone):
                raise features_error(410, "That snapshot, or that time's, is not kept here.") from None
            if is_transient:
                raise features_error(503, "Feature service backend is unavailable.", {"Retry-After": "5"}) from None
            raise features_error(500, "Internal server error retrieving features.") from None
        except Exception:  # noqa: BLE001 - a client gets no details
            _LOG.exception("view %s can't be answered", view.name, extra={FIELDS: {"request_id": request_id}})
            raise features_error(500, "Internal server error retrieving features.") from None
        if answer is None:
            raise features_error(404, "There is no such view.")
        return answer


def _requester(request: Request) -> Requester:
    async def wait_for(work: Coroutine[Any, Any, SourceRows]) -> SourceRows:
        source_rows = await run_while_connected(request.receive, work)
        if source_rows is None:
            raise RequestError(CLIENT_CLOSED_REQUEST, "the client has disconnected")
        return source_rows

    reader: Reader = request.scope["state"]["reader"]
    return Requester(reader.name, wait_for)  # what the store answers at once isn't worth two tasks


def _split_feature(name: str) -> tuple[str, str]:
    view, _, column = name.partition(".")
    return view, column


def _add_statuses(
    body: EntitiesBody, columns: Sequence[tuple[str, str]], answers: Mapping[str, FeatureAnswer], ids: Sequence[str]
) -> None:
    """Add what there is of each value of each row, and since when it is true."""
    names = {f"{view}.{column}": (answers[view], column) for view, column in columns}
    body["statuses"] = [{name: answer.status(id, column) for name, (answer, column) in names.items()} for id in ids]
    body["event_timestamps"] = [{name: answer.times.get(id) for name, (answer, _) in names.items()} for id in ids]


def _answer(body: FeaturesBody | EntitiesBody, headers: Mapping[str, str]) -> Response:
    return Response(_JSON.encode(body).encode(), 200, {**headers, "Cache-Control": "no-store"}, "application/json")


def _answer_headers(answers: Sequence[FeatureAnswer]) -> dict[str, str]:
    """Return what is said of an answer: of several views the oldest, and where most work was done for one."""
    order = [CacheStatus.HIT, CacheStatus.MISS, CacheStatus.BYPASS]
    cache_status = max((answer.cache_status for answer in answers), key=order.index)
    oldest = min(answers, key=lambda answer: answer.committed_ms)
    headers = {"X-Sterna-Cache": str(cache_status)}
    if oldest.snapshot is not None:
        headers["X-Sterna-Snapshot"] = str(oldest.snapshot)
        headers["X-Sterna-Age"] = str(max(0, int(time.time() - oldest.committed_ms / 1000)))
    return headers


def _parse_id(entity: Entity, raw_parts: Sequence[Any]) -> str:
    parts = []
    for (column, kind), value in zip(entity.key.items(), raw_parts, strict=True):
        if (part := parse_key_part(kind, value)) is None:
            raise features_error(400, f"{column}: expected {_EXPECTED_TYPES[kind]}")
        parts.append(part)
    return join_id(parts)


def _path_parts(request: Request, entity: Entity, id: str) -> list[str]:
    """Return a key's values from the path: of several columns one a segment, as the client encoded them."""
    if len(entity.key) == 1:
        return [id]
    parts = [unquote(part) for part in request.scope["raw_path"].decode("ascii").split("/")[-len(entity.key) :]]
    if "/".join(parts) != id:
        raise features_error(400, f"expected {'/'.join(entity.columns)} behind the view")
    return parts


def _parse_ids(entity: Entity, entities: Any) -> list[str]:
    columns = " and ".join(entity.columns)
    if not isinstance(entities, list) or not 1 <= len(entities) <= _MAX_ENTITIES:
        raise features_error(400, f"entities: expected a list of 1 to {_MAX_ENTITIES} objects with {columns}")
    for key in entities:
        if not isinstance(key, dict) or set(key) != set(entity.columns):
            raise features_error(400, f"entities: expected objects with {columns} alone")
    return [_parse_id(entity, [key[column] for column in entity.columns]) for key in entities]


def _parse_as_of(text: str) -> AsOf | None:
    if not text:
        return None
    if _SNAPSHOT.fullmatch(text):
        return AsOf(snapshot=int(text))
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # an unencoded plus sign
    except ValueError:
        moment = None
    # `timestamp` fails for a time whose zone takes it out of the calendar.
    if moment is None or moment.tzinfo is None or not _FIRST_DAY < moment.replace(tzinfo=None) < _LAST_DAY:
        raise features_error(
            400, "as_of: expected a snapshot's id, or a time with an offset such as 2026-01-31T12:00:00Z"
        )
    if moment > (now := datetime.now(UTC)):
        raise features_error(
            400, f"as_of: that time is still to come: here it is {now.isoformat(timespec='seconds')[:19]}Z"
        )
    return AsOf(moment=int(moment.timestamp() * 1000))
