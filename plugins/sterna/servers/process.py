"""Child processes of the embedded deployment: started, waited for and ended with all their descendants."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

from sterna.errors import EngineError
from sterna.servers.parent import command_ending_with_parent

LOOPBACK = "127.0.0.1"
_POLL_SECONDS = 0.05
# Below those that systems give to outgoing connections: one of them could take a port before its server does.
_PORTS = range(10_000, 32_000)
# The kernel sends the "parent died" signal when the *thread* that forked ends. Servers are started from short-lived
# threads, so one thread that lives as long as this process does all the forking.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sterna-spawner")
_processes: list[Process] = []


class Stoppable(Protocol):
    """What `start_in_parallel` starts: anything that can be stopped, more than once without harm."""

    def stop(self) -> None:
        """End it and wait for its end."""


_Server = TypeVar("_Server", bound=Stoppable)


@dataclass(frozen=True)
class Process:
    """A child in its own session, which ends with this process whatever ends this process (Linux).

    Args:
        name: what messages call it.
        log: the file that holds its standard output and error.
        stop_signal: the signal that ends it.
    """

    name: str
    log: Path
    stop_signal: signal.Signals
    popen: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """Its process id, which is also its session's and its process group's."""
        return self.popen.pid

    def is_alive(self) -> bool:
        """Return whether the child itself still runs."""
        return self.popen.returncode is None and not _has_exited(self.pid)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait(self, seconds: float) -> None:
        """Wait until the child has ended by itself; stop it when it does not."""
        try:
            self._await_end(seconds)
        finally:
            self.stop()

    def stop(self, grace: float = 15.0) -> None:
        """End the child and whatever it started in its session: Airflow and Spark give their workers process groups
        of their own.

        Args:
            grace: seconds between asking and killing.
        """
        if self.popen.returncode is not None:
            return
        _signal_group(self.pid, self.stop_signal)
        self._await_end(grace)
        deadline = time.monotonic() + grace
        while (members := _session_pids(self.pid)) and time.monotonic() < deadline:
            for member in members:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self.popen.wait()

    def _await_end(self, seconds: float) -> None:
        """Wait without reaping: as long as the child is unreaped its id can't be given to a stranger's group."""
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def start_process(
    name: str,
    command: Sequence[object],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: tuple[int, int] | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    keep_line: Callable[[bytes], bool] | None = None,
) -> Process:
    """Start a child in its own session, its output appended to a log file.

    Args:
        name: what messages call it.
        command: the program and its arguments, strings or paths; no secrets, every user of the machine can read them.
        log: the file for standard output and error; its folder is made.
        env: the child's whole environment; None for a copy of this process's.
        cwd: its working folder.
        account: ids of the user and the group that it runs as (root only).
        stop_signal: the signal that ends it; also sent when this process dies.
        keep_line: called with each line of output, in a thread; returns whether it is logged; None: all are.

    Raises:
        EngineError: the program can't be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [str(part) for part in command]
    if shutil.which(arguments[0], path=(os.environ if env is None else env).get("PATH")) is None:
        raise EngineError(f"{name} can't be started: there is no program {arguments[0]}")
    arguments = command_ending_with_parent(arguments, stop_signal, account)
    spawn = partial(_spawn, arguments, log, keep_line is not None, env=env, cwd=cwd)
    try:
        popen = _spawner.submit(spawn).result()
    except OSError as error:
        raise EngineError(f"{name} can't be started: {error.strerror or error}") from error
    if keep_line is not None:
        _start_filter(popen, log, keep_line)
    process = Process(name, log, stop_signal, popen)
    _processes.append(process)
    return process


def _spawn(arguments: list[str], log: Path, piped: bool, **options: Any) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )


def stop_all() -> None:
    """End every child that this process started, in parallel.

    Waiting for one of them to answer fails when it ends.
    """
    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(Process.stop, list(_processes)))


def remove_folder(folder: Path, max_wait: float = 10.0) -> None:
    """Remove a folder, though what was just killed in it may write a moment longer.

    Args:
        folder: what goes; it may be gone already.
        max_wait: seconds to try again. What then stays is left.
    """
    deadline = time.monotonic() + max_wait
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_SECONDS)


def wait_until_ready(process: Process, is_ready: Callable[[], bool], *, timeout: float) -> None:
    """Wait until a child answers; stop it when it does not.

    Args:
        is_ready: returns whether it answers; a refused connection (OSError) counts as no.
        timeout: seconds to wait.

    Raises:
        EngineError: it died or did not answer in time; the message ends with its log's tail.
    """
    try:
        _poll(process, is_ready, timeout)
    except BaseException:
        process.stop()
        raise


def _poll(process: Process, is_ready: Callable[[], bool], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while process.is_alive():
        with suppress(OSError):
            if is_ready():
                return
        if time.monotonic() > deadline:
            raise EngineError(
                f"{process.name} did not answer within {timeout:.0f} s; the end of its log:\n{process.log_tail()}"
            )
        time.sleep(_POLL_SECONDS)
    raise EngineError(f"{process.name} ended while starting; the end of its log:\n{process.log_tail()}")


def start_in_parallel(stack: ExitStack, *starters: Callable[[], _Server]) -> list[_Server]:
    """Start several servers in parallel; each is stopped when the stack closes, also when another one fails to start.

    Args:
        stack: receives one callback a server, as soon as it is up.
        starters: functions that start one server each and return it.

    Returns:
        The servers, in the order of their starters.
    """

    def run(starter: Callable[[], _Server]) -> _Server:
        server = starter()
        stack.callback(server.stop)
        return server

    with ThreadPoolExecutor(max_workers=len(starters), thread_name_prefix="sterna-start") as pool:
        futures = [pool.submit(run, starter) for starter in starters]
    return [future.result() for future in futures]


def free_port() -> int:
    """Return a TCP port that nothing listens on at the loopback address."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - any will do
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def _start_filter(popen: subprocess.Popen[bytes], log: Path, keep_line: Callable[[bytes], bool]) -> None:
    name = f"sterna-log-{popen.pid}"
    threading.Thread(target=_filter_output, args=(popen, log, keep_line), name=name, daemon=True).start()


def _filter_output(popen: subprocess.Popen[bytes], log: Path, keep_line: Callable[[bytes], bool]) -> None:
    if popen.stdout is None:
        return
    with popen.stdout, log.open("ab", buffering=0) as output:
        for line in popen.stdout:
            if keep_line(line):
                output.write(line)


def _has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _session_pids(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    pids = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
