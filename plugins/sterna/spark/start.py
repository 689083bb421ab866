"""Starting Spark: a classic session on a master, or one at a Spark Connect server, each within a deadline."""

from __future__ import annotations

import logging
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from sterna.config.environment import temporary_environment
from sterna.errors import EngineError, NoIceberg
from sterna.jvm.java import SPARK_MINIMUM_JAVA, find_java, java_home_for_spark
from sterna.spark.pandas_import import unblock_pandas
from sterna.spark.worker import SECRETS_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
RESUME_HINT = "nothing was published; a later run resumes"
_PROBE_SECONDS = 10.0
_CONNECT_SECONDS = 60.0
_START_SECONDS = 300.0  # a resource manager may take minutes to grant what a driver needs
_GRACE_SECONDS = 10.0  # for a call to end after it was given up
CANCEL_RETRY_SECONDS = 0.5
"""The interval at which a running job is cancelled again."""
_JOB_GROUP_KEY = "spark.jobGroup.id"  # settings of a session become properties of its jobs
_CONNECT_PORT = 15002
_LOOPBACK = "127.0.0.1"
_DEFAULT_REDACTION = "(?i)secret|password|token|access[.]?key"  # Spark's
_LAUNCH_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # by which the JVM tells PySpark its port
_start_lock = threading.Lock()


def start_classic(master: str, app_name: str, settings: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """Return a session of its own on this process's Spark application, and whether the application was started here.

    Args:
        master: a Spark master; ignored when an application runs in this process already, for there can be only one.
        app_name: what a new application calls itself.
        settings: Spark settings for a new application; without secrets: they are on the JVM's command line.

    Raises:
        EngineError: no Java, no pyspark, or the master does not answer.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _start_lock:
        running = SparkContext._active_spark_context
        if running is not None:
            _log.info("using the Spark application that runs in this process, on %s", running.master)
            # So that the event log redacts the secrets of our jobs: it redacts only names in the application's
            # configuration.
            running._jsc.sc().conf().set(SECRETS_KEY, "{}")
            return SparkSession.builder.getOrCreate().newSession(), False
        _require_reachable(master)
        options: dict[str, Any] = {
            "spark.master": master,
            "spark.app.name": app_name,
            **_defaults(master),
            **settings,
            SECRETS_KEY: "{}",
        }
        with _start_environment(master, options):
            spark = run_with_timeout(
                _START_SECONDS,
                lambda: SparkSession.builder.config(map=options).getOrCreate(),
                _kill_jvm,
                f"Spark on {master}",
            )
        return spark.newSession(), True


def start_connect(url: str) -> SparkSession:
    """Return a new session at a Spark Connect server.

    Args:
        url: `sc://host:port`, with Spark Connect's own parameters; its token is taken from
            SPARK_CONNECT_AUTHENTICATE_TOKEN.

    Raises:
        EngineError: a package of the client is missing, or the server does not answer.
    """
    _require_reachable(url)
    label = f"Spark Connect at {address(url)}"
    session: SparkSession = run_with_timeout(_CONNECT_SECONDS, lambda: _connect(url), lambda: None, label)
    return session


def _connect(url: str) -> Any:
    # Not the general builder: it would turn the whole process to Spark Connect.
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    spark: Any = ConnectSession.builder.remote(url).create()
    retry_requests(spark)
    _isolate_close(spark.client)
    _log.info("Spark Connect at %s, version %s", address(url), spark.version)
    return spark


def retry_requests(spark: SparkSession) -> None:
    """Retry a session's requests from now on.

    Args:
        spark: a Spark Connect session; a classic one has no requests.
    """
    if not is_remote(spark):
        return
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session: Any = spark
    # A request to a server that is gone is given up after some 12 s, not ten minutes: a later run takes up what was
    # localized.
    session.client.set_retry_policies([DefaultPolicy(max_retries=5, max_backoff=8_000)])


@contextmanager
def end_retries(spark: SparkSession) -> Iterator[None]:
    """Where the server stays unreachable for a job, let the clean-up behind it try each request once.

    Args:
        spark: a Spark Connect session; a classic one has no requests.
    """
    session: Any = spark
    try:
        yield
    except spark_errors() as error:
        status = getattr(error, "getGrpcStatusCode", None)
        if is_remote(spark) and status is not None and status().name == "UNAVAILABLE":
            session.client.set_retry_policies([])
        raise


def _isolate_close(client: Any) -> None:
    """Let a session's end close its own connection, and nothing that is shared.

    PySpark's own `close` (4.1) waits for a pool of all sessions to end. The garbage collector calls it, too: where that
    happens while a thread is given work, under a lock of all of Python's pools, the process deadlocks.
    """

    def close() -> None:
        client._closed = True
        client._channel.close()

    client.close = close


def require_pyspark() -> None:
    """Require pyspark; it may import pandas from here on.

    Raises:
        EngineError: it is not installed.
    """
    unblock_pandas()
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise EngineError(
            "the package pyspark is not installed", hint="install sterna with the extra 'spark'"
        ) from error


def require_redaction(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Refuse to send secrets to a Spark that would show them.

    Spark redacts session configuration by name everywhere but in the event log's job properties, where it redacts only
    names that the application's own configuration has too (EventLoggingListener.redactProperties).

    Args:
        settings: the names that are going to have secrets, with a value that the application may be started with.

    Raises:
        EngineError: it would.
    """
    if not settings:
        return
    try:
        pattern = re.compile(spark.conf.get("spark.redaction.regex", _DEFAULT_REDACTION) or "")
        exposed = [name for name in settings if not pattern.search(name)]
    except re.error:
        exposed = list(settings)  # a pattern that only Java understands: not proven
    if exposed:
        raise EngineError(f"Spark would show secrets: spark.redaction.regex does not match {exposed[0]}")
    if spark.conf.get("spark.eventLog.enabled", "false") != "true":
        return
    # By SQL, which lists redacted names: Spark Connect's own interface leaves them out.
    declared = {row["key"] for row in spark.sql("SET").collect()}
    if missing := sorted(settings.keys() - declared):
        options = " ".join(f"--conf {name}={settings[name]}" for name in missing)
        raise EngineError("Spark would write secrets into its event log", hint=f"start the server with {options}")


def require_iceberg(spark: SparkSession) -> None:
    """Require that a classic session's driver has Iceberg's runtime.

    Args:
        spark: a classic session.

    Raises:
        NoIceberg: it hasn't. Without this check py4j would raise a TypeError at first use.
    """
    from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped, unused-ignore]

    driver: Any = spark
    # To py4j a name that isn't a class in the JVM is a package.
    if isinstance(driver._jvm.org.apache.iceberg.CatalogUtil, JavaPackage):
        raise NoIceberg(
            f"Spark at {address(driver.sparkContext.master)} lacks Iceberg's runtime",
            hint="name its jars, and those of the kind of store, in spark-defaults.conf",
        )


def is_connect(master: str) -> bool:
    """Return whether a master is the URL of a Spark Connect server."""
    return master.startswith("sc://")


def address(master: str) -> str:
    """Return what messages may show of a master: parameters may hold a token."""
    return master.split("/;", 1)[0].split(";", 1)[0]


def spark_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of Spark's clients for failures outside this process."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped, unused-ignore]
    from pyspark.errors import PySparkException

    errors: list[type[BaseException]] = [PySparkException, Py4JError, OSError, EOFError]
    with suppress(ImportError):
        from grpc import RpcError  # type: ignore[import-untyped, unused-ignore]

        errors.append(RpcError)
    return tuple(errors)


def summarize_error(error: BaseException, lines: int = 12) -> str:
    """Return the last lines of a Spark error, without the JVM's stack."""
    shown = [
        line
        for line in re.split(r"\n+(?:JVM|Driver) stacktrace", str(error))[0].splitlines()
        if line.strip() and not re.match(r"\s+(at |\.\.\. )", line)
    ]
    return "\n".join(shown[-lines:])[-2000:] or type(error).__name__


def run_with_timeout(seconds: float, call: Callable[[], _T], abort: Callable[[], object], label: str) -> _T:
    """Return what a call to Spark returns, or give up after a while.

    Args:
        seconds: until the deadline.
        call: as in `run_in_thread`.
        abort: as in `run_in_thread`.
        label: what messages call it.

    Raises:
        EngineError: the deadline passed, or Spark failed.
    """
    try:
        return run_in_thread(call, abort, seconds)
    except DeadlinePassed:
        raise EngineError(f"{label} did not answer within {seconds:g} s", hint=RESUME_HINT) from None
    except spark_errors() as error:
        raise EngineError(f"{label} failed: {summarize_error(error)}", hint=RESUME_HINT) from error


def run_in_thread(call: Callable[[], _T], abort: Callable[[], object], seconds: float | None = None) -> _T:
    """Return what a call returns that runs in a thread of its own, so that this one is free to stop waiting.

    A signal that interrupts PySpark in the middle of a call leaves its connection to the JVM out of step, and the
    cancelling call would wait behind the cancelled one. Here it only interrupts the waiting.

    Args:
        abort: ends what the call waits for; called after the deadline, and on Ctrl-C or whatever else ends the
            waiting, and again while the call runs.
        seconds: the deadline; None for none.

    Raises:
        DeadlinePassed: the deadline passed.
    """
    results: list[_T] = []
    errors: list[BaseException] = []
    ended = threading.Event()  # Thread.join, once interrupted, takes the thread for ended (Python 3.11)

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - carried to the waiting thread, and raised there
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True, name="sterna-spark").start()
    try:
        if not ended.wait(seconds):
            raise DeadlinePassed
    except BaseException:
        _abort_until_ended(abort, ended)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _abort_until_ended(abort: Callable[[], object], ended: threading.Event) -> None:
    """Abort until the call has ended, for some time: a cancellation right before the job begins has no effect."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        with suppress(*spark_errors()):
            abort()
        if ended.wait(CANCEL_RETRY_SECONDS):
            return


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[None]:
    """Mark what this thread starts in a session, so that `cancel` finds it from another thread.

    Args:
        tag: a name, unique in the application.
    """
    remote = is_remote(spark)
    if remote:
        spark.addTag(tag)
    else:
        spark.conf.set(_JOB_GROUP_KEY, tag)
    try:
        yield
    finally:
        with suppress(*spark_errors()):  # the session is lost, and its tags with it
            if remote:
                spark.removeTag(tag)
            else:
                spark.conf.unset(_JOB_GROUP_KEY)


def cancel(spark: SparkSession, tag: str) -> None:
    """Cancel what was started under a tag.

    Args:
        tag: as in `job_tag`.
    """
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        # Not by tag: a classic session keeps its tags by thread, and finds none from another one.
        spark.sparkContext.cancelJobGroup(tag)


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect: it reaches no JVM."""
    from pyspark.sql import SparkSession as Classic

    return not isinstance(spark, Classic)


class DeadlinePassed(Exception):
    """The deadline of `run_in_thread` passed."""


def _defaults(master: str) -> dict[str, str]:
    common = {
        "spark.python.worker.reuse": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if not master.startswith("local"):
        return common
    # All on this machine: no other host connects.
    return {
        **common,
        "spark.ui.enabled": "false",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
    }


@contextmanager
def _start_environment(master: str, options: Mapping[str, str]) -> Iterator[None]:
    """Set what Spark reads from the environment while it starts."""
    with tempfile.TemporaryDirectory(prefix="sterna-java-") as folder:
        variables = {"JAVA_HOME": str(java_home_for_spark(find_java(SPARK_MINIMUM_JAVA), Path(folder)))}
        if master.startswith("local"):
            variables |= {"SPARK_LOCAL_IP": _LOOPBACK, "PYSPARK_PYTHON": sys.executable}
        if "spark.pyspark.python" in options:
            variables["PYSPARK_PYTHON"] = options["spark.pyspark.python"]
        with temporary_environment(variables):
            yield


def _require_reachable(master: str) -> None:
    """Try the address before Spark does.

    Spark takes a minute to detect that nothing listens there, and logs a hundred lines.
    """
    endpoints = _endpoints(master)
    reasons = []
    for host, port in endpoints:
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if endpoints:
        raise EngineError(f"Spark at {address(master)} can't be reached ({'; '.join(reasons)})", hint=RESUME_HINT)


def _endpoints(master: str) -> list[tuple[str, int]]:
    if not master.startswith(("sc://", "spark://")):
        return []
    endpoints = []
    for part in address(master).split("://", 1)[1].split(","):
        try:
            parts = urlsplit(f"//{part}")
            port = parts.port or (_CONNECT_PORT if is_connect(master) else 7077)
        except ValueError as error:
            raise EngineError(
                f"{address(master)} is no address of Spark: {error}", hint="correct the registry"
            ) from error
        endpoints.append((parts.hostname or "", port))
    return endpoints


def _kill_jvm() -> None:
    """Kill a JVM that did not start, and reset PySpark so that a later try starts another one.

    PySpark doesn't expose its process before the JVM has answered: it, or the script that starts it, is recognized by
    its environment.
    """
    import psutil
    from pyspark import SparkContext

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if _LAUNCH_VARIABLE not in child.environ():
                continue
            family = [child]
            for member in family:
                member.suspend()  # so that it starts no other
                family += member.children()
            for member in family:
                member.kill()
    SparkContext._gateway = SparkContext._jvm = None
