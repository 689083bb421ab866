"""Which tables' events a client gets: those that match its patterns and that it may read.

Clients with the same patterns and roles share a filter. Since clients choose their patterns, the cached answers are
bounded for all filters together, also for those that only an open stream still uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from sterna.notifications.change_log.table_filters import TablePattern
from sterna.replication.replica.authorization import TableAccess

_MAX_CACHED_ANSWERS = 100_000  # about 30 MB
_MAX_FILTERS = 1_000


class FilterCache:
    """Cached answers of all filters, by filter and table.

    Args:
        max_answers: how many are kept; then all are dropped.
    """

    def __init__(self, max_answers: int = _MAX_CACHED_ANSWERS) -> None:
        self._max_answers = max_answers
        self._answers: dict[tuple[int, str], bool] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._answers)

    def number(self) -> int:
        """Return a number for a new filter, never used before."""
        return next(self._numbers)

    def get(self, number: int, table: str) -> bool | None:
        """Return whether a filter allows a table, None where that isn't cached."""
        return self._answers.get((number, table))

    def put(self, number: int, table: str, allowed: bool) -> None:
        """Cache whether a filter allows a table."""
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[(number, table)] = allowed


@dataclass
class EventFilter:
    """The filter of all clients with the same patterns and roles."""

    audience: TableAccess
    patterns: tuple[TablePattern, ...]
    roles: frozenset[str]
    cache: FilterCache = field(default_factory=FilterCache, repr=False)

    def __post_init__(self) -> None:
        self.number = self.cache.number()

    def allows(self, table: str) -> bool:
        """Return whether a table's events are sent: it matches a pattern, and the roles may read it."""
        allowed = self.cache.get(self.number, table)
        if allowed is None:
            requested = not self.patterns or any(pattern.matches(table) for pattern in self.patterns)
            allowed = requested and self.audience.may_read(table, self.roles)
            self.cache.put(self.number, table, allowed)
        return allowed


class EventFilters:
    """The filters of one gateway.

    Args:
        audience: which roles may read which table.
        max_filters: filters that are kept for sharing.
        max_answers: cached answers of all filters together.
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
        """Return the filter of a client, shared with others that have the same patterns and roles.

        Args:
            tables: validated patterns; none: all tables.
            roles: the client's roles.
        """
        key = (tables, roles)
        if key not in self._filters:
            if len(self._filters) >= self._max_filters:
                self._filters.clear()  # open streams keep theirs
            patterns = (TablePattern(*tables),) if tables else ()
            self._filters[key] = EventFilter(self._audience, patterns, roles, self.cache)
        return self._filters[key]
