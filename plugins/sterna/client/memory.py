"""What a client remembers: where it is, and what it has handled, so that a repeated event has no second effect."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path

_REMEMBERED = 10_000


class Memory:
    """Remembers as long as the process lives.

    Args:
        most: ids that are remembered.
    """

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._handled: OrderedDict[str, None] = OrderedDict()
        self.cursor = ""

    def knows(self, id: str) -> bool:
        """Tell whether an event was handled."""
        return id in self._handled

    def handled(self, id: str) -> None:
        """Remember that an event was handled."""
        self._handled[id] = None
        while len(self._handled) > self._most:
            self._handled.popitem(last=False)
        self.moved(id)

    def moved(self, cursor: str) -> None:
        """Remember where the client is."""
        self.cursor = cursor


class FileMemory(Memory):
    """Remembers in a file, for the next process; written whole after each event, so that a crash leaves one or the
    other.

    Args:
        path: the file; it may not be there yet.
        most: ids that are remembered.

    Raises:
        ValueError: there is something else in the file.
    """

    def __init__(self, path: str | Path, most: int = 1_000) -> None:
        super().__init__(most)
        self._path = Path(path)
        if not self._path.exists():
            return
        said = json.loads(self._path.read_text(encoding="utf-8"))
        if not isinstance(said, dict) or not isinstance(said.get("handled"), list):
            raise ValueError(f"{self._path} is no client's memory")
        self._handled.update(dict.fromkeys(map(str, said["handled"])))
        self.cursor = str(said.get("cursor", ""))

    def moved(self, cursor: str) -> None:
        """Remember where the client is."""
        super().moved(cursor)
        text = json.dumps({"cursor": cursor, "handled": list(self._handled)})
        new = self._path.with_name(self._path.name + ".new")
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)
