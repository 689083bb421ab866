"""`sterna follow` on the command line: a line a publication, and an end in order."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest

from sterna.cli.output import Output
from sterna.errors import Diverged
from sterna.replica import kept
from sterna.sync import stages
from tests.support.small_world import World
from tests.unit.cli.conftest import Sterna


@pytest.fixture
def region(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    path = world.folder / "storage_registry.yaml"
    path.write_text("stands for the one in memory")
    monkeypatch.setenv("STERNA_REGISTRY", str(path))
    monkeypatch.setattr(kept, "open_region", lambda path, name, secrets: world.context(name))
    return world


def _end_when_it_has_told(monkeypatch: pytest.MonkeyPatch, number: int) -> threading.Thread:
    told, real = threading.Event(), Output.result

    def result(*given: Any) -> None:
        real(*given)
        told.set()

    monkeypatch.setattr(Output, "result", result)

    def end() -> None:
        told.wait(60)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=end)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_a_line_a_publication_until_a_signal_ends_it(
    region: World, sterna: Sterna, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = region.commit(a=region.write("a"))
    thread = _end_when_it_has_told(monkeypatch, number)
    before = signal.getsignal(signal.SIGTERM)
    answer = sterna("follow", "--poll", "0.05")
    thread.join()
    assert answer.code == 0
    (line,) = answer.out.splitlines()
    assert line.startswith(f"published main@{head[:12]} as ") and ": ns, ns.a; 1 files, " in line
    assert answer.err.splitlines() == ["ended; the next sync goes on from here"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_as_json_each_publication_is_a_report(region: World, sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    region.commit(a=region.write("a"))
    thread = _end_when_it_has_told(monkeypatch, signal.SIGTERM)
    answer = sterna("follow", "--json")
    thread.join()
    (report,) = map(json.loads, answer.out.splitlines())
    assert (report["outcome"], report["published"]) == ("published", ["ns", "ns.a"])


def test_an_error_that_time_does_not_cure_ends_it_with_its_exit_code(
    region: World, sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object) -> None:
        raise Diverged("main has left the watermark")

    monkeypatch.setattr(stages, "plan", plan)
    region.commit(a=region.write("a"))
    answer = sterna("follow")
    assert (answer.code, answer.out) == (6, "")
    assert "main has left the watermark" in answer.err


def test_its_defaults_are_those_of_the_library() -> None:
    """They stand on the command line as well, whose module imports nothing heavy."""
    import inspect

    from sterna.cli.follow import follow
    from sterna.sync.follow import FollowOptions

    given = {name: each.default for name, each in inspect.signature(follow).parameters.items()}
    default = FollowOptions()
    assert (given["most_bytes"], given["most_files"]) == (default.small.bytes, default.small.files)
    assert (given["poll"], given["poll"] / 5) == (default.slow, default.quick)
