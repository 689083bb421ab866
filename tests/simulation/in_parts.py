"""The new files of tables are listed in parts, as where they are very many: each item of work is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sterna.sync.plan import in_parts


@contextmanager
def all_in_parts() -> Iterator[None]:
    """Let every table be one of very many new files, for as long as this lasts."""
    with ExitStack() as stack:
        for name, value in (("MANY_MANIFESTS", 3), ("_GROUP_MANIFESTS", 2), ("_CUT_ROWS", 1), ("_STRETCH_ROWS", 3)):
            stack.enter_context(patch.object(in_parts, name, value))
        steps = {name: _twice(step) for name, step in in_parts._STEPS.items()}
        stack.enter_context(patch.dict(in_parts._STEPS, steps))
        yield


def _twice(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Do an item again, as Spark does where it takes the first one for lost."""

    def done(*arguments: Any) -> dict[str, Any]:
        step(*arguments)
        return step(*arguments)

    return done
