"""The section `outlets` of the services file: where events are sent (docs/events.md)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from sterna.services.readers import Pattern, Role
from sterna.strict_yaml import StrictModel

# A dash would make the name of a position's tag ambiguous: regions may have some.
OUTLET_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")
_DURATION = re.compile(r"([0-9]{1,6})(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MOST_SECONDS = 365 * 86_400
_URL = re.compile(r"[!-~]{1,2000}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _seconds(value: Any) -> Any:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError("expected a duration such as 90s or 24h (units s, m, h, d, w), of a year at most")
    return seconds


def _networks(value: Any) -> Any:
    try:
        return [str(ipaddress.ip_network(each)) for each in value] if isinstance(value, list) else value
    except ValueError:
        raise ValueError("expected networks such as 10.1.0.0/16") from None


Seconds = Annotated[int, BeforeValidator(_seconds)]


class Webhook(StrictModel):
    """A receiver over HTTP, by the rules of Standard Webhooks.

    Args:
        url: where each event is posted: https, or http within the networks that are allowed.
        allow_networks: private networks that the address may lie in.
        timeout: what one answer may take.
    """

    url: str
    allow_networks: Annotated[list[str], BeforeValidator(_networks)] = Field(default_factory=list)
    timeout: Seconds = 15

    @field_validator("url")
    @classmethod
    def _reachable(cls, value: str) -> str:
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
            raise ValueError("a URL with user-info or a fragment is refused: secrets stand in the credential")
        return value

    @model_validator(mode="after")
    def _private_where_plain(self) -> Webhook:
        parts = urlsplit(self.url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS and not self.allow_networks:
            raise ValueError("url: http is for the loopback and for allow_networks; else it has to be https")
        return self

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks that are allowed."""
        return tuple(ipaddress.ip_network(each) for each in self.allow_networks)


class Target(StrictModel):
    """Where an outlet sends."""

    webhook: Webhook

    @property
    def kind(self) -> str:
        """Which kind it is."""
        return "webhook"


class Outlet(StrictModel):
    """Events that are sent on.

    Args:
        tables: patterns of the tables whose events are sent.
        regions: the regions that send theirs; none named: all.
        target: where to.
        credential_id: the Airflow connection with the target's secrets.
        roles: what the receiver may be told, where `readers` has rules: the roles that it counts as having.
        give_up: an event that can't be delivered for so long goes to the dead letters.
    """

    tables: list[Pattern] = Field(default=["**"], min_length=1)
    regions: list[str] = Field(default_factory=list)
    target: Target
    credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")]
    roles: list[Role] = Field(default_factory=list)
    give_up: Seconds = 86_400

    def sends_from(self, region: str) -> bool:
        """Tell whether a region sends its events there."""
        return not self.regions or region in self.regions


def _named(value: Any) -> Any:
    if value is None or value == []:
        return {}
    for name in value if isinstance(value, dict) else ():
        if not isinstance(name, str) or not OUTLET_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no outlet's name: small letters, digits and _, beginning with a letter")
    return value


Outlets = Annotated[dict[str, Outlet], BeforeValidator(_named)]
