"""Asking foreign stores for sizes, so that one which can't be used fails the tables that need it, and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sterna.edges.stores.objects import Objects
from sterna.errors import EngineError, SternaError, StoreUnreachable
from sterna.sync.blame import OUTAGES, fault_of, is_dark, place_of

MANY = 16
"""From more files than these on one listing tells sizes with less than a request each."""
Dark = dict[str, StoreUnreachable]
"""By the id of a location: the error of its store, which did not answer. It takes long to find that out, once."""


def source_sizes(
    objects: Objects, files: Sequence[tuple[str, str]], dark: Dark
) -> tuple[dict[str, int | None], dict[tuple[str, str], SternaError]]:
    """Return the sizes of files at their sources.

    Args:
        objects: the stores.
        files: table and URI of each.
        dark: stores that are not asked again; takes those that don't answer.

    Returns:
        Sizes by URI, None where there is no such object; and by table and URI the errors of those that a store of
        somebody else's, or what the table itself says, kept from being looked at.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
    """
    sizes: dict[str, int | None] = {}
    faults: dict[tuple[str, str], SternaError] = {}
    for location, group in _by_location(objects, files).items():
        found = _sizes(objects, location, group, dark)
        if isinstance(found, dict):
            sizes |= found
            continue
        # Who has no right to one table's files may have it to another's; and what is wrong with a name is its table's.
        for table, mine in _by_table(group).items():
            alone = found if location in dark else _sizes(objects, location, mine, dark)
            if isinstance(alone, dict):
                sizes |= alone
            else:
                faults |= {(table, uri): alone for _, uri in mine}
    return sizes, faults


def _sizes(
    objects: Objects, location: str, files: Sequence[tuple[str, str]], dark: Dark
) -> dict[str, int | None] | SternaError:
    if location in dark:
        return dark[location]
    try:
        return objects.sizes({uri for _, uri in files})
    except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
        fault = fault_of(error, objects.mapping, "looking for its files", files[0][1], files[0][0])
        note_dark(dark, fault, objects)
        return fault


def note_dark(dark: Dark, error: SternaError, objects: Objects) -> None:
    """Note the store that a failure is about, where it doesn't answer: nobody waits for it again.

    Args:
        dark: takes it. A store that is noted already is not asked.
        error: the failure.
        objects: the stores.
    """
    place = place_of(error.file, objects.mapping)
    if place not in dark and is_dark(error, objects):
        dark[place] = error


@dataclass
class Outages:
    """The stores of others that a plan could not use, and Spark where it had to list files.

    Args:
        dark: those that don't answer: no other table waits for them again.
        first: the first error of any.
    """

    dark: Dark = field(default_factory=dict)
    first: SternaError | None = None

    def take(self, error: SternaError, objects: Objects) -> None:
        """Remember a failure, where it is a store's, and whether that store answers at all."""
        self.note(error)
        note_dark(self.dark, error, objects)

    def note(self, error: SternaError) -> None:
        """Remember a failure, where it is the engine's, or a store's of which it is known whether it answers."""
        if isinstance(error, (*OUTAGES, EngineError)):
            self.first = self.first or error


def _by_location(objects: Objects, files: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, uri in files:
        groups[place_of(uri, objects.mapping)].append((table, uri))
    return groups


def _by_table(files: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, uri in files:
        groups[table].append((table, uri))
    return groups
