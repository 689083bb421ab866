"""The object stores of the embedded deployment: `rclone serve s3` over a folder, one endpoint a region.

Each of them is behind a gate (`s3_gate.py`), which is the program that is started. One more gate is in front of all.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import sysconfig
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs, unquote

from sterna.errors import EngineError
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.servers.s3_gate import LOG_OPTION, LOG_PREFIX, RESUME_SIGNAL, SUSPEND_SIGNAL

# AWS's newer checksums arrive as chunk framing that this server stores as if it were content: Java's uploads come back
# broken, pyarrow's multipart uploads get HTTP 411.
CLIENT_ENVIRONMENT = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
_GATE = Path(__file__).with_name("s3_gate.py")
_START_SECONDS = 60.0
_LOG_MARKER_PREFIX = "sterna-mark-"
_LOG_MARKER_SECONDS = 60.0
_FORBIDDEN_STATUS = "403"


@dataclass(frozen=True)
class Request:
    """One request that an endpoint answered.

    Args:
        method: GET, HEAD, PUT, PUT PART, COMPLETE, COPY, DELETE or LIST; a ranged read is a GET as well.
        key: the object's key; the prefix for LIST, "" where many are deleted at once.
    """

    method: str
    bucket: str
    key: str


@dataclass
class Endpoint:
    """An S3 endpoint, which can go dark and come back at the same address.

    Args:
        name: what messages call it.
        access_key: the id of the key pair it takes.
        secret_key: the secret of that pair.
        folder: the folder it serves, one sub-folder a bucket; None where it serves other endpoints.
        log: the server's log.
        region: the region name to sign with; the server takes any.
    """

    name: str
    url: str
    access_key: str
    secret_key: str = field(repr=False)
    folder: Path | None
    log: Path
    region: str = "us-east-1"
    _command: list[str] = field(default_factory=list, repr=False)
    _environ: dict[str, str] = field(default_factory=dict, repr=False)
    _process: Process | None = field(default=None, repr=False)
    _is_suspended: bool = field(default=False, repr=False)
    _requests: list[Request] | None = field(default=None, repr=False)
    _log_marker: str = field(default="", repr=False)
    _log_marker_seen: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def port(self) -> int:
        """Its TCP port."""
        return int(self.url.rpartition(":")[2])

    @property
    def process(self) -> Process | None:
        """The server, None while it is dark."""
        return None if self._is_suspended else self._process

    def pyiceberg_properties(self, url: str = "") -> dict[str, str]:
        """Return the settings with which PyIceberg reads and writes here, or at an address in front of it."""
        return {
            "s3.endpoint": url or self.url,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
            "s3.force-virtual-addressing": "false",
        }

    def start(self, *options: str) -> None:
        """Start the server, at the same address as before; one that runs is restarted, a suspended one resumes.

        Args:
            options: further ones of `rclone serve s3`, for this start alone; they restart a suspended one, too.

        Raises:
            EngineError: it did not start.
        """
        if self._is_suspended and not options and self._process is not None and self._process.is_alive():
            self._is_suspended = False
            os.kill(self._process.pid, RESUME_SIGNAL)
            wait_until_ready(self._process, lambda: _is_answering(self.url), timeout=_START_SECONDS)
            return
        self.stop()
        keep_line = None if self._requests is None else self._read_line
        process = start_process(
            f"the S3 endpoint {self.name}",
            [*self._command, *options],
            log=self.log,
            env=self._environ,
            cwd=self.log.parent,
            keep_line=keep_line,
        )
        wait_until_ready(process, lambda: _is_answering(self.url), timeout=_START_SECONDS)
        self._process = process

    def stop(self) -> None:
        """End the server and give up its address."""
        self._is_suspended = False
        if self._process is not None:
            self._process.stop()
            self._process = None

    def suspend(self) -> None:
        """Act as an unreachable region: connections end and are refused until `start`, and no other process gets the
        port meanwhile.
        """
        if self._process is None or self._is_suspended:
            return
        self._is_suspended = True
        os.kill(self._process.pid, SUSPEND_SIGNAL)
        wait_until_ready(self._process, self._is_refusing, timeout=_START_SECONDS)

    def _is_refusing(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), _START_SECONDS).close()
        except ConnectionRefusedError:
            return True
        return False

    def requests(self, since: int = 0) -> list[Request]:
        """Return the requests that the endpoint answered, in their order; `len` of it is the mark to count on from.

        Args:
            since: how many of the first ones to leave out.

        Raises:
            EngineError: the endpoint does not count requests.
        """
        if self._requests is None:
            raise EngineError(f"the S3 endpoint {self.name} was started without counting requests")
        self._drain_log()
        return self._requests[since:]

    def _drain_log(self) -> None:
        """Wait until the log was read up to now: an answer can reach its client before its line reaches us."""
        if self.process is None:
            return
        self._log_marker = f"{_LOG_MARKER_PREFIX}{secrets.token_hex(8)}"
        self._log_marker_seen.clear()
        deadline = time.monotonic() + _LOG_MARKER_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError):
                _is_answering(f"{self.url}/{self._log_marker}")
            if self._log_marker_seen.wait(2.0):
                return
        raise EngineError(f"the S3 endpoint {self.name} does not log its requests any more")

    def _read_line(self, line: bytes) -> bool:
        """Parse a request from a line of the server's output; return whether the line stays in the log."""
        if not line.startswith(LOG_PREFIX):
            return True
        status, method, target = line.decode("ascii", "replace").split()[1:]
        if _LOG_MARKER_PREFIX in target:
            if self._log_marker in target:
                self._log_marker_seen.set()
        elif self._requests is not None and status != _FORBIDDEN_STATUS:
            request = _parse_request(method, target)
            if request is not None:
                self._requests.append(request)
        return False


def _parse_request(method: str, target: str) -> Request | None:
    """Return the request that a line of a gate's log tells of; None where it is about no object and no list."""
    path, _, query = target.partition("?")
    arguments = parse_qs(query, keep_blank_values=True)
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    if method == "POST":
        if "delete" in arguments:
            return Request("DELETE", bucket, "")
        return Request("COMPLETE", bucket, key) if "uploadId" in arguments else None
    if not key:
        listed = method == "GET" and not arguments.keys() & {"location", "uploads", "versioning"}
        return Request("LIST", bucket, arguments.get("prefix", [""])[0]) if bucket and listed else None
    if "uploadId" in arguments:
        return Request("PUT PART", bucket, key) if method == "PUT" else None
    return Request(method, bucket, key)


def start_s3(
    work: Path,
    name: str,
    buckets: Sequence[str],
    access_key: str,
    secret_key: str,
    *,
    combined_keys: tuple[str, str] | None = None,
    count_requests: bool = False,
) -> Endpoint:
    """Start an S3 endpoint over a folder of its own at a free loopback port and wait until it answers.

    Args:
        work: the folder for its data and its log.
        name: the endpoint's name, also its folder's.
        buckets: the buckets to make.
        access_key: the id of the key pair it takes.
        secret_key: the secret of that pair.
        combined_keys: the pair of the wide endpoint that is to serve these buckets, too.
        count_requests: keep a list of requests for `Endpoint.requests`.

    Raises:
        EngineError: rclone is missing or the server did not start.
    """
    folder = work / "s3" / name
    for bucket in buckets:
        (folder / bucket).mkdir(parents=True, exist_ok=True)
    pairs = [(access_key, secret_key), *([combined_keys] if combined_keys else [])]
    environ = _environment() | {"RCLONE_AUTH_KEY": ",".join(f'"{key},{secret}"' for key, secret in pairs)}
    address = f"s3-{name}.sock"  # below the folder that it is started in: a socket's whole path may not be long
    arguments = [*([LOG_OPTION] if count_requests else []), address, "--", *_rclone_command(address, folder)]
    endpoint = _build_endpoint(work, name, arguments, environ, (access_key, secret_key))
    endpoint = replace(endpoint, folder=folder, _requests=[] if count_requests else None)
    endpoint.start()
    return endpoint


def start_combined_s3(
    work: Path, name: str, endpoints: dict[str, Endpoint], access_key: str, secret_key: str
) -> Endpoint:
    """Start an endpoint that serves the buckets of several others, for engines that read `main` with one endpoint
    and key.

    Args:
        work: the folder for its log.
        name: the endpoint's name.
        endpoints: bucket → the endpoint that holds it; bucket names are unique over all regions.
        access_key: the id of the key pair that each of them takes as `combined_keys`.
        secret_key: the secret of that pair.

    Raises:
        EngineError: the gate did not start.
    """
    targets = [f"{bucket}={LOOPBACK}:{endpoint.port}" for bucket, endpoint in endpoints.items()]
    combined = _build_endpoint(work, name, targets, _environment(), (access_key, secret_key))
    combined.start()
    return combined


def find_rclone() -> Path:
    """Return the rclone program: the one of this Python environment, else of PATH.

    Raises:
        EngineError: there is none.
    """
    executable = shutil.which(
        "rclone", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    )
    if executable is None:
        raise EngineError(
            "rclone was not found: searched this Python environment and PATH",
            hint="install sterna with the extra 'local'",
        )
    return Path(executable)


def _rclone_command(address: str, folder: Path) -> list[str]:
    """Return the command of the server behind a gate."""
    command = [str(find_rclone()), "serve", "s3", "--config", "", "--addr", f"unix://{address}", "--use-json-log"]
    # Without the wait each ranged read (every Parquet footer) sleeps 20 ms first. Objects that someone else wrote into
    # the store show after the cache's time.
    command += ["--vfs-read-wait", "0", "--dir-cache-time", "1s", "--poll-interval", "0"]
    return [*command, "--log-level", "NOTICE", str(folder)]


def _build_endpoint(
    work: Path, name: str, gate_arguments: list[str], environ: dict[str, str], keys: tuple[str, str]
) -> Endpoint:
    """Return an endpoint at a free port, not started yet."""
    port = free_port()
    # Without the site packages: a gate needs none, and starts twice as fast.
    command = [sys.executable, "-I", "-S", str(_GATE), f"{LOOPBACK}:{port}", *gate_arguments]
    return Endpoint(
        name=name,
        url=f"http://{LOOPBACK}:{port}",
        access_key=keys[0],
        secret_key=keys[1],
        folder=None,
        log=work / f"s3-{name}.log",
        _command=command,
        _environ=environ,
    )


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("RCLONE_")}


def _is_answering(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own loopback address
    except urllib.error.HTTPError:
        return True  # "access denied" without a signature is an answer too
    return True
