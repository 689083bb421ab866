"""A region's Iceberg REST address in the process of a story, as `sterna serve --only catalog` serves it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from sterna.config.sections.model import Services
from sterna.errors import EngineError
from sterna.replication.replica.region import RegionContext

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_POLL_SECONDS = 0.02
_KEEP = timedelta(days=7)  # of events, which it doesn't serve


def catalog_section(context: RegionContext, **settings: Any) -> dict[str, Any]:
    """Return the section `catalog` of a services file for a region's address, which is in its first location.

    Args:
        settings: further ones of the region.
    """
    region = context.region.name
    prefix = next(location.prefix for location in context.registry.locations if location.region == region)
    return {"regions": {region: {"location": prefix, **settings}}}


@contextmanager
def serve_catalog(
    context: RegionContext, services: Services | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Serve a region's address at a free port of this machine, and yield its URL.

    Args:
        services: the services file; None: the address alone.
        environment: the gateway's; without any, clients need no tokens.

    Raises:
        EngineError: it did not start.
    """
    from sterna.serving.http.context import ServeOptions
    from sterna.serving.http.server import build_server

    region = context.region.name
    services = services or Services.model_validate({"catalog": catalog_section(context)})
    server = build_server(context, services, ServeOptions(port=0), _KEEP, only=["catalog"], environment=environment)
    thread = threading.Thread(target=server.run, name="sterna-demo-catalog", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if time.monotonic() > deadline or not thread.is_alive():
                raise EngineError(f"the REST address of {region} did not start")
            time.sleep(_POLL_SECONDS)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_END_SECONDS)
