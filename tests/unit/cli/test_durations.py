"""One parser of durations for all options, with one error."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sterna.cli.durations import parse_duration
from sterna.errors import UsageError
from tests.unit.cli.conftest import Sterna


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("24h", 86_400), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration("--keep", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "7", "a week", "0s", "1.5h", "-1d", "7 d", "1d12h"])
def test_anything_else_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=rf"--keep {text}: expected a duration such as 90s or 7d"):
        parse_duration("--keep", text)


@pytest.mark.parametrize("option", ["--keep", "--grace", "--wait"])
def test_gc_names_the_option(option: str, sterna: Sterna) -> None:
    answer = sterna("gc", "--region", "eu", option, "soon")
    assert answer.code == 2
    assert f"{option} soon: expected a duration" in answer.err


def test_a_grace_that_no_run_could_rely_on_is_refused(sterna: Sterna) -> None:
    assert sterna("gc", "--region", "eu", "--grace", "1m").code == 2


@pytest.mark.parametrize("text", ["5300w", "999999999w", "9" * 30 + "s"])
def test_what_no_clock_knows_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--keep 9|^--keep 5"):
        parse_duration("--keep", text)
