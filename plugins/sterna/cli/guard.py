"""The loop of `sterna catalog guard`."""

from __future__ import annotations

import time
from collections.abc import Callable

from sterna.edges.secrets import Secrets
from sterna.errors import CatalogError, CatalogUnreachable, CredentialError
from sterna.ha.rejoin import Guarded, guard_region
from sterna.registry.model import Registry


def guard(registry: Registry, secrets: Secrets, name: str, pause: float | None, say: Callable[[str], None]) -> None:
    """Fence a region's catalog while another one is the primary; once, or again and again until interrupted.

    Again and again it goes on whatever it can't see, for it may see it the next time; it says so whenever that changes.

    Args:
        registry: all regions have a `catalog.database`.
        secrets: finds credentials.
        name: the region.
        pause: seconds between two looks; None: once.
        say: called with who the primary is, whenever that changes.

    Raises:
        CatalogUnreachable: once: whether the region is still the primary can't be told, since another one was not seen.
        CatalogError: once: see `guard_region`.
        CredentialError: once: the region's own credential is missing.
    """
    known = ""
    while True:
        try:
            line = _line(name, guard_region(registry.region(name), registry, secrets))
        except (CatalogError, CredentialError) as error:
            if pause is None:
                raise
            line = str(error)
        if line != known:
            say(line)
        known = line
        if pause is None:
            return
        time.sleep(pause)


def _line(name: str, found: Guarded) -> str:
    """Return who the primary is.

    Raises:
        CatalogUnreachable: that can't be told.
    """
    if found.unseen:
        raise CatalogUnreachable(
            f"can't tell whether {name} is still the primary: as far as was seen it is, epoch {found.epoch}; not seen: "
            f"{'; '.join(f'{region}: {why}' for region, why in found.unseen.items())}",
            hint="once all answer, run this again; to go on without, see docs/operations.md",
        )
    if found.primary == name:
        return f"{name} is the primary"
    return f"{found.primary} is the primary: {name} takes no commits"
