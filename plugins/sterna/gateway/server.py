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

from sterna.errors import UsageError
from sterna.events.tail import BranchTail, TailOptions
from sterna.feed.log import EventLog
from sterna.gateway.app import create_app
from sterna.gateway.features_room import open_features
from sterna.gateway.gateway import LOOPBACK, Gateway, ServeOptions
from sterna.gateway.protocols import http_protocol, websocket_protocol
from sterna.gateway.rooms import Rooms
from sterna.gateway.tokens import verifier
from sterna.ingest.region import open_ingest
from sterna.ingest.room import IngestRoom
from sterna.outlets.deliverer import DeliveryOptions
from sterna.outlets.room import OutletRoom
from sterna.query.answer import QueryService
from sterna.query.job import Job
from sterna.replica.readers import Audience
from sterna.replica.region import RegionContext
from sterna.services.model import Services

log = logging.getLogger(__name__)
_LARGEST_MESSAGE = 16 * 1024  # of a WebSocket's client, which has nothing to say
_FAREWELL_SECONDS = 0.2  # at most, in which streams say that they end; WebSockets are closed after that
_LOOK_SECONDS = 0.01
_LOOKED_THROUGH = 20_000  # commits that a cursor may be behind


class GatewayServer(uvicorn.Server):
    """A server that tells its clients to come back, and ends queries, before it waits for answers to end."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, rooms: Rooms) -> None:
        super().__init__(config)
        self.gateway, self.rooms = gateway, rooms

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        if self.rooms.queries is not None:
            self.rooms.queries.close()
        if self.rooms.tail is not None:
            self.rooms.tail.stop()
            await self._farewell()
        await super().shutdown(sockets)
        self.gateway.bodies.close()

    async def _farewell(self) -> None:
        end = time.monotonic() + _FAREWELL_SECONDS
        while self.gateway.streams and time.monotonic() < end:
            await asyncio.sleep(_LOOK_SECONDS)


def make_server(
    context: RegionContext,
    services: Services,
    options: ServeOptions,
    keep: timedelta,
    *,
    only: Collection[str] | None = None,
    environment: Mapping[str, str] | None = None,
    following: TailOptions = TailOptions(),  # noqa: B008
    run_query: Callable[[Job], dict[str, Any]] | None = None,
    delivery: DeliveryOptions = DeliveryOptions(),  # noqa: B008
) -> GatewayServer:
    """Return the gateway of a region, ready to be run.

    Args:
        context: the region.
        services: what the rooms do.
        options: how it listens.
        keep: how far back events are told.
        only: the rooms that it serves; None: all that something is configured for.
        environment: where the keys of tokens are looked for; default: the process's own.
        following: how the branch is followed.
        run_query: runs queries; default: in processes of their own.
        delivery: how outlets are served.

    Raises:
        UsageError: a room that isn't there or has nothing to serve, or no keys and an address that others reach.
        CredentialError: a key is named that is none.
    """
    names = _names(services, context.region.name, only)
    verify = verifier(os.environ if environment is None else environment)
    if verify is None and options.host not in LOOPBACK:
        raise UsageError(
            f"without keys for tokens the gateway listens on the loopback alone, not on {options.host}",
            hint="set QUARKUS_OIDC_PUBLIC_KEY or QUARKUS_OIDC_AUTH_SERVER_URL, as the catalog has them",
        )
    audience = Audience(context.registry, context.region.name, tuple(services.readers))
    if verify is None and audience.rules:
        log.warning("there are rules for readers and no keys: what they are about is told to nobody")
    gateway = Gateway(audience, options, verify)
    rooms = Rooms(
        BranchTail(EventLog(context, keep, _LOOKED_THROUGH), following) if "events" in names else None,
        QueryService(context, services.queries, run_query) if services.queries and "queries" in names else None,
        OutletRoom(context, services, keep, delivery) if "outlets" in names else None,
        IngestRoom(open_ingest(context, services)) if "ingest" in names else None,
        open_features(context, services.features, run_query) if services.features and "features" in names else None,
    )
    return GatewayServer(_config(create_app(gateway, rooms), options), gateway, rooms)


def _names(services: Services, region: str, only: Collection[str] | None) -> Collection[str]:
    ingest = services.ingest is not None and region in services.ingest.regions
    configured = {
        "events": True,
        "queries": bool(services.queries),
        "outlets": bool(services.outlets),
        "ingest": ingest,
        "features": services.features is not None,
    }
    if only is None:
        return [name for name, there in configured.items() if there]
    if unknown := sorted(set(only) - set(configured)):
        raise UsageError(f"no room {', '.join(unknown)}: there are {', '.join(configured)}")
    if missing := [name for name in only if not configured[name]]:
        raise UsageError(f"the services file has no {missing[0]} to serve", hint="name another one with --services")
    return only


def _config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=http_protocol(options),
        ws=websocket_protocol(options),
        ws_max_size=_LARGEST_MESSAGE,
        ws_ping_interval=options.heartbeat,
        ws_ping_timeout=options.patience,
        ws_per_message_deflate=False,  # tens of KiB a connection, for messages of less than one
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(options.grace),
        lifespan="on",
        backlog=4096,
    )
