"""Which tables a client is told of: what it asks for, and may read. All who ask for the same share one view.

Clients choose their patterns. So what views remember is bounded for all of them together, those included that only a
stream still has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from sterna.feed.patterns import TablePattern
from sterna.replica.readers import Audience

_REMEMBERED = 100_000  # about 30 MB
_VIEWS = 1_000


class ViewMemory:
    """Which tables views show, as far as that was asked already.

    Args:
        most: answers that are remembered.
    """

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._shown: dict[tuple[int, str], bool] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._shown)

    def number(self) -> int:
        """Return a number for a view that no other one has, or had."""
        return next(self._numbers)

    def get(self, number: int, table: str) -> bool | None:
        """Return whether a view shows a table, None where that isn't known."""
        return self._shown.get((number, table))

    def put(self, number: int, table: str, shown: bool) -> None:
        """Remember whether a view shows a table."""
        if len(self._shown) >= self._most:
            self._shown.clear()
        self._shown[(number, table)] = shown


@dataclass
class View:
    """Which tables one kind of client is told of; shared by all who ask for the same with the same roles."""

    audience: Audience
    patterns: tuple[TablePattern, ...]
    roles: frozenset[str]
    memory: ViewMemory = field(default_factory=ViewMemory, repr=False)

    def __post_init__(self) -> None:
        self.number = self.memory.number()

    def shows(self, table: str) -> bool:
        """Tell whether the client is told of a table."""
        known = self.memory.get(self.number, table)
        if known is None:
            asked = not self.patterns or any(pattern.matches(table) for pattern in self.patterns)
            known = asked and self.audience.may_read(table, self.roles)
            self.memory.put(self.number, table, known)
        return known


class Views:
    """The views of one gateway.

    Args:
        audience: who may be told of what.
        most: views that are kept for others who ask for the same.
        remembered: answers that all of them together remember.
    """

    def __init__(self, audience: Audience, most: int = _VIEWS, remembered: int = _REMEMBERED) -> None:
        self.memory = ViewMemory(remembered)
        self._audience = audience
        self._most = most
        self._views: dict[tuple[tuple[str, ...], frozenset[str]], View] = {}

    def __len__(self) -> int:
        return len(self._views)

    def of(self, tables: tuple[str, ...], roles: frozenset[str]) -> View:
        """Return the view of somebody.

        Args:
            tables: patterns that were checked; none: all tables.
            roles: the reader's.
        """
        key = (tables, roles)
        if key not in self._views:
            if len(self._views) >= self._most:
                self._views.clear()  # who has one keeps it
            patterns = (TablePattern(*tables),) if tables else ()
            self._views[key] = View(self._audience, patterns, roles, self.memory)
        return self._views[key]
