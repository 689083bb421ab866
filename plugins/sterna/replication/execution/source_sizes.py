"""Reading sizes from foreign stores, so that an unavailable one fails the tables that need it, and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sterna.errors import OUTAGES, EngineError, SternaError, StoreUnreachable
from sterna.replication.execution.fault_attribution import attribute_fault, is_unavailable, location_id_of
from sterna.storage.objects import Objects

LISTING_MIN_FILES = 16
"""Above this number of files a listing returns their sizes with fewer requests than one each."""
Unavailable = dict[str, StoreUnreachable]
"""By the id of a location: the error of its store, which did not answer. Each timeout is paid only once."""


def source_sizes(
    objects: Objects, files: Sequence[tuple[str, str]], unavailable: Unavailable
) -> tuple[dict[str, int | None], dict[tuple[str, str], SternaError]]:
    """Return the sizes of files at their sources.

    Args:
        files: table and URI of each.
        unavailable: stores that are skipped; those that don't answer are added.

    Returns:
        Sizes by URI, None where there is no such object; and by table and URI the errors of those that could not be
        read, because of a foreign store or of the table's own metadata.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
    """
    sizes: dict[str, int | None] = {}
    faults: dict[tuple[str, str], SternaError] = {}
    for location, group in _by_location(objects, files).items():
        group_sizes = _sizes(objects, location, group, unavailable)
        if isinstance(group_sizes, dict):
            sizes |= group_sizes
            continue
        # Access may be denied to one table's files and granted to another's; a malformed name is its table's fault.
        for table, table_group in _by_table(group).items():
            table_sizes = (
                group_sizes if location in unavailable else _sizes(objects, location, table_group, unavailable)
            )
            if isinstance(table_sizes, dict):
                sizes |= table_sizes
            else:
                faults |= {(table, uri): table_sizes for _, uri in table_group}
    return sizes, faults


def _sizes(
    objects: Objects, location: str, files: Sequence[tuple[str, str]], unavailable: Unavailable
) -> dict[str, int | None] | SternaError:
    if location in unavailable:
        return unavailable[location]
    try:
        return objects.sizes({uri for _, uri in files})
    except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
        fault = attribute_fault(error, objects.mapping, "looking for its files", files[0][1], files[0][0])
        record_unavailable(unavailable, fault, objects)
        return fault


def record_unavailable(unavailable: Unavailable, error: SternaError, objects: Objects) -> None:
    """Record the store that a failure is about, where it doesn't answer, so that no other table waits for it.

    Args:
        unavailable: where it is recorded. No request is sent to a store that is recorded already.
    """
    location = location_id_of(error.file, objects.mapping)
    if location not in unavailable and is_unavailable(error, objects):
        unavailable[location] = error


@dataclass
class Outages:
    """The foreign stores that a plan could not use, and Spark where it had to list files.

    Args:
        unavailable: those that don't answer: no other table waits for them.
        first: the first error of all.
    """

    unavailable: Unavailable = field(default_factory=dict)
    first: SternaError | None = None

    def record(self, error: SternaError, objects: Objects) -> None:
        """Record a failure, where it is a store's, and whether that store answers at all."""
        self.record_error(error)
        record_unavailable(self.unavailable, error, objects)

    def record_error(self, error: SternaError) -> None:
        """Record a failure of the engine, or of a store whose availability is already checked."""
        if isinstance(error, (*OUTAGES, EngineError)):
            self.first = self.first or error


def _by_location(objects: Objects, files: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, uri in files:
        groups[location_id_of(uri, objects.mapping)].append((table, uri))
    return groups


def _by_table(files: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, uri in files:
        groups[table].append((table, uri))
    return groups
