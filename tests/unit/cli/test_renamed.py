"""A command or flag by the name that it had in version 0.1 is refused with the new one."""

from __future__ import annotations

import json

import pytest

from sterna.config import renamed
from tests.unit.cli.conftest import Sterna
from tests.unit.cli.test_dry_run import ALL, flags


@pytest.mark.parametrize(("old", "new"), renamed.COMMANDS.items())
def test_an_old_command(old: str, new: str, sterna: Sterna) -> None:
    answer = sterna(*old.split(), "--region", "eu")
    assert (answer.code, answer.out) == (2, "")
    assert f"no such command: {old}" in answer.err and f"did you mean {new}?" in answer.err


@pytest.mark.parametrize(("old", "new"), renamed.FLAGS.items())
@pytest.mark.parametrize("tail", ["", "=1"])
def test_an_old_flag(old: str, new: str, tail: str, sterna: Sterna) -> None:
    answer = sterna("sync", "--region", "eu", old + tail, "--json")
    assert (answer.code, answer.out) == (2, "")
    refused = json.loads(answer.err)
    assert refused["message"] == f"no such option: {old}{tail}" and refused["hint"] == f"did you mean {new}?"


def test_the_new_names_are_there_and_the_old_ones_are_not() -> None:
    words = {word for name in ALL for word in (name, name.partition(" ")[0])}
    assert set(renamed.COMMANDS.values()) <= words
    assert not set(renamed.COMMANDS) & words
    all_flags = {flag for command in ALL.values() for flag in flags(command)}
    assert set(renamed.FLAGS.values()) <= all_flags
    assert not set(renamed.FLAGS) & all_flags


def test_what_was_never_a_name_is_refused_without_a_guess(sterna: Sterna) -> None:
    answer = sterna("nothing-of-the-kind")
    assert answer.code == 2 and "id you mean" not in answer.err
