"""Code that runs inside Spark's Python workers: the items, and the check of what is installed there.

A worker imports this module for every job: it imports nothing heavy that PySpark's worker hasn't imported already.
"""

from __future__ import annotations

import json
import sys
import traceback
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sterna.config.environment import temporary_environment

if TYPE_CHECKING:
    import pyarrow as pa

# Session configuration travels to the workers as local properties of each task. "secret" in the name makes Spark redact
# it.
SECRETS_KEY = "spark.sterna.secret.environment"
RESULT_SCHEMA = "index long, result string"
PROBE_SCHEMA = "report string"
FAILURE_MARK = "sterna-failure "
# While one item waits for a store, others work. Few, for each may hold a large manifest several times over.
_MAX_CONCURRENCY = 4
_MAX_TRACEBACK_LINES = 12
_MAX_TRACEBACK_CHARACTERS = 1500
_PUBLIC_FIELDS = frozenset({"conn_type", "description", "host", "port", "schema"})
_MIN_SECRET_CHARACTERS = 4  # characters; shorter values ("us", "1") would make every text unreadable


class WorkerError(Exception):
    """A function failed on an item; the message has the end of its traceback as JSON, without secrets."""


def run_items(function: Callable[[str], str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a function over a partition of items, a few at once, with the secrets of its job in the worker's environment.

    Args:
        function: takes one item and returns its result; called from several threads.
        batches: Arrow batches with the columns index and item.

    Yields:
        One Arrow batch an item, with the columns index and result.

    Raises:
        WorkerError: the function raised.
    """
    import pyarrow as pa

    with (
        _secrets_in_environment() as secrets,
        ThreadPoolExecutor(_MAX_CONCURRENCY, thread_name_prefix="sterna-items") as pool,
    ):
        for batch in batches:
            results = pool.map(partial(_call, function, environment=secrets), batch.column("item").to_pylist())
            for index, result in zip(batch.column("index").to_pylist(), results, strict=True):
                yield pa.RecordBatch.from_pydict({"index": [index], "result": [result]})
    _clear_zip_importers()


def _clear_zip_importers() -> None:
    """Let the import system forget the zip files that it has searched; it finds them again when it needs them.

    PySpark's worker invalidates import caches before every task, and Python 3.11 then reads the directories of all of
    them again, that of Spark's own jar too: 0.2 seconds a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def redact(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with every secret of an environment replaced by `***`.

    Args:
        text: what shall be shown.
        environment: variables whose values are secret: connections in JSON form, or plain values.
    """
    for secret in sorted(_secrets(environment), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def report_function(packages: tuple[str, ...]) -> Callable[[], str]:
    """Return a function that reports, as JSON, what is installed where it runs: host, Python and its version, missing
    packages, digest of sterna's sources and where they are.

    It is nested so that Spark pickles it by value: the workers may not have sterna at all. It does not import sterna
    either, because a worker that has imported one version would keep it after another one is shipped.

    Args:
        packages: the names under which packages are imported.
    """

    def report() -> str:
        import hashlib
        import importlib.util
        import json
        import pathlib
        import platform
        import socket
        import sys
        import zipfile

        spec = importlib.util.find_spec("sterna")
        folder = next(iter(spec.submodule_search_locations or [""]), "") if spec else ""
        archive = pathlib.Path(folder).parent
        if archive.is_file():  # what was sent is imported from its zip
            with zipfile.ZipFile(archive) as zip_file:
                sources = {name.partition("/")[2]: zip_file.read(name) for name in zip_file.namelist()}
        else:
            paths = pathlib.Path(folder).rglob("*.py") if folder else []
            sources = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        digest = hashlib.sha256()
        for name in sorted(sources):
            if name.endswith(".py"):
                digest.update(f"{name}\n".encode() + sources[name])
        host_facts = {"host": socket.gethostname(), "python": sys.executable, "version": platform.python_version()}
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        return json.dumps({**host_facts, "missing": missing, "sources": digest.hexdigest(), "place": folder})

    return report


def probe_function(report: Callable[[], str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that answers each partition with one report; nested for the same reason."""

    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"report": [report()]})

    return probe


def _call(function: Callable[[str], str], item: str, environment: Mapping[str, str]) -> str:
    try:
        return function(item)
    except Exception as error:  # noqa: BLE001 - any error is passed on as a WorkerError
        # Raised alone and redacted: Spark writes the whole traceback of a failed task to logs, UI and event log.
        failure = WorkerError(FAILURE_MARK + json.dumps({"traceback": redact(_end_of_traceback(error), environment)}))
    raise failure


def _end_of_traceback(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()[-_MAX_TRACEBACK_LINES:]
    return "\n".join(lines)[-_MAX_TRACEBACK_CHARACTERS:]


@contextmanager
def _secrets_in_environment() -> Iterator[dict[str, str]]:
    """Set the job's variables and remove them again: the next job in this worker may have other secrets."""
    from pyspark import TaskContext

    task = TaskContext.get()
    secrets: dict[str, str] = json.loads((task and task.getLocalProperty(SECRETS_KEY)) or "{}")
    with temporary_environment(secrets):
        yield secrets


def _secrets(environment: Mapping[str, str]) -> set[str]:
    secrets = set()
    for value in environment.values():
        secrets |= {value, *_leaves(value, "")}
    secrets |= {encoded for secret in secrets for encoded in (json.dumps(secret)[1:-1], quote(secret, safe=""))}
    return {secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARACTERS}


def _leaves(value: Any, field: str) -> Iterator[str]:
    """Yield the strings inside a JSON value; a connection's `extra` may be JSON inside a string once more."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, dict | list):
            yield from _leaves(inner, field)
        elif field not in _PUBLIC_FIELDS:
            yield value
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _leaves(child, name)
    elif isinstance(value, list):
        for child in value:
            yield from _leaves(child, field)
