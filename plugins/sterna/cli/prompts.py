"""Confirmation of commands that change or delete more than a sync does: a dry run unless `--yes` is given.

A command that prompts on a terminal shows its effects first. Without a terminal it is an error, not a success: a script
that omitted `--yes` expects the change.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from sterna.cli.output import Output
from sterna.errors import UsageError
from sterna.text.lines import NOTHING_CHANGED


def should_apply(yes: bool, dry_run: bool) -> bool:
    """Return whether a command that is a dry run unless `--yes` is given applies its changes.

    Raises:
        UsageError: both flags were given.
    """
    if yes and dry_run:
        raise UsageError("--yes and --dry-run don't go together")
    return yes


def confirm(output: Output, text: str, fields: Any, *, yes: bool, dry_run: bool) -> bool:
    """Show what a command would do and ask for confirmation; return whether it was given.

    Args:
        output: receives the result of a dry run.
        text: what the command would do, for people.
        fields: the same as data, for `--json`.
        yes: it was given by the flag.
        dry_run: only show it.

    Raises:
        UsageError: there is no terminal, or both flags were given.
        typer.Abort: the answer was no.
    """
    should_apply(yes, dry_run)
    if dry_run:
        output.result(fields, f"{text}\n{NOTHING_CHANGED}")
        return False
    typer.echo(text, err=True)
    return yes or _prompt()


def _prompt() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("this command needs confirmation, and there is no terminal", hint=NOTHING_CHANGED)
    return typer.confirm("Continue?", abort=True, err=True)
