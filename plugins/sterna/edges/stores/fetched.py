"""Foreign metadata crosses the wide network once: what a plan reads of it is kept beside the plan, for the stages
that come after.

Nothing depends on it: what is missing there is read at its source again.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from sterna.edges.stores.objects import READ_LIMIT, Objects
from sterna.edges.stores.open_store import OpenStore
from sterna.errors import ObjectMissing
from sterna.registry.model import Location


class FetchingObjects(Objects):
    """Objects that keep whatever they read of other regions below a run's folder.

    Args:
        objects: whose connections are used.
        run: URI of the run's folder.
    """

    def __init__(self, objects: Objects, run: str) -> None:
        super().__init__(objects.mapping, objects.secrets, timeout=objects.timeout, workers=objects.workers)
        self._objects = objects
        self._run = run

    def open(self, location: Location) -> OpenStore:
        """Return a location's store; see `Objects.open`."""
        return self._objects.open(location)

    def read(self, uri: str, *, limit: int = READ_LIMIT) -> bytes:
        """Return an object's content; see `Objects.read`."""
        data = super().read(uri, limit=limit)
        if not self.mapping.is_local(uri):
            self.write_new(fetched_uri(self._run, uri), data, looked=True)
        return data


def read_fetched(objects: Objects, run: str, uri: str) -> bytes:
    """Return what a run's plan has read of an object; what it didn't keep is read at its source.

    Args:
        objects: the stores.
        run: URI of the run's folder.
        uri: the object.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied: as `Objects.read`.
    """
    if not objects.mapping.is_local(uri):
        with suppress(ObjectMissing):
            return objects.read(fetched_uri(run, uri))
    return objects.read(uri)


def fetched_uri(run: str, uri: str) -> str:
    """Return where a run keeps what it read at a URI."""
    return f"{run}/fetched/{hashlib.sha256(uri.encode()).hexdigest()[:32]}"
