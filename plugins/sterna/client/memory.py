"""A client's cursor and the ids that it handled, so that a repeated event has no second effect."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path

_MAX_HANDLED_IDS = 10_000


class CursorStore:
    """A cursor store in memory.

    Args:
        max_ids: how many ids are kept; the oldest go first.
    """

    def __init__(self, max_ids: int = _MAX_HANDLED_IDS) -> None:
        self._max_ids = max_ids
        self._handled_ids: OrderedDict[str, None] = OrderedDict()
        self.cursor = ""

    def is_handled(self, id: str) -> bool:
        """Return whether an event was handled."""
        return id in self._handled_ids

    def mark_handled(self, id: str) -> None:
        """Record an event as handled, and move the cursor behind it."""
        self._handled_ids[id] = None
        while len(self._handled_ids) > self._max_ids:
            self._handled_ids.popitem(last=False)
        self.set_cursor(id)

    def set_cursor(self, cursor: str) -> None:
        """Move the cursor."""
        self.cursor = cursor


class FileCursorStore(CursorStore):
    """A cursor store in a file, replaced atomically after each event.

    Args:
        path: the file; it need not exist yet.
        max_ids: how many ids are kept; the oldest go first.

    Raises:
        ValueError: the file holds something else.
    """

    def __init__(self, path: str | Path, max_ids: int = 1_000) -> None:
        super().__init__(max_ids)
        self._path = Path(path)
        if not self._path.exists():
            return
        document = json.loads(self._path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or not isinstance(document.get("handled"), list):
            raise ValueError(f"{self._path} is no client's memory")
        self._handled_ids.update(dict.fromkeys(map(str, document["handled"])))
        self.cursor = str(document.get("cursor", ""))

    def set_cursor(self, cursor: str) -> None:
        """Move the cursor."""
        super().set_cursor(cursor)
        text = json.dumps({"cursor": cursor, "handled": list(self._handled_ids)})
        temporary_path = self._path.with_name(self._path.name + ".new")
        with open(temporary_path, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary_path, self._path)
