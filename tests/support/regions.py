"""A region whose connections a test gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sterna.config.registry.model import Registry
from sterna.config.secrets import Secrets
from sterna.replication.replica.ports import Ports
from sterna.replication.replica.region import RegionContext


def injected(registry: Registry, region: str, secrets: Secrets, **ports: Any) -> RegionContext:
    """Return a region of a registry over some connections of the test's own; see `Ports`."""
    return with_ports(RegionContext.of(registry, registry.region(region), secrets), **ports)


def with_ports(context: RegionContext, **ports: Any) -> RegionContext:
    """Return the same region over some connections of the test's own."""
    return replace(context, ports=Ports(context.registry, context.region, context.secrets, **ports))
