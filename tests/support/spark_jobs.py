"""Functions that the Spark suite runs in workers: at the top of a module, so that they are pickled by reference."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import sterna.errors


def upper(item: str) -> str:
    return item.upper()


def variable(name: str) -> str:
    return os.environ.get(name, "")


def process(seconds: str) -> str:
    time.sleep(float(seconds))
    return str(os.getpid())


def source_of_sterna(_: str) -> str:
    return sterna.errors.__file__


def leave_mark(item: str) -> str:
    """Write a file, and take a while: what is cancelled leaves fewer files than items."""
    path = json.loads(item)["path"]
    Path(path).touch()
    time.sleep(0.5)
    return path


def fail_with(name: str) -> str:
    if os.environ[name]:
        raise ValueError(f"can't use {os.environ[name]} and its password {json.loads(os.environ[name])['password']}")
    return ""


def die(_: str) -> str:
    os._exit(3)


def die_once(marks: str, function: Callable[[str], str], item: str) -> str:
    """Do an item; whoever is the first of all is killed, as the kernel does it where memory is short.

    Args:
        marks: an empty folder that all workers see.
        function: what is done.
        item: what it is done with.
    """
    with suppress(FileExistsError):
        os.close(os.open(f"{marks}/first", os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return function(item)


def until_done_again(marks: str, function: Callable[[str], str], item: str) -> str:
    """Do an item; whoever is the first of all waits until somebody else begins the same one, and goes on beside it.

    Args:
        marks: an empty folder that all workers see.
        function: what is done.
        item: what it is done with.
    """
    name = hashlib.sha256(item.encode()).hexdigest()
    mine, again = Path(marks, f"first-{name}"), Path(marks, f"again-{name}")
    if mine.exists():
        again.touch()
    with suppress(FileExistsError):
        os.close(os.open(f"{marks}/first", os.O_CREAT | os.O_EXCL))
        mine.touch()
        end = time.monotonic() + 120.0
        while not again.exists() and time.monotonic() < end:
            time.sleep(0.01)
    return function(item)
