"""sterna as a command, in a process of its own."""

from __future__ import annotations

import sys

from sterna.cli.main import main

STERNA = (sys.executable, "-m", main.__module__)
"""What a command begins with."""
