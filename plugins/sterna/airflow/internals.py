"""Airflow's own internals, which its task SDK does not offer: each minor release may move them.

Three things beyond the task SDK are elsewhere: the listener's mark in `preload`, the approval operator of Airflow's
standard provider in `promotion`, and what its OpenLineage provider takes in `lineage`. So there are four files to
check, then.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow.cli.cli_config import ActionCommand

__all__ = ["BaseEventTrigger", "TriggerEvent", "delegating_command", "trigger_event"]


def trigger_event(payload: dict[str, str]) -> TriggerEvent:
    """Return what a trigger yields."""
    event_class: Any = TriggerEvent  # Airflow leaves it untyped
    event: TriggerEvent = event_class(payload)
    return event


def delegating_command(name: str, summary: str, description: str, main: Callable[[list[str]], object]) -> ActionCommand:
    """Return an `airflow <name> …` command that hands everything behind its name to a function.

    Args:
        name: the word behind `airflow`.
        summary: one line for `airflow --help`.
        description: for `airflow <name> --help`.
        main: takes the list of arguments, as the console script of that name does.
    """
    # The command line's configuration is heavy, and only `airflow …` commands need it.
    from airflow.cli.cli_config import ActionCommand, Arg

    def run(args: Any) -> None:
        main(list(args.arguments))

    arg_class: Any = Arg  # Airflow leaves it untyped
    arguments = arg_class(
        ("arguments",), nargs=argparse.REMAINDER, help="a command and its options", metavar="COMMAND …", type=str
    )
    return ActionCommand(name=name, help=summary, description=description, func=run, args=(arguments,))


def find_connection(id: str) -> Any:
    """Return a connection as an `airflow` command finds it, from any secrets backend or the database.

    None where there is none.
    """
    from airflow.models.connection import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return Connection.get_connection_from_secrets(id)
    except AirflowNotFoundException:
        return None
