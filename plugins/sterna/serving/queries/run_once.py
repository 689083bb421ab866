"""One answer without a service: what the command `sterna query` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.config.sections.queries import NamedQueries
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.bodies import build_answer_body, build_job, require_admitted_tables
from sterna.serving.queries.request import parse_request
from sterna.serving.queries.snapshots import SnapshotResolver
from sterna.serving.queries.spark_fallback import SparkFallback
from sterna.serving.queries.worker_pool import QueryWorkerPool


def run_once(context: RegionContext, queries: NamedQueries, params: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Answer one request, with the limits that a service has; nothing is kept.

    Args:
        queries: those of the services file.
        params: the request's parameters, each with all its values.

    Returns:
        The answer's body.

    Raises:
        QueryError: there is no answer.
        CatalogError, StoreError, TableError, CredentialError: something can't be read.
    """
    question = parse_request(queries, params)
    require_admitted_tables(context, question)
    resolver = SnapshotResolver(context)
    question = resolver.fix(question)
    tables = resolver.resolve(question.tables, question.pin)
    spark = SparkFallback(context)
    workers = QueryWorkerPool(1, spark.fetch)
    try:
        return build_answer_body(question, tables, workers.run(build_job(context, queries.limits, question, tables)))
    finally:
        workers.close()
        spark.close()
