"""The interface of topics' readers, whatever the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ConsumerRecords:
    """Messages of one partition of a topic, in their order.

    Args:
        offsets: of each, ascending; there may be gaps.
        values: their bodies; None: a tombstone.
    """

    partition: int
    offsets: list[int]
    values: list[bytes | None]


@dataclass(frozen=True)
class PartitionEof:
    """The end of a partition was reached.

    Args:
        offset: the smallest offset of the next message.
    """

    partition: int
    offset: int


OnAssign = Callable[[Sequence[int]], Mapping[int, int]]
"""Returns the offsets at which to begin the assigned partitions; one that is left out isn't read."""
OnRevoke = Callable[[Sequence[int]], object]
"""Called with the partitions that this member reads no longer."""


class MessageSource(Protocol):
    """A reader of one topic: see `KafkaSource`."""

    def id(self) -> str:
        """Return the topic's id."""

    def partitions(self) -> list[int]:
        """Return the topic's partitions."""

    def offset_range(self, partition: int) -> tuple[int, int]:
        """Return the oldest offset of a partition, and the next one."""

    def subscribe(self, on_assign: OnAssign, on_revoke: OnRevoke) -> None:
        """Join the group."""

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read some partitions from these offsets on, as no member of the group."""

    def read(self, seconds: float) -> Iterator[ConsumerRecords | PartitionEof]:
        """Yield what arrives within some seconds."""

    def seek(self, partition: int, offset: int) -> None:
        """Continue a partition at another offset."""

    def set_paused(self, *, paused: bool) -> None:
        """Pause or resume reading."""

    def commit_offset(self, partition: int, offset: int) -> None:
        """Commit an offset to the group, for display."""

    def close(self) -> None:
        """Leave the group."""
