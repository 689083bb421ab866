"""The answer to `/v1/tables`, which may be long: built once for all equal requests at one commit."""

from __future__ import annotations

import asyncio
import json

from sterna.notifications.change_log.log import CurrentTable
from sterna.notifications.subscriptions.filters import EventFilter
from sterna.notifications.subscriptions.poller import BranchTables
from sterna.serving.http.events_responses import TableBody

_MAX_ANSWERS, _MAX_ROWS = 64, 200_000
_ROWS_PER_TURN = 100  # tables, before others have their turn


class TablesAnswerCache:
    """Answers as bytes, of the newest commit.

    Args:
        region: the region's name.
        branch: its replica branch.
        max_rows: tables that are kept in all answers together, but that one answer is kept in any case.
        max_answers: answers that are kept.
    """

    def __init__(self, region: str, branch: str, max_rows: int = _MAX_ROWS, max_answers: int = _MAX_ANSWERS) -> None:
        self._start = {"region": region, "branch": branch}
        self._max_rows = max_rows
        self._max_answers = max_answers
        self._head = ""
        self._answers: dict[int, asyncio.Task[bytes]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, event_filter: EventFilter, branch_tables: BranchTables) -> bytes:
        """Return the body of an answer.

        Args:
            event_filter: the client's filter.
            branch_tables: what the branch shows.
        """
        if self._head != branch_tables.head:
            self._head = branch_tables.head
            self._answers.clear()
        if event_filter.number not in self._answers:
            while len(self._answers) >= max(
                1, min(self._max_answers, self._max_rows // max(1, len(branch_tables.tables)))
            ):
                del self._answers[next(iter(self._answers))]
            self._answers[event_filter.number] = asyncio.create_task(self._build(event_filter, branch_tables))
        # Others wait for the very same.
        return await asyncio.shield(self._answers[event_filter.number])

    async def _build(self, event_filter: EventFilter, branch_tables: BranchTables) -> bytes:
        rows: list[str] = []
        for start_row in range(0, len(branch_tables.tables), _ROWS_PER_TURN):
            rows += [
                _table_json(table)
                for table in branch_tables.tables[start_row : start_row + _ROWS_PER_TURN]
                if event_filter.allows(table.table)
            ]
            await asyncio.sleep(0)
        start = json.dumps({**self._start, "cursor": branch_tables.head})
        return f'{start[:-1]}, "tables": [{", ".join(rows)}]}}'.encode()


def _table_json(table: CurrentTable) -> str:
    snapshot = None if table.snapshot is None else str(table.snapshot)
    body: TableBody = {"table_identifier": table.table, "snapshot_id": table.snapshot, "snapshotid": snapshot}
    return json.dumps(body)
