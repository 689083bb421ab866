"""Which cases of a matrix every run has: the others are `rare`, and come with `--long`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def often(cases: Iterable[Any], every_run: Collection[Any]) -> list[Any]:
    """Return a test's parameters, of which only some are in every run.

    Args:
        cases: all of them, each as `pytest.mark.parametrize` takes it.
        every_run: those that are not rare.

    Raises:
        ValueError: one of these is no case.
    """
    cases = list(cases)
    if unknown := [case for case in every_run if case not in cases]:
        raise ValueError(f"no case of the test: {unknown}")
    return [
        case
        if case in every_run
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.rare)
        for case in cases
    ]
