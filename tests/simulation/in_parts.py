"""The files of new tables are listed in parts, as where a table has very many: each item of work is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from sterna.sync.plan import in_parts
from sterna.sync.working import answered


@contextmanager
def all_in_parts() -> Iterator[None]:
    """Let every new table be one of very many files, for as long as this lasts."""
    with ExitStack() as stack:
        for name, value in (("MANY_MANIFESTS", 1), ("_GROUP_MANIFESTS", 2), ("_CUT_ROWS", 1), ("_STRETCH_ROWS", 3)):
            stack.enter_context(patch.object(in_parts, name, value))
        stack.enter_context(patch.object(in_parts.Dealing, "_dealt", _dealt))
        stack.enter_context(patch("sterna.sync.stages._deals", lambda *_: True))
        yield


def _dealt(
    self: in_parts.Dealing, function: Callable[[str], str], requests: list[str], label: str, table: str
) -> list[str]:
    """Do what workers do, with the stores of whoever plans: they die with it."""
    assert isinstance(function, partial)
    work: Any = in_parts._scan if function.func is in_parts.scan_work else in_parts._look_up_stretch
    context, answers = self._context, []
    for item in map(json.loads, requests):
        for _ in range(2):
            done = partial(work, in_parts._opened(context.objects, context.run), item)
            answer = answered(done, label, "", table)
        answers.append(answer)
    return answers
