"""A reference client of `sterna serve`: events of tables as typed values, each handled once.

async with EventClient("https://eu.example", tables=("db.*",), token=read_token) as client:
    async for message in client:
        match message:
            case TableEvent(table="db.fact_events", new_snapshot_id=int(snapshot)):
                print((await client.kpi("revenue", snapshot_id=snapshot)).kpi)
            case Reset(): ...  # read what all tables show: await client.tables()
"""

from __future__ import annotations

from sterna.client.client import ClientFailed, EventClient, State
from sterna.client.figures import QueryAnswer
from sterna.client.memory import CursorStore, FileCursorStore
from sterna.client.messages import Reset, Skipped, TableEvent, TableState

__all__ = [
    "ClientFailed",
    "CursorStore",
    "EventClient",
    "FileCursorStore",
    "QueryAnswer",
    "Reset",
    "Skipped",
    "State",
    "TableEvent",
    "TableState",
]
