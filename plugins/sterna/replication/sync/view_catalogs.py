"""Which catalogs a changed view names: whoever reads it on the replica reads there, whatever branch he reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

from sterna.catalog.model import ICEBERG_VIEW
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.replication.plan.metadata_reader import require_resident
from sterna.replication.replica.model import Plan
from sterna.replication.replica.region import RegionContext


def catalogs_of_views(context: RegionContext, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return, by key name, which catalogs the views that a plan puts name and the registry doesn't speak of.

    Args:
        context: the region.
        plan: the plan.
    """

    @cache
    def is_namespace(name: str) -> bool:
        return bool(context.primary.contents(SOURCE_BRANCH, plan.source_hash, [(name,)]))

    def read_catalogs(uri: str, data: bytes) -> tuple[str, ...]:
        from sterna.iceberg.metadata.view import named_catalogs

        views = context.registry.views
        return named_catalogs(
            data,
            uri,
            own_catalogs=views.own_catalogs,
            other_catalogs=views.other_catalogs,
            has_namespace=is_namespace,
            limits=context.region.limits,
        )

    sources = {action.key: action.source for action in plan.actions if action.kind == ICEBERG_VIEW and action.source}
    catalogs_by_uri: dict[str, tuple[str, ...]] = {}
    for uri, data in context.objects.read_bounded(dict.fromkeys(_readable(context, sources.values()), -1)):
        if isinstance(data, SternaError) and not isinstance(data, (ObjectMissing, TableError)):
            raise data
        if isinstance(data, bytes):
            with suppress(TableError):  # the run holds it, and says why
                catalogs_by_uri[uri] = read_catalogs(uri, data)
    return {key: catalogs for key, uri in sources.items() if (catalogs := catalogs_by_uri.get(uri, ()))}


def _readable(context: RegionContext, uris: Iterable[str]) -> Iterator[str]:
    for uri in uris:
        try:
            require_resident(context, uri)
        except TableError:
            continue
        yield uri
