"""The new files of tables are listed in parts, as where they are very many: each item of work is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sterna.replication.plan import sharded_listing
from sterna.replication.plan.parts import STEPS
from sterna.replication.plan.sharded_listing import ShardingLimits


@contextmanager
def all_in_parts() -> Iterator[None]:
    """Let every table be one of very many new files, for as long as this lasts."""
    with ExitStack() as stack:
        few = ShardingLimits(min_manifests=3, max_group_manifests=2, cut_rows=1, max_range_rows=3)
        stack.enter_context(patch.object(sharded_listing, "LIMITS", few))
        stack.enter_context(patch.dict(STEPS, {name: _twice(step) for name, step in STEPS.items()}))
        yield


def _twice(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Do an item again, as Spark does where it takes the first one for lost."""

    def done(*arguments: Any) -> dict[str, Any]:
        step(*arguments)
        return step(*arguments)

    return done
