"""How the embedded deployment ends while it is still being started."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.servers import stack
from sterna.servers.process import Process, start_process


def test_an_interrupt_ends_what_is_being_started_instead_of_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, started = threading.Event(), list[Process]()

    def make_tables(*_: Any) -> None:
        started.append(start_process("tables", ["sleep", "60"], log=tmp_path / "log"))
        begun.set()
        started[0].popen.wait()

    def interrupted(*_: Any, **__: Any) -> None:
        assert begun.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(stack, "create_airflow_tables", make_tables)
    monkeypatch.setattr(stack, "start_nessie", interrupted)
    # Other tests of this process have servers that are to live on.
    monkeypatch.setattr(stack, "stop_all", lambda: started[0].stop())
    server: Any = SimpleNamespace(create_database=lambda name: name)
    with pytest.raises(KeyboardInterrupt):
        stack.start_catalog(tmp_path, {}, server, None, airflow=True)
    assert started[0].popen.returncode != 0, "it was ended; else it sleeps to its end"
