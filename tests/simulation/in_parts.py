"""The new files of tables are listed in parts, as where they are very many: each item of work is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sterna.sync.plan import in_parts
from sterna.sync.plan.in_parts import STEPS, PartLimits


@contextmanager
def all_in_parts() -> Iterator[None]:
    """Let every table be one of very many new files, for as long as this lasts."""
    with ExitStack() as stack:
        few = PartLimits(many_manifests=3, group_manifests=2, cut_rows=1, stretch_rows=3)
        stack.enter_context(patch.object(in_parts, "LIMITS", few))
        stack.enter_context(patch.dict(STEPS, {name: _twice(step) for name, step in STEPS.items()}))
        yield


def _twice(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Do an item again, as Spark does where it takes the first one for lost."""

    def done(*arguments: Any) -> dict[str, Any]:
        step(*arguments)
        return step(*arguments)

    return done
