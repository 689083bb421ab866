"""Tries what a region's syncs need, from this machine: programs, servers, rights and clocks.

It changes nothing but one small object below the replica root, which it deletes at once.
"""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

from sterna.config.registry.folders import DOCTOR, state_folder
from sterna.config.registry.model import Location
from sterna.config.secrets import Secrets
from sterna.config.services_file import find_services, read_services
from sterna.errors import ClockSkew, ObjectMissing, SternaError, StoreError, StoreUnreachable, UnsafeUri
from sterna.operations.registry_check import Probe, check_registry, check_settings, run_probe
from sterna.operations.status.read import open_probe_store
from sterna.operations.versions import installed_versions
from sterna.replication.replica.region import RegionContext, open_region
from sterna.storage.objects import Objects

MAX_SKEW_SECONDS = 30.0
_DATE_RESOLUTION_SECONDS = 1.0
_CLOCK_TIMEOUT_SECONDS = 5.0
_CONTENT = b"sterna doctor\n"
_Progress = Callable[[str], None]


@dataclass(frozen=True)
class Examination:
    """What was tried of a region and of this machine.

    Args:
        ok: all of it works.
        region: the region's name.
        versions: what is installed, by name.
        probes: each thing that was tried.
    """

    ok: bool
    region: str
    versions: dict[str, str]
    probes: tuple[Probe, ...]


def examine(
    path: Path, region: str, services: Path | None, secrets: Secrets, progress: Callable[[str], None]
) -> Examination:
    """Try all that a region needs, with this machine's credentials; what fails is a probe, and the rest goes on.

    Where the registry can't be read, only what needs none of it is tried.

    Args:
        path: the registry file.
        region: the region's name.
        services: the services file, as `--services` names it.
        progress: called with each thing that is tried.
    """
    settings = run_probe("", f"registry {path}", lambda: _check_settings(path, region), progress)
    probes = [
        run_probe("", "temporary files", _check_temporary_files, progress),
        settings,
        run_probe("", "services file", lambda: _check_services(services), progress),
    ]
    if settings.good:
        probes += check_registry(path, region, secrets, progress).probes
        with open_region(path, region, secrets) as context:
            probes += _probe_machine(context, progress)
            probes += probe_rights(context, progress)
            probes += probe_clocks(context, progress)
    return Examination(all(probe.good for probe in probes), region, installed_versions(), tuple(probes))


def _check_settings(path: Path, region: str) -> str:
    return check_settings(path, region).probes[0].message


def _check_services(services: Path | None) -> str:
    file = find_services(services)
    sections = read_services(services).configured_sections
    return f"{file}: {', '.join(sections) or 'no section'}" if file else "there is none, so nothing is configured"


def _check_temporary_files() -> str:
    from sterna.storage.spill.temporary import SpillFile, temp_folder

    SpillFile().append(_CONTENT)
    return f"{temp_folder()} takes files"


def _probe_machine(context: RegionContext, progress: _Progress) -> Iterator[Probe]:
    from sterna.spark.start import is_connect

    if not is_connect(context.region.spark):
        yield run_probe(context.region.name, "Java", _check_java, progress)


def _check_java() -> str:
    from sterna.jvm.java import SPARK_MINIMUM_JAVA, find_java

    java = find_java(SPARK_MINIMUM_JAVA)
    return f"{java.version} in {java.home}"


def probe_rights(context: RegionContext, progress: _Progress) -> Iterator[Probe]:
    """Try to read an object of each location, and to write, read, list and delete one below the replica root.

    Yields:
        A probe for each of them; none of what follows where nothing could be written.
    """
    name, objects = context.region.name, open_probe_store(context)
    for location in context.registry.locations:
        yield run_probe(name, f"reading {location.prefix}", partial(_check_reading, objects, location), progress)
    root = context.region.replica_root
    folder = state_folder(root, DOCTOR)
    uri = f"{folder}/{uuid.uuid4()}"
    written = run_probe(name, f"writing below {root}", partial(_check_writing, objects, uri), progress)
    yield written
    if not written.good:
        return
    yield run_probe(name, f"reading below {root}", partial(_check_content, objects, uri), progress)
    yield run_probe(name, f"listing below {root}", partial(_check_listing, objects, folder, uri), progress)
    yield run_probe(name, f"deleting below {root}", partial(_check_deleting, objects, uri), progress)


def _check_reading(objects: Objects, location: Location) -> str:
    with suppress(UnsafeUri):  # an unusual key: others may be read
        for uri, _, _ in objects.list(location.prefix):
            with suppress(ObjectMissing):  # deleted meanwhile
                objects.require_readable(uri)
                return "can be read"
    return "has no object to read"


def _check_writing(objects: Objects, uri: str) -> str:
    objects.write_new(uri, _CONTENT)
    return "can be written"


def _check_content(objects: Objects, uri: str) -> str:
    if objects.read(uri, limit=len(_CONTENT)) != _CONTENT:
        raise StoreError("the store returns other content than was written", file=uri)
    return "can be read"


def _check_listing(objects: Objects, folder: str, uri: str) -> str:
    if uri not in {listed for listed, _, _ in objects.list(folder)}:
        raise ObjectMissing("the store doesn't list what was just written", file=uri)
    return "can be listed"


def _check_deleting(objects: Objects, uri: str) -> str:
    for error in objects.delete([uri]).values():
        raise error
    return "can be deleted"


def probe_clocks(context: RegionContext, progress: _Progress) -> Iterator[Probe]:
    """Compare this machine's clock with those of the region's catalog and of all stores that answer over HTTP.

    Yields:
        A probe for each server.
    """
    name, catalog = context.region.name, context.region.catalog.read
    yield run_probe(name, f"clock of {catalog}", partial(check_clock, catalog), progress)
    addresses: set[str] = set()
    for location in context.registry.locations:
        with suppress(SternaError):  # a missing credential is a probe already
            addresses.add(_store_url(context, location))
    for address in sorted(addresses - {""}):
        yield run_probe(name, f"clock of {address}", partial(check_clock, address), progress)


def _store_url(context: RegionContext, location: Location) -> str:
    """Return the address of a location's store, "" where it is a folder of this machine."""
    credential = context.secrets(location.credential_id) if location.credential_id else None
    options = location.store_type.store_options(location, credential)
    return str(options.get("endpoint") or options.get("base_url") or "")


def check_clock(address: str) -> str:
    """Compare this machine's clock with that of a server, by the Date of its answer, whatever else it answers.

    Args:
        address: the server's URL.

    Returns:
        What was seen, for people.

    Raises:
        StoreUnreachable: the server gives no answer.
        ClockSkew: the clocks differ by too much.
    """
    import httpx

    from sterna.catalog.nessie.http import request_problem

    sent = time.time()
    try:
        # The machine's own trust store, as for the catalog.
        answer = httpx.head(address, timeout=_CLOCK_TIMEOUT_SECONDS, verify=ssl.create_default_context())
    except httpx.RequestError as error:
        raise StoreUnreachable(f"the clock can't be read: {request_problem(error)}", file=address) from None
    except (httpx.InvalidURL, ImportError, ValueError) as error:  # a proxy's address, which may hold a password
        raise StoreUnreachable(f"the clock can't be read: {type(error).__name__}", file=address) from None
    if "age" in answer.headers:  # RFC 9111, section 5.1
        return "its answers come from a cache"
    date = answer.headers.get("date", "")
    skew = clock_skew_seconds(date, sent, time.time())
    if skew is None:
        return "its answers have no date"
    if skew > MAX_SKEW_SECONDS:
        raise ClockSkew(
            f"this machine's clock differs by {skew:.0f} s: the server says {date}",
            file=address,
            hint="correct this machine's clock, or the server's",
        )
    return f"differs by {skew:.0f} s" if skew else "agrees"


def clock_skew_seconds(date: str, sent: float, received: float) -> float | None:
    """Return by how many seconds two clocks differ at least; None where a server's answer has no valid date.

    Source: RFC 9110, section 6.6.1: `Date` has whole seconds, and is when the answer was made.

    Args:
        date: the header of the answer.
        sent: when the request was sent, by this machine's clock, in seconds since 1970.
        received: when the answer was there, likewise.
    """
    try:
        server = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    return max(0.0, sent - server - _DATE_RESOLUTION_SECONDS, server - received)
