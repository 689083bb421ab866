"""The answer to `/v1/tables`: made once for all who ask for the same at one commit, for it may be long."""

from __future__ import annotations

import asyncio
import json

from sterna.events.tail import ShownNow
from sterna.events.views import View
from sterna.feed.log import ShownTable

_KEPT, _KEPT_ROWS = 64, 200_000
_AT_ONCE = 100  # tables, before others have their turn


class TablesAnswers:
    """Answers as bytes, of the newest commit.

    Args:
        region: the region's name.
        branch: its replica branch.
        rows: tables that are kept in all answers together, but that one answer is kept in any case.
        most: answers that are kept.
    """

    def __init__(self, region: str, branch: str, rows: int = _KEPT_ROWS, most: int = _KEPT) -> None:
        self._start = {"region": region, "branch": branch}
        self._rows = rows
        self._most = most
        self._head = ""
        self._answers: dict[int, asyncio.Task[bytes]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def of(self, view: View, found: ShownNow) -> bytes:
        """Return what somebody is told.

        Args:
            view: what they are told of.
            found: what the branch shows.
        """
        if self._head != found.head:
            self._head = found.head
            self._answers.clear()
        if view.number not in self._answers:
            while len(self._answers) >= max(1, min(self._most, self._rows // max(1, len(found.tables)))):
                del self._answers[next(iter(self._answers))]
            self._answers[view.number] = asyncio.create_task(self._made(view, found))
        # Others wait for the very same.
        return await asyncio.shield(self._answers[view.number])

    async def _made(self, view: View, found: ShownNow) -> bytes:
        rows: list[str] = []
        for at in range(0, len(found.tables), _AT_ONCE):
            rows += [_row(each) for each in found.tables[at : at + _AT_ONCE] if view.shows(each.table)]
            await asyncio.sleep(0)
        start = json.dumps({**self._start, "cursor": found.head})
        return f'{start[:-1]}, "tables": [{", ".join(rows)}]}}'.encode()


def _row(shown: ShownTable) -> str:
    snapshot = None if shown.snapshot is None else str(shown.snapshot)
    return json.dumps({"table_identifier": shown.table, "snapshot_id": shown.snapshot, "snapshotid": snapshot})
