"""The queries' part of the gateway: `/kpi`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna.serving.http.context import Gateway
from sterna.serving.http.errors import CLIENT_CLOSED_REQUEST, RequestError
from sterna.serving.http.responses import Responses, failure, failures, parse_etags, success
from sterna.serving.http.stream import run_while_connected
from sterna.serving.queries.service import QueryRequest, QueryService

_SNAPSHOT = "8744736658442914487"
_HASH = "9f2c4c1e0b7d4a6f8e3b5d2c1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29"
_CURRENT = {"cursor": _HASH, "snapshots": {"db.fact_events": _SNAPSHOT}}
_RESPONSES: Responses = {
    200: success(
        "The figures; with `answer: rows` a list `rows` in place of `kpi`.",
        None,
        {"kpi": {"total_revenue": 12.5}, "types": {"total_revenue": "double"}, "snapshot_id": _SNAPSHOT},
    ),
    304: {"description": "The client has this answer: `If-None-Match` names its `ETag`."},
    410: failure(RequestError(410, "snapshot 3051729675574597004 is not here, or no longer", current=_CURRENT)),
    **failures(
        {
            400: "Missing snapshotId parameter",
            401: "a token is needed",
            403: "a rule keeps a table of this query from you",
            404: "there is no query 'revenu'",
            413: "the answer has more than 10000 rows or 1048576 bytes",
            429: "34 queries run or wait already",
            500: "Error processing request",
            503: "main has snapshot 3051729675574597004, and this region not yet",
            504: "the query ran for more than 10 s",
        }
    ),
}


class QueriesRouter:
    """The route of one region's named queries.

    Args:
        gateway: what all services share.
    """

    def __init__(self, gateway: Gateway, service: QueryService) -> None:
        self._gateway = gateway
        self._service = service
        self.router = APIRouter(tags=["queries"])
        self.router.get("/kpi", responses=_RESPONSES)(self.kpi)

    async def kpi(
        self,
        request: Request,
        name: Annotated[
            str, Query(description="The query; without it the default, or the only one.", examples=["revenue"])
        ] = "",
        snapshot_id: Annotated[
            str,
            Query(
                alias="snapshotId",
                description="The snapshot at which the query's one table is read, such as an event's `snapshotid`.",
                examples=[_SNAPSHOT],
            ),
        ] = "",
        at: Annotated[
            str, Query(description="Or a cursor, such as an event's `id`: all tables as it shows them.")
        ] = "",
    ) -> Response:
        """Answer a named query at exactly one version of its tables.

        Beside these, a query takes the parameters that it declares. What it doesn't know is refused.
        """
        try:
            reader = await self._gateway.require_reader(request)
        except RequestError as refused:
            self._service.counts.errors[refused.status] += 1
            raise
        params = request.query_params
        query_request = QueryRequest(
            params={param: params.getlist(param) for param in params},
            may_read=lambda table: self._gateway.audience.rules_allow(table, reader.roles),
            etags=parse_etags(request),
            request_id=request.scope["state"]["request_id"],
            reader=reader.name,
        )
        answer = await run_while_connected(request.receive, self._service.answer(query_request))
        if answer is None:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return Response(answer.body, answer.status, dict(answer.headers))
