"""What a machine has installed is not what tests start: of MariaDB the machine's own would be another version."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from sterna.jvm.jars import cache_folder
from tests.support.servers.mariadb import find_programs


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the jar of MariaDB is for Linux on x86-64"
)
def test_an_installed_mariadb_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "usr" / "sbin" / "mariadbd"
    share = tmp_path / "usr" / "share" / "mysql"
    for folder in (server.parent, share):
        folder.mkdir(parents=True)
    (share / "fill_help_tables.sql").touch()
    server.write_text("#!/bin/sh\nexit 1\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{server.parent}{os.pathsep}{os.environ['PATH']}")
    programs = find_programs()
    assert programs.server.is_relative_to(cache_folder())
    assert (programs.share / "fill_help_tables.sql").exists()
