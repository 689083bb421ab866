"""How far a flow has come: what the mark on its target says; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sterna.errors import FlowStopped

_APPLIED = re.compile(r"([0-9]{1,19})(/([1-9][0-9]{0,8}))?")
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
    def parse(cls, text: str) -> Position:
        """Return what a mark says.

        Raises:
            FlowStopped: nothing that a flow has written.
        """
        if not text:
            return cls()
        if match := _REBUILDING.fullmatch(text):
            return cls(None, int(match[1]), True)
        match = _APPLIED.fullmatch(text)
        if match is None:
            raise FlowStopped(f"the mark {text!r} is no flow's", hint="sterna flow rebuild")
        return cls(int(match[1]), int(match[3] or 0))

    @property
    def text(self) -> str:
        """The mark that says so."""
        if self.rebuilding:
            return f"rebuilding/{self.rebuilt}"
        if self.snapshot is None:
            return ""
        return f"{self.snapshot}/{self.rebuilt}" if self.rebuilt else str(self.snapshot)
