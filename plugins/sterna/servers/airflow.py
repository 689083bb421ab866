"""One Airflow deployment of the embedded stack: its four components, its settings and its REST API."""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from sterna.errors import EngineError
from sterna.servers.postgres import Database
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready

_MIGRATE_SECONDS = 300.0
_START_SECONDS = 300.0
_REQUEST_SECONDS = 60.0
# The log servers would listen on every address; the API server reads the same folder.
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": (),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
# Two of these share a small machine: few processes, quick reactions, little to do when nothing happens.
_SETTINGS: Mapping[str, str] = {
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__PARALLELISM": "4",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "API__HOST": LOOPBACK,
    "API__WORKERS": "1",
    # Without it each task waits up to a second to be seen; no other key of the scheduler mattered. At a tenth of a
    # second an idle scheduler takes a fifth of a core.
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
    # A finished task holds its slot up to this many seconds; the default is 5.
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    # On a busy machine a task's first request can take longer than the default of 5 seconds, and the task is lost.
    "WORKERS__EXECUTION_API_TIMEOUT": "60",
    "DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    # Each parse forks and imports; a file that changed is parsed at once all the same.
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
    "LOGGING__COLORED_CONSOLE_LOG": "False",
}


@dataclass(frozen=True)
class Airflow:
    """A running Airflow.

    Args:
        region: the region that it belongs to.
        url: the address of its pages and its API; everyone who reaches it is an administrator.
        home: its folder: logs and settings.
        environ: the environment of its components, for `airflow` commands of one's own; holds secrets.
    """

    region: str
    url: str
    home: Path
    environ: Mapping[str, str] = field(repr=False)
    processes: tuple[Process, ...]

    def get(self, path: str, **params: object) -> Any:
        """Return the JSON that the API answers.

        Args:
            path: the path below `/api/v2`, such as `/dags`.

        Raises:
            EngineError: no answer, or one that isn't 2xx.
        """
        return self.request("GET", path, params=params)

    def post(self, path: str, body: object) -> Any:
        """Send JSON with POST and return the JSON that the API answers.

        Args:
            path: the path below `/api/v2`.

        Raises:
            EngineError: no answer, or one that isn't 2xx.
        """
        return self.request("POST", path, json=body)

    def patch(self, path: str, body: object) -> Any:
        """Send JSON with PATCH and return the JSON that the API answers.

        Args:
            path: the path below `/api/v2`.

        Raises:
            EngineError: no answer, or one that isn't 2xx.
        """
        return self.request("PATCH", path, json=body)

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request and return the JSON that the API answers, None where it answers nothing.

        Args:
            method: the HTTP method.
            path: the path below `/api/v2`.
            arguments: `params`, `json` and so on, as httpx takes them.

        Raises:
            EngineError: no answer, or one that isn't 2xx.
        """
        operation = f"{method} {path}"
        try:
            answer = self._send(method, path, arguments)
        except httpx.HTTPError as error:
            raise EngineError(f"Airflow of {self.region} did not answer {operation}: {type(error).__name__}") from error
        if not answer.is_success:
            text = answer.text[:500]
            raise EngineError(f"Airflow of {self.region} answered {answer.status_code} to {operation}: {text}")
        return answer.json() if answer.content else None

    def _send(self, method: str, path: str, arguments: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        with httpx.Client(base_url=self.url, timeout=_REQUEST_SECONDS, trust_env=False) as client:
            return client.request(method, f"/api/v2{path}", headers=headers, **arguments)

    @cached_property
    def _token(self) -> str:
        # Airflow's are good for a day.
        answer = httpx.get(f"{self.url}/auth/token", timeout=_REQUEST_SECONDS, trust_env=False).raise_for_status()
        return str(answer.json()["access_token"])

    def wait_for_dag(self, dag: str, *, timeout: float = 180.0) -> None:
        """Wait until the DAG processor has parsed a DAG.

        Args:
            timeout: seconds to wait.

        Raises:
            EngineError: it is not there in time; the message holds Airflow's import errors.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with suppress(EngineError):
                self.get(f"/dags/{dag}")
                return
            time.sleep(0.5)
        raise EngineError(
            f"Airflow of {self.region} has no DAG {dag}; its import errors: "
            f"{self.get('/importErrors')['import_errors']}"
        )

    def stop(self) -> None:
        """End the components and the tasks that they run."""
        with ThreadPoolExecutor(max_workers=len(self.processes)) as pool:
            list(pool.map(Process.stop, self.processes))


def create_airflow_tables(database: Database, work: Path) -> None:
    """Create Airflow's tables in a database, which is copied for each deployment: making them takes far longer than
    copying.

    Args:
        database: an empty one.
        work: the folder for the log and a passing AIRFLOW_HOME.

    Raises:
        EngineError: Airflow is missing or could not make its tables.
    """
    home = work / "airflow"
    environ = _environment(home, database, home / "dags", None, free_port(), {})
    _migrate(home, environ)


def _migrate(home: Path, environ: Mapping[str, str]) -> None:
    process = start_process(
        "airflow db migrate", [_find_program(), "db", "migrate"], log=home / "migrate.log", env=environ, cwd=home
    )
    try:
        status = process.popen.wait(_MIGRATE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"Airflow did not make its tables within {_MIGRATE_SECONDS:.0f} s") from error
    finally:
        process.stop()
    if status != 0:
        raise EngineError(f"Airflow could not make its tables; the end of its log:\n{process.log_tail()}")


def start_airflow(
    work: Path,
    region: str,
    database: Database,
    dags_folder: Path,
    *,
    plugins_folder: Path | None = None,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Airflow:
    """Start one Airflow deployment at loopback ports and wait until all of its components are healthy.

    Args:
        work: the folder below which AIRFLOW_HOME is made.
        region: the region that it belongs to.
        database: a database with Airflow's tables, its own.
        dags_folder: its DAG files.
        plugins_folder: its plugins folder; None for an empty one.
        port: the port of its pages and its API; None for a free one.
        env: variables on top of this process's environment and Airflow's settings.

    Raises:
        EngineError: Airflow is missing or did not start.
    """
    home = work / f"airflow-{region}"
    port = port or free_port()
    environ = _environment(home, database, dags_folder, plugins_folder, port, env or {})
    url = f"http://{LOOPBACK}:{port}"
    processes = []
    with ExitStack() as stack:
        for name, options in _COMPONENTS.items():
            process = start_process(
                f"Airflow's {name} of {region}",
                [_find_program(), name, *options],
                log=home / f"{name}.log",
                env=environ,
                cwd=home,
            )
            stack.callback(process.stop)
            processes.append(process)
        deadline = time.monotonic() + _START_SECONDS
        for name, process in zip(("metadatabase", "scheduler", "dag_processor", "triggerer"), processes, strict=True):
            wait_until_ready(process, lambda name=name: _is_healthy(url, name), timeout=deadline - time.monotonic())  # type: ignore[misc]
        stack.pop_all()
    return Airflow(region, url, home, environ, tuple(processes))


def _is_healthy(url: str, component: str) -> bool:
    try:
        health = httpx.get(f"{url}/api/v2/monitor/health", timeout=_REQUEST_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return False
    return health.is_success and health.json()[component]["status"] == "healthy"


def _find_program() -> Path:
    program = Path(sysconfig.get_path("scripts")) / "airflow"
    if not program.exists():
        raise EngineError(
            "apache-airflow is not installed in this Python environment", hint="install sterna with the extra 'local'"
        )
    return program


def _environment(
    home: Path, database: Database, dags_folder: Path, plugins_folder: Path | None, port: int, env: Mapping[str, str]
) -> dict[str, str]:
    plugins_folder = plugins_folder or home / "plugins"
    for folder in (home, dags_folder, plugins_folder):
        folder.mkdir(parents=True, exist_ok=True)
    settings = {
        **_SETTINGS,
        "CORE__DAGS_FOLDER": str(dags_folder),
        "CORE__PLUGINS_FOLDER": str(plugins_folder),
        "CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{port}/execution/",
        "DATABASE__SQL_ALCHEMY_CONN": database.url("postgresql+psycopg"),
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": database.url("postgresql+asyncpg"),
        "API__PORT": str(port),
        "API__BASE_URL": f"http://{LOOPBACK}:{port}",
        "API__SECRET_KEY": secrets.token_urlsafe(32),
        "API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
    }
    # Settings of another Airflow of this user would mix with ours.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    return clean | {"AIRFLOW_HOME": str(home), **{f"AIRFLOW__{name}": value for name, value in settings.items()}, **env}
