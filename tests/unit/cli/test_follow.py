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
from sterna.replication.replica import reloading_region
from sterna.replication.sync import stages
from tests.support.small_world import World
from tests.unit.cli.conftest import Sterna


@pytest.fixture
def region(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    path = world.folder / "storage_registry.yaml"
    path.write_text("stands for the one in memory")
    monkeypatch.setenv("STERNA_REGISTRY", str(path))
    monkeypatch.setattr(reloading_region, "open_region", lambda path, name, secrets: world.context(name))
    return world


def _end_after_first_result(monkeypatch: pytest.MonkeyPatch, number: int) -> threading.Thread:
    printed, real = threading.Event(), Output.result

    def result(*args: Any) -> None:
        real(*args)
        printed.set()

    monkeypatch.setattr(Output, "result", result)

    def end() -> None:
        printed.wait(60)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=end)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_a_line_a_publication_until_a_signal_ends_it(
    region: World, sterna: Sterna, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = region.commit(a=region.write("a"))
    thread = _end_after_first_result(monkeypatch, number)
    before = signal.getsignal(signal.SIGTERM)
    answer = sterna("follow", "--poll", "0.05")
    thread.join()
    assert answer.code == 0
    (line,) = answer.out.splitlines()
    assert line.startswith(f"published main@{head[:12]} as ") and ": ns, ns.a; 1 files, " in line
    assert answer.err.splitlines() == ["ended; the next sync continues from here"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_as_json_each_publication_is_a_report(region: World, sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    region.commit(a=region.write("a"))
    thread = _end_after_first_result(monkeypatch, signal.SIGTERM)
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

    from sterna.cli.sync import follow
    from sterna.replication.sync.follow import FollowOptions

    defaults = {name: parameter.default for name, parameter in inspect.signature(follow).parameters.items()}
    default = FollowOptions()
    assert (defaults["max_bytes"], defaults["max_files"]) == (default.limits.max_bytes, default.limits.max_files)
    assert (defaults["poll"], defaults["poll"] / 5) == (default.idle_poll_seconds, default.busy_poll_seconds)
