"""What a topic's reader is told, whichever broker it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ConsumerRecord:
    """A message.

    Args:
        partition: where it stood.
        offset: the same.
        value: what it brings; None: a tombstone.
    """

    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True)
class PartitionEof:
    """All that a partition has now was read.

    Args:
        partition: which.
        offset: what comes next will have at least this one.
    """

    partition: int
    offset: int


OnAssign = Callable[[Sequence[int]], Mapping[int, int]]
"""Returns the offsets at which to begin to read some partitions; one that it leaves out isn't read."""
OnRevoke = Callable[[Sequence[int]], object]
"""Told which partitions somebody else reads from now on."""


class MessageSource(Protocol):
    """What a topic is read by: see `KafkaSource`."""

    def id(self) -> str:
        """Return the topic's id."""
        ...

    def partitions(self) -> list[int]:
        """Return the topic's partitions."""
        ...

    def offset_range(self, partition: int) -> tuple[int, int]:
        """Return the oldest offset of a partition, and the next one."""
        ...

    def subscribe(self, on_assign: OnAssign, on_revoke: OnRevoke) -> None:
        """Join the group."""
        ...

    def read(self, seconds: float) -> Iterator[ConsumerRecord | PartitionEof]:
        """Yield what arrives within some time."""
        ...

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading a partition elsewhere."""
        ...

    def set_paused(self, *, paused: bool) -> None:
        """Read nothing for now, or go on."""
        ...

    def commit_offset(self, partition: int, offset: int) -> None:
        """Tell the group how far a partition is read."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...
