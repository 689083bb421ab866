"""What all routers of a gateway share: who may read, how many streams there may be, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from sterna.gateway.json_body import Bodies, BodyLimits
from sterna.gateway.metrics import Metrics
from sterna.gateway.replies import RefusedRequest, later, unauthorized
from sterna.gateway.tokens import ANYBODY, Reader, Tickets, Verifier, Verifying
from sterna.replica.readers import MAY_READ, Audience

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")


@dataclass(frozen=True)
class ServeOptions:
    """How a gateway listens.

    Args:
        host: the address it listens on.
        port: the port; 0: any that is free.
        connections: streams that may be open at once.
        heartbeat: seconds after which a stream without news is sent a sign of life.
        patience: seconds after which a client that takes nothing is closed.
        headers: seconds within which a request's headers have to be here.
        body: seconds within which a body of JSON has to be here.
        origins: pages of these origins may ask.
        grace: seconds that streams have to end when the gateway does.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    connections: int = 10_000
    heartbeat: float = 15.0
    patience: float = 60.0
    headers: float = 10.0
    body: float = 20.0
    origins: tuple[str, ...] = ()
    grace: float = 10.0


@dataclass
class Gateway:
    """One gateway.

    Args:
        audience: who may be told of what.
        options: how it listens.
        verify: tells whose a token is; None: there are no keys, and everybody on the loopback may read.
    """

    audience: Audience
    options: ServeOptions = ServeOptions()
    verify: Verifier | None = field(default=None, repr=False)
    metrics: Metrics = field(default_factory=Metrics)
    tickets: Tickets = field(default_factory=Tickets)
    bodies: Bodies = field(init=False, repr=False)
    streams: Counter[str] = field(default_factory=Counter, init=False, repr=False)  # open now, by reader
    _verifying: Verifying | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.bodies = Bodies(BodyLimits(seconds=self.options.body))
        self._verifying = Verifying(self.verify) if self.verify is not None else None

    async def reader(self, request: HTTPConnection, *, ticket: bool = False) -> Reader:
        """Return who asks.

        Args:
            request: the request.
            ticket: a ticket will do in the token's place.

        Raises:
            RefusedRequest: the token is missing, not good, or none that may read.
        """
        given = request.query_params.get("ticket") if ticket else None
        if given is not None and self.verify is not None:
            self._refuse_other_pages(request)
            return self.tickets.take(given)
        reader = await self.caller(request)
        if self.verify is not None and not reader.roles & MAY_READ:
            raise RefusedRequest(403, "the token's roles may not read")
        return reader

    async def caller(self, request: HTTPConnection) -> Reader:
        """Return whose a request's token is, whatever he may do.

        Args:
            request: the request.

        Raises:
            RefusedRequest: the token is missing or not good.
        """
        self._refuse_other_pages(request)
        if self._verifying is None:
            return ANYBODY
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorized("a token is needed")
        return await self._verifying(token.strip())

    @contextmanager
    def stream(self, transport: str, reader: Reader) -> Iterator[None]:
        """Take one of the places for streams; no reader gets the last tenth of them, where readers are told apart.

        Args:
            transport: for the metrics.
            reader: whose it is.

        Raises:
            RefusedRequest: there is none.
        """
        most = self.options.connections
        share = most if self.verify is None else most - most // 10
        if self.streams.total() >= most or self.streams[reader.name] >= share:
            self.metrics.refused += 1
            raise later("too many connections", 5)
        self.streams[reader.name] += 1
        self.metrics.open[transport] += 1
        try:
            yield
        finally:
            self.streams[reader.name] -= 1
            if not self.streams[reader.name]:
                del self.streams[reader.name]
            self.metrics.open[transport] -= 1

    def _refuse_other_pages(self, request: HTTPConnection) -> None:
        """Refuse pages of strangers: a browser on this machine must not read for them what listens on its loopback."""
        if self.verify is None and _name(request.headers.get("host", "")) not in LOOPBACK:
            raise RefusedRequest(403, "without keys the gateway answers to its loopback address alone")
        origin = request.headers.get("origin")
        if origin is None or origin in self.options.origins or "*" in self.options.origins:
            return
        if origin.partition("://")[2] != request.headers.get("host"):
            raise RefusedRequest(403, "pages of this origin may not ask")


def _name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] if host.count(":") else host
