"""The section `sinks` of the services file: where events are sent (docs/events.md)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from sterna.config.durations import DURATION_UNITS, duration_seconds
from sterna.config.sections.readers import Pattern, Role
from sterna.config.sections.types import DurationText, EmptyAs
from sterna.config.yaml import StrictModel

# A dash would make the name of a position's tag ambiguous: regions may have some.
SINK_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")
_SERVER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:]{2,39}\]):([0-9]{1,5})")
_DEFAULT_TOPIC = "iceberg.table.updates"
_MAX_SECONDS = 365 * 86_400
_URL = re.compile(r"[!-~]{1,2000}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Port = Annotated[int, Field(ge=1, le=65_535)]


def _parse_seconds(value: Any) -> Any:
    seconds = duration_seconds(value)
    if seconds is None or seconds > _MAX_SECONDS:
        raise ValueError(f"expected a duration such as 90s or 24h ({DURATION_UNITS}), of a year at most")
    return seconds


def _parse_networks(value: Any) -> Any:
    try:
        return [str(ipaddress.ip_network(network)) for network in value] if isinstance(value, list) else value
    except ValueError:
        raise ValueError("expected networks such as 10.1.0.0/16") from None


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


Seconds = Annotated[int, BeforeValidator(_parse_seconds, json_schema_input_type=DurationText)]


class TargetSettings(StrictModel):
    """The settings of one kind of target."""

    def credential_fault(self, credential_id: str | None) -> str:
        """Return what is wrong with a sink's `credential_id` for this target, "" where nothing is."""
        return ""


class BrokerSettings(TargetSettings):
    """The settings of a broker, which may ask for a login.

    Args:
        tls: whether to speak TLS; without it no `credential_id` is sent.
    """

    tls: bool = True

    def credential_fault(self, credential_id: str | None) -> str:
        """See `TargetSettings.credential_fault`."""
        if self.tls or not credential_id:
            return ""
        return "a password goes over TLS alone; leave it out, or tls on"


class Webhook(TargetSettings):
    """A receiver over HTTP, by the rules of Standard Webhooks.

    Args:
        url: where each event is posted; https, or http within the networks that are allowed.
        allow_networks: private networks that may contain the address.
        timeout: seconds that one answer may take.
    """

    url: str
    allow_networks: Annotated[list[str], BeforeValidator(_parse_networks)] = Field(default_factory=list)
    timeout: Seconds = 15

    @field_validator("url")
    @classmethod
    def _validate_url(cls, value: str) -> str:
        if not _URL.fullmatch(value):
            raise ValueError("expected a URL in ASCII, of 2000 characters at most")
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError("expected a URL such as https://example.com/hook") from None
        if parts.scheme not in ("https", "http") or not _HOST.fullmatch(host):
            raise ValueError("expected a URL such as https://example.com/hook")
        if "@" in parts.netloc or parts.fragment:
            raise ValueError("a URL with user-info or a fragment is refused: secrets belong in the credential")
        return value

    @model_validator(mode="after")
    def _validate_plain_http(self) -> Webhook:
        parts = urlsplit(self.url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS and not self.allow_networks:
            raise ValueError("url: http is for the loopback and for allow_networks; else it has to be https")
        return self

    def credential_fault(self, credential_id: str | None) -> str:
        """See `TargetSettings.credential_fault`."""
        return "" if credential_id else "a webhook needs one, whose password signs what is sent"

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks that are allowed."""
        return tuple(ipaddress.ip_network(network) for network in self.allow_networks)


class KafkaTopic(BrokerSettings):
    """A topic of a Kafka.

    Args:
        servers: where clients begin, each as `host:port`.
        topic: the topic.
        mechanism: how to log in; where the sink has a credential.
    """

    servers: list[str] = Field(min_length=1, max_length=100)
    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")] = _DEFAULT_TOPIC
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"

    @field_validator("servers")
    @classmethod
    def _validate_servers(cls, value: list[str]) -> list[str]:
        for server in value:
            match = _SERVER.fullmatch(server)
            if match is None or not 0 < int(match[2]) <= 65_535:
                raise ValueError("expected servers such as kafka.example.com:9093")
        return value


class AmqpAddress(BrokerSettings):
    """A broker that speaks AMQP 1.0.

    Args:
        host: host name or address.
        port: its port.
        topic: the address: a queue or a topic.
    """

    host: str
    port: Port = 5671
    topic: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,260}$")] = _DEFAULT_TOPIC

    @field_validator("host")
    @classmethod
    def _validate_host(cls, value: str) -> str:
        if not _HOST.fullmatch(value):
            raise ValueError("expected a host's name or address")
        return value

    @model_validator(mode="after")
    def _validate_tls_host(self) -> AmqpAddress:
        # Qpid Proton compares a certificate with names alone.
        if self.tls and _is_address(self.host):
            raise ValueError("host: with TLS it has to be a name, which the broker's certificate has")
        return self


class Target(StrictModel):
    """Where a sink sends: exactly one of these, each a kind whose sender is the module of that name in `brokers/`."""

    webhook: Webhook | None = None
    kafka: KafkaTopic | None = None
    amqp: AmqpAddress | None = None

    @model_validator(mode="after")
    def _validate_single_kind(self) -> Target:
        if len(list(self._configured())) != 1:
            raise ValueError(f"expected exactly one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def kind(self) -> str:
        """Which one it is."""
        return next(self._configured())[0]

    @property
    def settings(self) -> TargetSettings:
        """What stands there."""
        return next(self._configured())[1]

    def _configured(self) -> Iterator[tuple[str, TargetSettings]]:
        return ((kind, settings) for kind, settings in self if settings is not None)


class Sink(StrictModel):
    """Events that are sent on.

    Args:
        tables: patterns of the tables whose events are sent; default: all.
        regions: the regions that send theirs; default: all.
        target: where to: exactly one kind of target.
        credential_id: the connection with the target's secrets; none: a broker needs none.
        roles: roles that the receiver counts as having, where `readers` has rules.
        retry_timeout: after it an event goes to the dead letters; it couldn't be delivered for so long.
    """

    tables: list[Pattern] = Field(default=["**"], min_length=1)
    regions: list[str] = Field(default_factory=list)
    target: Target
    credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")] | None = None
    roles: list[Role] = Field(default_factory=list)
    retry_timeout: Seconds = 86_400

    @model_validator(mode="after")
    def _validate_credential(self) -> Sink:
        if fault := self.target.settings.credential_fault(self.credential_id):
            raise ValueError(f"credential_id: {fault}")
        return self

    def sends_from(self, region: str) -> bool:
        """Return whether a region sends its events there."""
        return not self.regions or region in self.regions


def _validate_names(value: Any) -> Any:
    for name in value if isinstance(value, dict) else ():
        if not isinstance(name, str) or not SINK_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no sink's name: small letters, digits and _, beginning with a letter")
    return value


Sinks = Annotated[dict[str, Sink], BeforeValidator(_validate_names), EmptyAs({})]
