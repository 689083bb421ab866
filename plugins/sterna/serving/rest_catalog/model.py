"""What the address answers with, before it becomes bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class SnapshotMode(Enum):
    """Which snapshots a client wants of a table: the parameter `snapshots`."""

    ALL = "all"
    REFS = "refs"


@dataclass(frozen=True)
class LoadedTable:
    """A table or view as a client gets it, the specification's LoadTableResult.

    Args:
        metadata_location: the URI of the metadata.json in this region that it was made from; "": a table that is
            staged has none yet.
        metadata: the content of it, with places laid over.
        config: properties for the client.
    """

    metadata_location: str
    metadata: Mapping[str, Any]
    config: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            **({"metadata-location": self.metadata_location} if self.metadata_location else {}),
            "metadata": dict(self.metadata),
            "config": dict(self.config),
        }
