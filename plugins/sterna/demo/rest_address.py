"""A region's Iceberg REST address in the process of a story, as `sterna serve --only catalog` serves it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sterna.config.sections.model import Services
from sterna.errors import EngineError
from sterna.replication.replica.region import RegionContext

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_POLL_SECONDS = 0.02
_KEEP = timedelta(days=7)  # of events, which it doesn't serve


@contextmanager
def serve_catalog(context: RegionContext) -> Iterator[str]:
    """Serve a region's address at a free port of this machine, for clients without tokens; yield its URL.

    Raises:
        EngineError: it did not start.
    """
    from sterna.serving.http.context import ServeOptions
    from sterna.serving.http.server import build_server

    region = context.region.name
    prefix = next(location.prefix for location in context.registry.locations if location.region == region)
    services = Services.model_validate({"catalog": {"regions": {region: {"location": prefix}}}})
    server = build_server(context, services, ServeOptions(port=0), _KEEP, only=["catalog"], environment={})
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
