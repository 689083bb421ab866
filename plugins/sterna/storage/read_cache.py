"""Foreign metadata crosses the wide network once: what a plan reads of it is kept beside the plan, for the stages
that come after.

Nothing depends on it: what is missing there is read at its source again.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Protocol

from sterna.config.mapping import Mapping
from sterna.config.registry.run_names import fetched_name
from sterna.errors import ObjectMissing


class ObjectSource(Protocol):
    """Whatever reads objects by their URI; see `Objects`."""

    @property
    def mapping(self) -> Mapping:
        """The region's mapping of URIs."""
        ...

    def read(self, uri: str) -> bytes:
        """Return an object's content."""
        ...


def read_cached(objects: ObjectSource, run: str, uri: str) -> bytes:
    """Return what a run's plan has read of an object; what it didn't keep is read at its source.

    Args:
        run: URI of the run's folder.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied: as `Objects.read`.
    """
    if not objects.mapping.is_local(uri):
        with suppress(ObjectMissing):
            return objects.read(cache_uri(run, uri))
    return objects.read(uri)


def cache_uri(run: str, uri: str) -> str:
    """Return where a run keeps what it read at a URI."""
    return f"{run}/{fetched_name(hashlib.sha256(uri.encode()).hexdigest())}"
