"""What this process has changed and the replica branch doesn't show yet: clients read their own writes here.

Other instances show a change once the replica branch has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from sterna.catalog.model import Content, Key

_Superseded = frozenset[str | None]
NOTHING: Mapping[Key, Content] = MappingProxyType({})
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Change:
    """What is shown of a key.

    Args:
        content: as this region's replica branch will have it, without its id; None: the key is gone.
        superseded: the documents of earlier contents, which the branch may show until a sync has published this one;
            None among them: nothing under the key.
        number: counts changes, in their order.
        is_published: the branch has shown it.
    """

    content: Content | None
    superseded: _Superseded
    number: int
    is_published: bool = False


class RecentChanges:
    """The keys that this process has changed lately; may be used by any number of threads."""

    def __init__(self) -> None:
        self._changes: dict[Key, _Change] = {}
        self._count = self._generation = self._discards = 0
        self._lock = threading.Lock()

    def record(
        self,
        changes: Mapping[Key, tuple[Content | None, Content | None]],
        since: int | None = None,
        replaced: Mapping[Key, Content] = NOTHING,
    ) -> None:
        """Show changes from now on, all of them at once.

        Args:
            changes: by key, what the replica branch shows at present, and what takes its place; None: nothing.
            since: the count when these were read: what was recorded since is newer, and stays. None: none is.
            replaced: by key, what a sync may publish that was planned before: what `main` had until then, as here.
        """
        with self._lock:
            self._count += 1
            self._generation += 1
            for key, (shown, content) in changes.items():
                last = self._changes.get(key)
                if since is not None and last is not None and last.number > since:
                    continue
                superseded: set[str | None] = {_document(shown)}
                if key in replaced:
                    superseded.add(_document(replaced[key]))
                if last is not None:
                    superseded |= {*last.superseded, _document(last.content)}
                superseded.discard(_document(content))
                self._changes[key] = _Change(content and content.with_id(None), frozenset(superseded), self._count)

    def content(self, key: Key, shown: Content | None) -> Content | None:
        """Return what a client is to see under a key; None: nothing.

        Args:
            shown: what the replica branch has.
        """
        with self._lock:
            change = self._changes.get(key)
            if change is None:
                return shown
            if _document(shown) in change.superseded:
                return change.content
            if _document(shown) == _document(change.content):
                # A sync that began before the change may still publish what it took the place of.
                self._changes[key] = replace(change, is_published=True)
            else:
                self._remove([key])  # a sync has published a later one
            return shown

    def with_branch(self, look: Callable[[], _T]) -> _T:
        """Return what is seen of the replica branch together with these changes.

        Args:
            look: reads the branch, and lays these changes over it. It is called again where some were forgotten
                meanwhile: what it has read may be older than the sync that published them.
        """
        while True:
            discards = self._discards
            seen = look()
            if self._discards == discards:
                return seen

    def entries(self, shown: Mapping[Key, Content]) -> Mapping[Key, Content]:
        """Return all that a client is to see, for listings.

        Args:
            shown: all that the replica branch has.
        """
        with self._lock:
            keys = list(self._changes)
        if not keys:
            return shown
        current = {key: self.content(key, shown.get(key)) for key in keys}
        visible = {key: content for key, content in current.items() if content is not None}
        return {key: content for key, content in shown.items() if key not in current} | visible

    @property
    def is_empty(self) -> bool:
        """Whether the replica branch shows all there is."""
        return not self._changes

    @property
    def count(self) -> int:
        """How many times something was recorded."""
        with self._lock:
            return self._count

    @property
    def generation(self) -> int:
        """Another number whenever something else may be shown of what the branch has."""
        with self._lock:
            return self._generation

    def _remove(self, keys: Collection[Key]) -> None:
        self._generation += bool(keys)
        self._discards += bool(keys)
        for key in keys:
            del self._changes[key]

    def discard_until(self, count: int, held: Collection[Key] = ()) -> None:
        """Show what the replica branch has: a sync is done that has published, or left out, all that was recorded.

        Args:
            count: as it was when the sync began; what was recorded since stays.
            held: keys that the sync could not publish: they stay.
        """
        with self._lock:
            done = [key for key, change in self._changes.items() if change.number <= count and key not in held]
            self._remove(done)

    def discard_published(self, count: int) -> None:
        """Forget what the branch has shown: a sync has ended, well or not, that began after it was recorded.

        Args:
            count: as it was when the sync began.
        """
        with self._lock:
            done = [key for key, change in self._changes.items() if change.number <= count and change.is_published]
            self._remove(done)


def _document(content: Content | None) -> str | None:
    return None if content is None else content.with_id(None).document
