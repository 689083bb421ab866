"""The queries' part of the gateway: `/kpi`."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna.gateway import examples
from sterna.gateway.gateway import Gateway
from sterna.gateway.replies import GONE, RefusedRequest
from sterna.gateway.stream import while_there
from sterna.query.answer import QueryRequest, QueryService

_ETAG = re.compile(r'"[^"]*"')


class QueriesRoom:
    """The route of one region's named queries.

    Args:
        gateway: what all rooms share.
        service: answers them.
    """

    def __init__(self, gateway: Gateway, service: QueryService) -> None:
        self._gateway = gateway
        self._service = service
        self.router = APIRouter(tags=["queries"])
        self.router.get("/kpi", responses=examples.KPI)(self.kpi)

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
                examples=["8744736658442914487"],
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
            reader = await self._gateway.reader(request)
        except RefusedRequest as refused:
            self._service.counts.refused[refused.status] += 1
            raise
        given = request.query_params
        asked = QueryRequest(
            params={each: given.getlist(each) for each in given},
            may_read=lambda table: self._gateway.audience.rules_allow(table, reader.roles),
            etags=_etags(request),
            request_id=request.scope["state"]["request_id"],
            reader=reader.name,
        )
        answer = await while_there(request.receive, self._service.answer(asked))
        if answer is None:
            return Response(status_code=GONE)
        return Response(answer.body, answer.status, dict(answer.headers))


def _etags(request: Request) -> frozenset[str]:
    # Weak ones count, too: a proxy that packs answers makes them so.
    return frozenset(tag for text in request.headers.getlist("if-none-match") for tag in _ETAG.findall(text))
