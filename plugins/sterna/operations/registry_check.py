"""Probes of all that a registry names, from this machine: catalogs, stores, rclone and Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.catalog.reader import CatalogReader
from sterna.config.registry.model import SOURCE_BRANCH, Location, Registry
from sterna.config.secrets import Secrets
from sterna.errors import CatalogUnreachable, SternaError, UnsafeUri
from sterna.operations.run_book import error_card
from sterna.replication.replica.region import RegionContext, open_region, read_registry, region_named

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


@dataclass(frozen=True)
class Probe:
    """One thing that was tried, and whether it works.

    Args:
        region: for which region, "" where it is this machine's own.
        message: what was seen, or what is wrong.
        error: the error's class name, "" where it works.
        remedy: `retry`, `hold` or `stop`, "" where it works.
        card: link to the run book's card of the error.
    """

    region: str
    what: str
    good: bool
    message: str = ""
    exit_code: int = 0
    error: str = ""
    remedy: str = ""
    card: str = ""


@dataclass(frozen=True)
class RegistryCheck:
    """What was tried of a registry.

    Args:
        ok: all of it works.
        probes: each thing that was tried.
    """

    ok: bool
    probes: tuple[Probe, ...]


def check_registry(path: Path, region: str | None, secrets: Secrets, progress: Callable[[str], None]) -> RegistryCheck:
    """Read a registry and try everything in it, from this machine and with this machine's credentials.

    Args:
        path: the registry file.
        region: only what this region needs; None: all regions.
        progress: called with each thing that is tried.

    Raises:
        RegistryError: the file itself is wrong.
        UsageError: there is no such region.
    """
    registry = read_registry(path)
    probes: list[Probe] = []
    for name in [region] if region else registry.region_names:
        with open_region(path, name, secrets) as context:
            probes += _probe_region(context, progress)
    return RegistryCheck(all(probe.good for probe in probes), tuple(probes))


def check_settings(path: Path, region: str | None) -> RegistryCheck:
    """Read a registry and everything that it says by itself; contacts no server, and needs no credential.

    Args:
        path: the registry file.
        region: only this region; None: all regions.

    Raises:
        RegistryError: the file is wrong.
        UsageError: there is no such region.
    """
    registry = read_registry(path)
    names = [region_named(registry, region, path).name] if region else registry.region_names
    return RegistryCheck(
        True, tuple(Probe(name, "settings", True, _settings_summary(registry, name)) for name in names)
    )


def _settings_summary(registry: Registry, name: str) -> str:
    region = registry.region(name)
    own = [location.id for location in registry.locations if location.region == name]
    catalog_credential = [region.catalog.credential_id] if region.catalog.credential_id else []
    credentials = [location.credential_id for location in registry.locations if location.credential_id]
    return (
        f"branch {region.replica_branch}; own locations {', '.join(own)}; "
        f"credentials {', '.join(dict.fromkeys([*catalog_credential, *credentials])) or 'none'}"
    )


def _probe_region(context: RegionContext, progress: Callable[[str], None]) -> list[Probe]:
    from sterna.operations.status.read import open_probe_store

    objects = open_probe_store(context)
    checks: dict[str, Callable[[], str]] = {
        f"catalog {context.region.catalog.read}": partial(_check_own_catalog, context),
        "primary catalog"
        if context.registry.has_regional_catalogs
        else f"catalog {context.region.catalog.write}": partial(_check_primary, context),
        **{
            f"store {location.prefix}": partial(_check_store, objects, location)
            for location in context.registry.locations
        },
        "rclone": _check_rclone,
        f"Spark {context.region.spark}": partial(_check_spark, context),
    }
    return [run_probe(context.region.name, target, check, progress) for target, check in checks.items()]


def run_probe(region: str, target: str, check: Callable[[], str], progress: Callable[[str], None]) -> Probe:
    """Try one thing, and return whether it works.

    Args:
        region: the region's name, or "".
        target: what is tried, for people.
        check: tries it, and returns what it has seen.
        progress: called before it.
    """
    progress(f"{region}: {target}" if region else target)
    try:
        return Probe(region, target, True, check())
    except SternaError as error:
        name, card = type(error).__name__, error_card(error)
        return Probe(region, target, False, str(error), error.exit_code, name, error.remedy.value, card)


def _check_own_catalog(context: RegionContext) -> str:
    from sterna.replication.replica.catalog_copy import probe_catalog

    probe_catalog(context)
    return _main_text(context.catalog)


def _check_primary(context: RegionContext) -> str:
    from sterna.replication.replica.catalog_copy import probe_catalog, probe_primary

    if context.ports.reads_primary:
        probe_catalog(context)
    if reason := probe_primary(context):
        raise CatalogUnreachable(reason)
    return _main_text(context.primary)


def _main_text(catalog: CatalogReader) -> str:
    reference = catalog.reference(SOURCE_BRANCH)
    return f"{reference.name}@{reference.hash[:12]}"


def _check_store(objects: Objects, location: Location) -> str:
    with suppress(UnsafeUri):  # an unusual key: the store was listed all the same
        next(iter(objects.list(location.prefix)), None)
    return "can be listed"


def _check_rclone() -> str:
    from sterna.storage.rclone.transfer import rclone_version

    return rclone_version()


def _check_spark(context: RegionContext) -> str:
    from sterna.replication.execution.spark_executor import open_spark
    from sterna.spark.session import close_session

    close_session(open_spark(context))
    return "has what its workers need"
