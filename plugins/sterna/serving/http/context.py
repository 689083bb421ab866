"""What all routers of a gateway share: authorization, the limit of streams, and counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from sterna.replication.replica.authorization import READER_ROLES, TableAccess
from sterna.serving.http.errors import RequestError, unauthorized, unavailable
from sterna.serving.http.json_body import BodyLimits, BodyReader
from sterna.serving.http.metrics import Metrics
from sterna.serving.http.tokens import ANONYMOUS, Reader, TicketStore, Verifier, VerifierPool

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")


@dataclass(frozen=True)
class ServeOptions:
    """How a gateway listens.

    Args:
        host: the address it listens on.
        port: the port; 0: any that is free.
        max_connections: streams that may be open at once.
        heartbeat: seconds after which a stream without news is sent a sign of life.
        write_timeout: seconds after which a client that takes nothing is closed.
        header_timeout: seconds within which a request's headers have to be here.
        body_timeout: seconds within which a body of JSON has to be here.
        origins: web pages of these origins are allowed.
        grace: seconds that streams have to end when the gateway does.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    max_connections: int = 10_000
    heartbeat: float = 15.0
    write_timeout: float = 60.0
    header_timeout: float = 10.0
    body_timeout: float = 20.0
    origins: tuple[str, ...] = ()
    grace: float = 10.0


@dataclass
class Gateway:
    """One gateway.

    Args:
        audience: which roles may read which table.
        verify: returns the reader of a token; None: there are no keys, and anyone on the loopback may read.
    """

    audience: TableAccess
    options: ServeOptions = ServeOptions()
    verify: Verifier | None = field(default=None, repr=False)
    metrics: Metrics = field(default_factory=Metrics)
    tickets: TicketStore = field(default_factory=TicketStore)
    bodies: BodyReader = field(init=False, repr=False)
    streams: Counter[str] = field(default_factory=Counter, init=False, repr=False)  # open now, by reader
    _verifier_pool: VerifierPool | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.bodies = BodyReader(BodyLimits(seconds=self.options.body_timeout))
        self._verifier_pool = VerifierPool(self.verify) if self.verify is not None else None

    async def require_reader(self, request: HTTPConnection, *, ticket: bool = False) -> Reader:
        """Return the reader of a request.

        Args:
            ticket: a ticket will do in the token's place.

        Raises:
            RequestError: the token is missing, not good, or none that may read.
        """
        ticket_id = request.query_params.get("ticket") if ticket else None
        if ticket_id is not None and self.verify is not None:
            self._validate_origin(request)
            return self.tickets.redeem(ticket_id)
        reader = await self.authenticate(request)
        if self.verify is not None and not reader.roles & READER_ROLES:
            raise RequestError(403, "the token's roles may not read")
        return reader

    async def authenticate(self, request: HTTPConnection) -> Reader:
        """Return the reader of a request's token, whatever its roles.

        Raises:
            RequestError: the token is missing or not good.
        """
        self._validate_origin(request)
        if self._verifier_pool is None:
            return ANONYMOUS
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorized("a token is needed")
        return await self._verifier_pool(token.strip())

    @contextmanager
    def admit_stream(self, transport: str, reader: Reader) -> Iterator[None]:
        """Take one of the places for streams; where readers are distinguished, none gets the last tenth.

        Args:
            transport: for the metrics.
            reader: whose it is.

        Raises:
            RequestError: there is none.
        """
        limit = self.options.max_connections
        reader_limit = limit if self.verify is None else limit - limit // 10
        if self.streams.total() >= limit or self.streams[reader.name] >= reader_limit:
            self.metrics.refused_streams += 1
            raise unavailable("too many connections", 5)
        self.streams[reader.name] += 1
        self.metrics.open[transport] += 1
        try:
            yield
        finally:
            self.streams[reader.name] -= 1
            if not self.streams[reader.name]:
                del self.streams[reader.name]
            self.metrics.open[transport] -= 1

    def _validate_origin(self, request: HTTPConnection) -> None:
        """Refuse pages of strangers: a browser on this machine must not read for them what listens on its loopback."""
        if self.verify is None and _host_name(request.headers.get("host", "")) not in LOOPBACK:
            raise RequestError(403, "without keys the gateway answers to its loopback address alone")
        origin = request.headers.get("origin")
        if origin is None or origin in self.options.origins or "*" in self.options.origins:
            return
        if origin.partition("://")[2] != request.headers.get("host"):
            raise RequestError(403, "pages of this origin may not ask")


def _host_name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] if host.count(":") else host
