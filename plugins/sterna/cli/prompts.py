"""What the commands `sterna catalog …` look up and ask before they act."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import typer

from sterna.edges.secrets import Secrets
from sterna.errors import CatalogUnreachable, DatabaseUnreachable, UsageError
from sterna.ha.model import CatalogSite
from sterna.ha.rejoin import fence_if_old
from sterna.ha.site import look_at_all
from sterna.registry.model import Registry
from sterna.registry.policy import duration
from sterna.replica.region import read_registry


def open_registry(path: Path, region: str | None = None) -> Registry:
    """Read a registry whose regions have catalogs of their own.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: they have none, or there is no such region.
    """
    registry = read_registry(path)
    if not registry.has_copies:
        raise UsageError(
            f"the regions in {path} share one catalog",
            hint="give each region's catalog a `database`, see docs/registry.md",
        )
    if region is not None and region not in registry.region_names:
        raise UsageError(f"no region {region!r} in {path}: there are {', '.join(registry.region_names)}")
    return registry


def look(path: Path, secrets: Secrets) -> list[CatalogSite]:
    """Return all regions' catalogs."""
    return list(look_at_all(open_registry(path).regions, secrets).values())


def agreed(text: str, yes: bool) -> None:
    """Say what will be done and ask, on stderr.

    Raises:
        UsageError: nobody is there to answer.
        typer.Abort: the answer was no.
    """
    typer.echo(text, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this asks before it acts, and nobody is at the terminal", hint="--yes")
    typer.confirm("Go on?", abort=True, err=True)


def guard(registry: Registry, secrets: Secrets, name: str, every: str | None, say: Callable[[str], None]) -> None:
    """Fence a region's catalog while another one is the primary; once, or again and again until interrupted.

    Raises:
        CatalogUnreachable: once: no other region answers.
        DatabaseUnreachable: once: the region's own Postgres does not.
    """
    pause = seconds("--every", every) if every else None
    known = ""
    while True:
        try:
            primary = fence_if_old(registry.region(name), registry, secrets)
            if primary != known:
                say(
                    f"{name} is the primary"
                    if primary == name
                    else f"{primary} is the primary: {name} takes no commits"
                )
            known = primary
        except (CatalogUnreachable, DatabaseUnreachable) as error:
            if pause is None:
                raise
            say(str(error))
        if pause is None:
            return
        time.sleep(pause)


def seconds(option: str, text: str) -> float:
    """Return a duration in seconds.

    Raises:
        UsageError: it is none.
    """
    found = duration(text)
    if found is None:
        raise UsageError(f"{option} {text}: expected a duration such as 90s or 5m")
    return float(found)
