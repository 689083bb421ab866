"""One answer without a service: what the command `sterna query` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.query.bodies import answer_body, make_job, refuse_not_here
from sterna.query.children import QueryChildren
from sterna.query.from_spark import FromSpark
from sterna.query.pins import Pins
from sterna.query.request import parse_request
from sterna.replica.region import RegionContext
from sterna.services.queries import NamedQueries


def ask_once(context: RegionContext, queries: NamedQueries, params: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Answer one request, with the limits that a service has; nothing is kept.

    Args:
        context: the region.
        queries: those of the services file.
        params: the request's parameters, each with all its values.

    Returns:
        The answer's body.

    Raises:
        QueryError: there is no answer.
        CatalogError, StoreError, TableError, CredentialError: something can't be read.
    """
    asked = parse_request(queries, params)
    refuse_not_here(context, asked)
    tables = Pins(context).find(asked.tables, asked.pin)
    spark = FromSpark(context)
    children = QueryChildren(1, spark.fetch)
    try:
        return answer_body(asked, tables, children.run(make_job(context, queries.limits, asked, tables)))
    finally:
        children.close()
        spark.close()
