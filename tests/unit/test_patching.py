"""No test replaces a function of a library that threads of other tests and of servers call meanwhile."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.patching import replace_functions

TESTS = Path(__file__).parents[1]
PATCH_OF_A_LIBRARY = re.compile(
    r"""(?:setattr|patch\.object)\(\s*(?:\w+\.)*(?:time|asyncio|random|subprocess|threading),"""
    r"""|(?:setattr|patch)\(\s*["'][\w.]*\b(?:time|asyncio|random|subprocess|threading)\.\w+["']"""
)


def test_one_module_alone_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, sleep = ModuleType("module"), time.sleep
    module.time = time  # type: ignore[attr-defined]
    replace_functions(monkeypatch, module, time, sleep=len)
    assert module.time.sleep is len and module.time.monotonic is time.monotonic and time.sleep is sleep
    monkeypatch.undo()
    assert module.time is time


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr(module.asyncio, "sleep", short)',
        'monkeypatch.setattr(time, "monotonic", clock)',
        'monkeypatch.setattr("sterna.client.client.time.sleep", short)',
        'patch.object(package.module.time, "sleep")',
    ],
)
def test_a_patch_of_the_library_itself_is_seen(line: str) -> None:
    assert PATCH_OF_A_LIBRARY.search(line)


def test_no_test_patches_the_library_itself() -> None:
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    patches = {
        f"{path.relative_to(TESTS)}: {match.group()}"
        for path in files
        for match in PATCH_OF_A_LIBRARY.finditer(path.read_text())
    }
    assert len(files) > 500 and not patches
