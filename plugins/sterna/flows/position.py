"""How far a flow has come: what the mark on its target says; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sterna.errors import FlowStopped

_MARK = re.compile(r"([0-9]{1,19})(/([1-9][0-9]{0,8}))?")
_REBUILDING = re.compile(r"rebuilding/([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Position:
    """How far a flow has come.

    Args:
        snapshot: the snapshot of the source up to which it has come; None: none yet.
        rebuilt: how often the target was rebuilt. It is part of the mark: a step that was made before a rebuild finds
            another mark, though the snapshot may be the same.
        rebuilding: a rebuild of a target that was rolled back has begun, and isn't done.
    """

    snapshot: int | None = None
    rebuilt: int = 0
    rebuilding: bool = False

    @classmethod
    def of(cls, mark: str) -> Position:
        """Return what a mark says.

        Raises:
            FlowStopped: nothing that a flow has written.
        """
        if not mark:
            return cls()
        if found := _REBUILDING.fullmatch(mark):
            return cls(None, int(found[1]), True)
        found = _MARK.fullmatch(mark)
        if found is None:
            raise FlowStopped(f"the mark {mark!r} is no flow's", hint="sterna flow rebuild")
        return cls(int(found[1]), int(found[3] or 0))

    @property
    def mark(self) -> str:
        """The mark that says so."""
        if self.rebuilding:
            return f"rebuilding/{self.rebuilt}"
        if self.snapshot is None:
            return ""
        return f"{self.snapshot}/{self.rebuilt}" if self.rebuilt else str(self.snapshot)
