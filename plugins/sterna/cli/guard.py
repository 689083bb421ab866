"""The loop of `sterna catalog guard`."""

from __future__ import annotations

import time
from collections.abc import Callable

from sterna.edges.secrets import Secrets
from sterna.errors import CatalogUnreachable, DatabaseUnreachable
from sterna.ha.rejoin import fence_if_old
from sterna.registry.model import Registry


def guard(registry: Registry, secrets: Secrets, name: str, pause: float | None, say: Callable[[str], None]) -> None:
    """Fence a region's catalog while another one is the primary; once, or again and again until interrupted.

    Args:
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.
        name: the region.
        pause: seconds between two looks; None: once.
        say: called with who the primary is, whenever that changes.

    Raises:
        CatalogUnreachable: once: no other region answers.
        DatabaseUnreachable: once: the region's own Postgres does not.
    """
    known = ""
    while True:
        try:
            primary = fence_if_old(registry.region(name), registry, secrets)
            if primary != known:
                say(_line(name, primary))
            known = primary
        except (CatalogUnreachable, DatabaseUnreachable) as error:
            if pause is None:
                raise
            say(str(error))
        if pause is None:
            return
        time.sleep(pause)


def _line(name: str, primary: str) -> str:
    return f"{name} is the primary" if primary == name else f"{primary} is the primary: {name} takes no commits"
