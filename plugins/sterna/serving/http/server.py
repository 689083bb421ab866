"""The server under the app: limits that an app can't set itself, and an end in order."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

import uvicorn
from fastapi import FastAPI

from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.sinks.delivery import DeliveryOptions
from sterna.notifications.sinks.service import SinkService
from sterna.notifications.subscriptions.poller import BranchPoller, PollerOptions
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.region import open_ingest
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext
from sterna.serving.http.app import create_app
from sterna.serving.http.context import LOOPBACK, Gateway, ServeOptions
from sterna.serving.http.features_service import open_features
from sterna.serving.http.protocols import http_protocol, websocket_protocol
from sterna.serving.http.region_status import RegionStatusService
from sterna.serving.http.services import GatewayServices
from sterna.serving.http.tokens import build_verifier
from sterna.serving.queries.job import QueryJob
from sterna.serving.queries.service import QueryService
from sterna.serving.rest_catalog.client_access import open_client_access
from sterna.serving.rest_catalog.reader import open_replica_catalog
from sterna.serving.rest_catalog.signing import open_signer
from sterna.serving.rest_catalog.vended_keys import open_key_vendor
from sterna.serving.rest_catalog.write_service import open_write_service
from sterna.tracing.export import TraceExport

log = logging.getLogger(__name__)
# Longer than balancers keep an idle connection, and than engines pause between a load and a commit: a connection that
# is closed here may have a request on its way.
_KEEP_ALIVE_SECONDS = 75
_MAX_MESSAGE_BYTES = 16 * 1024  # of a WebSocket's client, whose messages are ignored
_STREAM_CLOSE_SECONDS = 0.2  # at most, in which streams send their end; WebSockets are closed after that
_POLL_SECONDS = 0.01
_MAX_LOG_COMMITS = 20_000  # commits that a cursor may be behind


class GatewayServer(uvicorn.Server):
    """A server that closes streams and ends queries at shutdown, before it waits for answers to complete."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, services: GatewayServices) -> None:
        super().__init__(config)
        self.gateway, self.services = gateway, services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        if self.services.queries is not None:
            self.services.queries.close()
        if self.services.poller is not None:
            self.services.poller.stop()
            await self._wait_for_streams()
        await super().shutdown(sockets)
        self.gateway.bodies.close()

    async def _wait_for_streams(self) -> None:
        deadline = time.monotonic() + _STREAM_CLOSE_SECONDS
        while self.gateway.streams and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)


def build_server(
    context: RegionContext,
    services: Services,
    options: ServeOptions,
    keep: timedelta,
    *,
    only: Collection[str] | None = None,
    environment: Mapping[str, str] | None = None,
    poller_options: PollerOptions = PollerOptions(),  # noqa: B008
    run_query: Callable[[QueryJob], dict[str, Any]] | None = None,
    delivery: DeliveryOptions = DeliveryOptions(),  # noqa: B008
    status_seconds: float = 0.0,
) -> GatewayServer:
    """Return the gateway of a region, ready to be run.

    Args:
        services: the settings of its services.
        keep: how far back events are served.
        only: the services that it runs; None: all that something is configured for.
        environment: where the keys of tokens are looked for; default: the process's own.
        poller_options: how the branch is followed.
        run_query: runs queries; default: in processes of their own.
        delivery: how sinks are served.
        status_seconds: from one reading of the region's status to the next, for its metrics; 0: it isn't read.

    Raises:
        UsageError: a service that isn't there or has nothing to serve, or no keys and an address that others reach.
        CredentialError: a key is named that is none.
    """
    names = _select_services(services, context.region.name, only)
    verify = build_verifier(os.environ if environment is None else environment)
    if verify is None and options.host not in LOOPBACK:
        raise UsageError(
            f"without keys for tokens the gateway listens on the loopback alone, not on {options.host}",
            hint="set QUARKUS_OIDC_PUBLIC_KEY or QUARKUS_OIDC_AUTH_SERVER_URL, as the catalog has them",
        )
    audience = TableAccess(context.registry, context.region.name, tuple(services.readers))
    if verify is None and audience.rules:
        log.warning("there are rules for readers and no keys: no client may read what they cover")
    gateway = Gateway(audience, options, verify)
    catalog = open_replica_catalog(context, services) if "catalog" in names else None
    access = open_client_access(catalog, services) if catalog is not None else None
    gateway_services = GatewayServices(
        BranchPoller(EventLog(context, keep, _MAX_LOG_COMMITS), poller_options) if "events" in names else None,
        QueryService(context, services.queries, run_query) if services.queries and "queries" in names else None,
        SinkService(context, services, keep, delivery) if "sinks" in names else None,
        IngestService(open_ingest(context, services)) if "ingest" in names else None,
        open_features(context, services.features, run_query) if services.features and "features" in names else None,
        catalog,
        open_write_service(context, catalog, services) if catalog is not None else None,
        open_signer(access) if access is not None else None,
        open_key_vendor(access) if access is not None else None,
        RegionStatusService(context, services.maintenance, status_seconds) if status_seconds else None,
        TraceExport(log.warning),
    )
    return GatewayServer(_uvicorn_config(create_app(gateway, gateway_services), options), gateway, gateway_services)


def _select_services(services: Services, region: str, only: Collection[str] | None) -> Collection[str]:
    ingest = services.ingest is not None and region in services.ingest.regions
    configured = {
        "events": True,
        "queries": bool(services.queries),
        "sinks": bool(services.sinks),
        "ingest": ingest,
        "features": services.features is not None,
        "catalog": services.catalog is not None and region in services.catalog.regions,
    }
    if only is None:
        return [name for name, is_configured in configured.items() if is_configured]
    if unknown := sorted(set(only) - set(configured)):
        raise UsageError(f"no service {', '.join(unknown)}: there are {', '.join(configured)}")
    if missing := [name for name in only if not configured[name]]:
        raise UsageError(f"the services file has no {missing[0]} to serve", hint="name another one with --services")
    return only


def _uvicorn_config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=http_protocol(options),
        ws=websocket_protocol(options),
        ws_max_size=_MAX_MESSAGE_BYTES,
        ws_ping_interval=options.heartbeat,
        ws_ping_timeout=options.write_timeout,
        ws_per_message_deflate=False,  # tens of KiB a connection, for messages of less than one
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(options.grace),
        lifespan="on",
        backlog=4096,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
