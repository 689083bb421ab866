"""The page of commands, made from the command line itself: each command with its help text and its options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperGroup

from sterna.cli.main import app
from tests.support.prose import filled

_MIN_SHARED_USES = 10
_INTRODUCTION = """\
# Commands

This page is made from the command line: change a command's help text, then run
`python3 -m tests.reference`. All commands take `--help`. Their [exit
codes](errors.md#exit-codes) are listed with the errors. Commands that change or delete more than a
sync does only show it until `--yes` ([dry runs](operations.md)).

"""


def commands_page() -> str:
    """Return the page of all commands."""
    commands = dict(_commands(typer.main.get_command(app), "sterna"))
    counts = Counter(option for command in commands.values() for option in _options(command))
    shared = sorted(option for option, count in counts.items() if count >= _MIN_SHARED_USES)
    parts = [f"{_INTRODUCTION}## Options of many commands\n", *shared]
    group = ""
    for name, command in commands.items():
        if (title := _title(name)) != group:
            parts.append(f"\n## {title}\n")
            group = title
        parts += [f"### `{name}`\n", _paragraphs(command.help or ""), _examples(command.epilog or "")]
        options = [option for option in _options(command) if option not in shared]
        parts += [*options, ""] if options else []
    return "\n".join(parts).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _title(name: str) -> str:
    """Return the heading of a command's group."""
    words = name.split()
    return f"`sterna {words[1]} …`" if len(words) > 2 else "Replication and serving"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all commands by their whole names; a group's own name is none."""
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from _commands(child, f"{path} {name}")


def _options(command: Any) -> list[str]:
    """Return a list's item for each argument and option of a command."""
    context = command.context_class(command)
    records = (parameter.get_help_record(context) for parameter in command.params if "--help" not in parameter.opts)
    return [filled(f"* `{names}`: {_escaped(text)}", "  ") for names, text in records]


def _paragraphs(text: str) -> str:
    return "\n\n".join(filled(_escaped(part)) for part in text.split("\n\n")) + "\n"


def _examples(epilog: str) -> str:
    """Return the examples at the end of a help text, a line each, as a block of code."""
    commands = epilog.partition(": ")[2].split("; ")
    return "\n".join(["```", *commands, "```\n"])


def _escaped(text: str) -> str:
    """Return a help text as Markdown: what stands in angle brackets is no tag there."""
    return " ".join(text.split()).replace("<", "\\<").replace("*", "\\*")
