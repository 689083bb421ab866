"""The loop of `sterna catalog guard`."""

from __future__ import annotations

import time
from collections.abc import Callable

from sterna.config.registry.model import Registry
from sterna.config.secrets import Secrets
from sterna.errors import CatalogError, CatalogUnreachable, CredentialError
from sterna.replication.failover.rejoin import GuardCheck, guard_region


def guard_loop(
    registry: Registry, secrets: Secrets, name: str, interval: float | None, progress: Callable[[str], None]
) -> None:
    """Fence a region's catalog while another one is the primary; once, or repeatedly until interrupted.

    When repeated, a region that can't be reached is an error that is reported once, and retried.

    Args:
        registry: all regions have a `catalog.database`.
        name: the region.
        interval: seconds between two checks; None: once.
        progress: called with a message whenever the primary changes.

    Raises:
        CatalogUnreachable: once: a region was not reached, so that the primary is uncertain.
        CatalogError: once: see `guard_region`.
        CredentialError: once: the region's own credential is missing.
    """
    last_line = ""
    while True:
        try:
            line = _primary_line(name, guard_region(registry.region(name), registry, secrets))
        except (CatalogError, CredentialError) as error:
            if interval is None:
                raise
            line = str(error)
        if line != last_line:
            progress(line)
        last_line = line
        if interval is None:
            return
        time.sleep(interval)


def _primary_line(name: str, check: GuardCheck) -> str:
    """Return a message on the primary.

    Raises:
        CatalogUnreachable: it is uncertain.
    """
    if check.unseen:
        raise CatalogUnreachable(
            f"can't tell whether {name} is still the primary: as far as was seen it is, epoch {check.epoch}; not seen: "
            f"{'; '.join(f'{region}: {reason}' for region, reason in check.unseen.items())}",
            hint="once all answer, run this again; to continue without, see docs/operations.md",
        )
    if check.primary == name:
        return f"{name} is the primary"
    return f"{check.primary} is the primary: {name} takes no commits"
