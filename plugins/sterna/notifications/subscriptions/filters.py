"""Which tables a client is told of: what it asks for, and may read. All who ask for the same share one view.

Clients choose their patterns. So what views remember is bounded for all of them together, those included that only a
stream still has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from sterna.notifications.change_log.table_filters import TablePattern
from sterna.replication.replica.authorization import TableAccess

_MAX_CACHED_ANSWERS = 100_000  # about 30 MB
_MAX_FILTERS = 1_000


class FilterCache:
    """Which tables views show, as far as that was asked already.

    Args:
        max_answers: answers that are remembered.
    """

    def __init__(self, max_answers: int = _MAX_CACHED_ANSWERS) -> None:
        self._max_answers = max_answers
        self._answers: dict[tuple[int, str], bool] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._answers)

    def number(self) -> int:
        """Return a number for a view that no other one has, or had."""
        return next(self._numbers)

    def get(self, number: int, table: str) -> bool | None:
        """Return whether a view shows a table, None where that isn't known."""
        return self._answers.get((number, table))

    def put(self, number: int, table: str, allowed: bool) -> None:
        """Remember whether a view shows a table."""
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[(number, table)] = allowed


@dataclass
class EventFilter:
    """Which tables one kind of client is told of; shared by all who ask for the same with the same roles."""

    audience: TableAccess
    patterns: tuple[TablePattern, ...]
    roles: frozenset[str]
    cache: FilterCache = field(default_factory=FilterCache, repr=False)

    def __post_init__(self) -> None:
        self.number = self.cache.number()

    def allows(self, table: str) -> bool:
        """Tell whether the client is told of a table."""
        allowed = self.cache.get(self.number, table)
        if allowed is None:
            requested = not self.patterns or any(pattern.matches(table) for pattern in self.patterns)
            allowed = requested and self.audience.may_read(table, self.roles)
            self.cache.put(self.number, table, allowed)
        return allowed


class EventFilters:
    """The views of one gateway.

    Args:
        audience: who may be told of what.
        max_filters: views that are kept for others who ask for the same.
        max_answers: answers that all of them together remember.
    """

    def __init__(
        self, audience: TableAccess, max_filters: int = _MAX_FILTERS, max_answers: int = _MAX_CACHED_ANSWERS
    ) -> None:
        self.cache = FilterCache(max_answers)
        self._audience = audience
        self._max_filters = max_filters
        self._filters: dict[tuple[tuple[str, ...], frozenset[str]], EventFilter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def filter_for(self, tables: tuple[str, ...], roles: frozenset[str]) -> EventFilter:
        """Return the view of somebody.

        Args:
            tables: patterns that were checked; none: all tables.
            roles: the reader's.
        """
        key = (tables, roles)
        if key not in self._filters:
            if len(self._filters) >= self._max_filters:
                self._filters.clear()  # who has one keeps it
            patterns = (TablePattern(*tables),) if tables else ()
            self._filters[key] = EventFilter(self._audience, patterns, roles, self.cache)
        return self._filters[key]
