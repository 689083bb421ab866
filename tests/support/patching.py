"""Functions of a library replaced for one module: threads of other tests and of servers keep theirs."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def replace_functions(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, library: ModuleType, **functions: Any
) -> None:
    """Let a module see other functions of a library that it imports by name, such as `time` or `asyncio`.

    A patch of the library itself would reach the whole process: a server's thread that sleeps meanwhile would be
    recorded as a pause of what is tested.

    Args:
        module: the one that is tested.
        library: what it imports as a whole.
        functions: the replacements, by name.
    """
    monkeypatch.setattr(module, library.__name__, SimpleNamespace(**{**vars(library), **functions}))
