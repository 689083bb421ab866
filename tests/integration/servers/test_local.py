"""The embedded deployment: what it starts ends with it, goes dark and comes back, and keeps its secrets to itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import boto3
import httpx
import psutil
import psycopg
import pyarrow.fs as pafs
import pytest
from botocore.exceptions import ClientError

from sterna.config.registry.load import parse_registry
from sterna.errors import EngineError
from sterna.jvm.jars import Jar
from sterna.servers import postgres
from sterna.servers.jars import fetch_jars
from sterna.servers.postgres import start_postgres
from sterna.servers.process import remove_folder, start_in_parallel, start_process, wait_until_ready
from sterna.servers.s3 import CLIENT_ENVIRONMENT, Endpoint, start_combined_s3, start_s3
from sterna.servers.sites import kill
from sterna.servers.stack import deployment

KEY, SECRET = "STERNATEST", "a-secret-that-nobody-may-read"
WIDE = "STERNAWIDE", "another-secret-that-nobody-may-read"


@pytest.fixture(autouse=True)
def client_settings(monkeypatch):
    for name, value in CLIENT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def endpoint(tmp_path, stack) -> Endpoint:
    endpoint = start_s3(tmp_path, "us", ["us-lake"], KEY, SECRET, combined_keys=WIDE, count_requests=True)
    stack.callback(endpoint.stop)
    return endpoint


def filesystem(endpoint: Endpoint):
    import pyarrow.fs

    return pyarrow.fs.S3FileSystem(
        endpoint_override=endpoint.url,
        access_key=endpoint.access_key,
        secret_key=endpoint.secret_key,
        region=endpoint.region,
        request_timeout=60,
        connect_timeout=20,
        retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


def write(endpoint: Endpoint, key: str, content: bytes) -> None:
    with filesystem(endpoint).open_output_stream(key) as stream:
        stream.write(content)


def read(endpoint: Endpoint, key: str) -> bytes:
    with filesystem(endpoint).open_input_stream(key) as stream:
        return stream.read()


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.05)


# --- processes


def test_a_child_that_dies_while_starting_is_reported_with_the_end_of_its_log(tmp_path):
    child = start_process(
        "the thing", [sys.executable, "-c", "print('no such setting'); raise SystemExit(3)"], log=tmp_path / "log"
    )
    with pytest.raises(EngineError, match=r"the thing ended while starting(?s:.*)no such setting"):
        wait_until_ready(child, lambda: False, timeout=60)


def test_a_child_that_never_answers_is_stopped(tmp_path):
    child = start_process("the thing", [sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log")
    with pytest.raises(EngineError, match="did not answer"):
        wait_until_ready(child, lambda: False, timeout=0.2)
    assert not child.is_alive()


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(EngineError, match="the thing can't be started"):
        start_process("the thing", [tmp_path / "nothing"], log=tmp_path / "log")


def test_a_server_starts_whatever_other_threads_hold_meanwhile(tmp_path):
    lock, held, over, kept = threading.RLock(), threading.Event(), threading.Event(), threading.local()

    class Careful:
        def __del__(self):
            with lock:
                pass

    def hold():
        kept.one = Careful()
        with lock:
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    starter = threading.Thread(
        target=start_process, args=("the thing", ["true"]), kwargs={"log": tmp_path / "log"}, daemon=True
    )
    starter.start()
    starter.join(30)
    started = not starter.is_alive()
    over.set()
    holder.join()
    assert started, "the child waits for a lock that another thread held when it was forked"


def test_stopping_ends_the_whole_family_even_one_that_ignores_being_asked(tmp_path):
    script = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\nif child: print(child, flush=True)\nelse: os.setpgid(0, 0)\ntime.sleep(600)"
    )
    parent = start_process("the thing", [sys.executable, "-c", script], log=tmp_path / "log")
    wait_for(lambda: parent.log_tail().strip().isdigit())
    parent.stop(grace=0.1)
    assert has_ended(parent.pid)
    assert has_ended(int(parent.log_tail()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_end_with_the_process_that_started_them(tmp_path, number):
    script = (
        "import sys, time\nfrom contextlib import ExitStack\nfrom pathlib import Path\n"
        "from sterna.servers.process import start_in_parallel\nfrom sterna.servers.s3 import start_s3\n"
        "with ExitStack() as stack:\n"
        "    work = Path(sys.argv[1])\n"
        "    starts = (lambda n=n: start_s3(work, n, ['lake'], 'ACCESSKEY', 'secret') for n in ('a', 'b'))\n"
        "    endpoints = start_in_parallel(stack, *starts)\n"
        "    print(*(endpoint.process.pid for endpoint in endpoints), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert len(pids) == 2
        starter.send_signal(number)
    wait_for(lambda: all(has_ended(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_postgres_starts_beside_handlers_of_fork_and_ends_with_its_parent(tmp_path):
    """Handlers of fork that gRPC brings with a Spark Connect client crashed one initdb in ten; here one is fatal."""
    script = (
        "import ctypes, os, sys, time\nfrom pathlib import Path\n"
        "from sterna.servers.postgres import start_postgres\n"
        "ending = ctypes.CFUNCTYPE(None)(lambda: os._exit(7))\n"
        "assert ctypes.CDLL(None).__register_atfork(ending, None, None, None) == 0\n"
        "server = start_postgres(Path(sys.argv[1]))\n"
        "print(server.process.pid, server.folder.parent, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        line = starter.stdout.readline().decode()
        starter.kill()
    assert starter.returncode == -signal.SIGKILL
    pid, home = line.split(maxsplit=1)
    wait_for(lambda: has_ended(int(pid)))
    remove_folder(Path(home.strip()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands Postgres over to another account")
def test_postgres_starts_from_a_home_that_is_closed_to_others(tmp_path, monkeypatch):
    """Its libraries stand beside its package, and have to come along."""
    package = postgres.find_binaries().parents[1]
    closed = tmp_path / "closed"
    for folder in (package, *package.parent.glob(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True, ignore=shutil.ignore_patterns("pginstall18"))
    closed.chmod(0o700)
    monkeypatch.setattr(postgres, "find_binaries", lambda: closed / package.name / "pginstall" / "bin")
    server = start_postgres(tmp_path / "work")
    try:
        with psycopg.connect(server.admin.url()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()


def test_what_came_up_is_stopped_when_something_else_does_not(tmp_path):
    started = []

    def start_running():
        started.append(
            start_process("good", [sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log")
        )
        return started[0]

    def start_failing():
        raise EngineError("no")

    with pytest.raises(EngineError, match="no"), ExitStack() as stack:
        start_in_parallel(stack, start_running, start_failing)
    assert not started[0].is_alive()


# --- object stores


def test_an_endpoint_goes_dark_and_comes_back_at_its_address_with_its_objects(endpoint):
    write(endpoint, "us-lake/a/b.txt", b"hello")
    endpoint.suspend()
    with pytest.raises(OSError):
        read(endpoint, "us-lake/a/b.txt")
    endpoint.start()
    assert read(endpoint, "us-lake/a/b.txt") == b"hello"


def test_an_endpoint_that_was_killed_starts_again(endpoint):
    write(endpoint, "us-lake/a/b.txt", b"hello")
    kill(endpoint.process)
    with pytest.raises(OSError):
        read(endpoint, "us-lake/a/b.txt")
    endpoint.start()
    assert read(endpoint, "us-lake/a/b.txt") == b"hello"


def test_a_gate_ends_with_the_server_behind_it(endpoint):
    (server,) = psutil.Process(endpoint.process.pid).children()
    server.kill()
    wait_for(lambda: not endpoint.process.is_alive())


def test_requests_are_counted_from_a_mark_on(endpoint):
    write(endpoint, 'us-lake/a/odd "name.txt', b"hello")
    mark = len(endpoint.requests())
    assert read(endpoint, 'us-lake/a/odd "name.txt') == b"hello"
    requests = [(request.method, request.bucket, request.key) for request in endpoint.requests(mark)]
    assert ("GET", "us-lake", 'a/odd "name.txt') in requests
    assert not [method for method, *_ in requests if method == "PUT"]


def test_large_uploads_arrive_whole_through_both_kinds_of_endpoint(tmp_path, stack, endpoint):
    wide = start_combined_s3(tmp_path, "wide", {"us-lake": endpoint}, *WIDE)
    stack.callback(wide.stop)
    content = os.urandom(1 << 20) * 25
    for name, server in (("narrow", endpoint), ("wide", wide)):
        write(server, f"us-lake/{name}.bin", content)
        assert hashlib.sha256(read(endpoint, f"us-lake/{name}.bin")).digest() == hashlib.sha256(content).digest()
    assert read(wide, "us-lake/narrow.bin") == content


MARKER = "us-lake/t/metadata/"


@pytest.fixture
def metadata(endpoint) -> dict[str, bytes]:
    """The files of a table's folder, read once through the server."""
    files = {f"{MARKER}{number}.json": str(number).encode() for number in range(4)}
    for key, content in files.items():
        write(endpoint, key, content)
    return files


def test_a_folder_s_files_stay_when_one_is_deleted_and_the_folder_s_marker_is_put(tmp_path, stack, endpoint, metadata):
    wide = start_combined_s3(tmp_path, "wide", {"us-lake": endpoint}, *WIDE)
    stack.callback(wide.stop)
    for number, server in enumerate((endpoint, wide)):
        gone, *_ = metadata
        filesystem(server).delete_file(gone)  # DELETE of the file, then PUT of its folder's marker
        del metadata[gone]
        for reader in (endpoint, wide):
            assert {key: read(reader, key) for key in metadata} == metadata
        write(server, f"{MARKER}new-{number}.json", b"new")
        assert read(server, f"{MARKER}new-{number}.json") == b"new"


def test_a_marker_of_a_folder_that_is_not_there_is_in_nobody_s_way(endpoint):
    filesystem(endpoint).create_dir("us-lake/new/metadata")
    write(endpoint, "us-lake/new/metadata/a.json", b"a")
    assert read(endpoint, "us-lake/new/metadata/a.json") == b"a"


def test_markers_are_asked_of_the_server_as_other_objects_are(endpoint, metadata):
    def put_marker(bucket: str, secret: str) -> str:
        client = boto3.client(
            "s3",
            endpoint_url=endpoint.url,
            aws_access_key_id=endpoint.access_key,
            aws_secret_access_key=secret,
            region_name=endpoint.region,
        )
        try:
            client.put_object(Bucket=bucket, Key="t/metadata/", Body=b"")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "put"

    assert put_marker("us-lake", SECRET) == "put"
    assert put_marker("nowhere", SECRET) == "NoSuchBucket"
    assert put_marker("us-lake", "wrong") == "SignatureDoesNotMatch"
    assert {key: read(endpoint, key) for key in metadata} == metadata


def test_uploads_of_many_clients_at_once_arrive_whole(tmp_path, stack, endpoint, metadata):
    wide = start_combined_s3(tmp_path, "wide", {"us-lake": endpoint}, *WIDE)
    stack.callback(wide.stop)
    contents = {f"{MARKER}large-{number}.bin": os.urandom(1 << 20) * (11 + number) for number in range(6)}

    def upload(number: int, key: str) -> None:
        server = (endpoint, wide)[number % 2]
        write(server, f"{MARKER}small-{number}", b"x")
        write(server, key, contents[key])
        filesystem(server).delete_file(f"{MARKER}small-{number}")

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(upload, range(len(contents)), contents))
    for key, content in contents.items():
        assert read(wide, key) == content
    assert {key: read(endpoint, key) for key in metadata} == metadata


def test_what_one_endpoint_wrote_the_wide_one_serves_at_once(tmp_path, stack, endpoint):
    wide = start_combined_s3(tmp_path, "wide", {"us-lake": endpoint}, *WIDE)
    stack.callback(wide.stop)
    for number in range(10):
        first, second = (endpoint, wide) if number % 2 else (wide, endpoint)
        write(first, f"us-lake/t/{number}", b"x")
        assert read(second, f"us-lake/t/{number}") == b"x"
        names = [info.base_name for info in filesystem(second).get_file_info(pafs.FileSelector("us-lake/t"))]
        assert str(number) in names


def test_another_key_is_refused(endpoint):
    endpoint.secret_key = "wrong"
    with pytest.raises(OSError, match=r"SIGNATURE|ACCESS_DENIED"):
        read(endpoint, "us-lake/a")


def test_no_key_stands_in_a_log_or_on_a_command_line(endpoint):
    write(endpoint, "us-lake/a", b"x")
    assert endpoint.requests()
    assert SECRET not in endpoint.log.read_text()
    assert SECRET not in repr(endpoint)
    assert SECRET not in " ".join(endpoint.process.popen.args)


# --- Postgres


def test_databases_have_their_own_logins_and_can_be_copied(tmp_path, stack):
    postgres = start_postgres(tmp_path / "work")
    stack.callback(postgres.stop)
    first = postgres.create_database("first")
    with psycopg.connect(first.url()) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    second = postgres.copy_database(first, "second")
    with psycopg.connect(second.url()) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    with pytest.raises(EngineError, match=r"CREATE DATABASE first|CREATE ROLE first"):
        postgres.create_database("first")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first.url().replace(first.password, "wrong"))
    assert first.password not in repr(first)


# --- jars


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Jar:
    """A Maven repository in a folder, with one jar in it."""
    content = b"not really a jar"
    jar = Jar("org.example", "thing", "1.0", len(content), hashlib.sha256(content).hexdigest(), classifier="runner")
    folder = tmp_path / "repository" / "org" / "example" / "thing" / "1.0"
    folder.mkdir(parents=True)
    (folder / jar.file_name).write_bytes(content)
    (folder / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>thing</artifactId><version>1.0</version></project>"
    )
    monkeypatch.setenv("STERNA_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri())
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    return jar


def test_jars_are_fetched_once_and_only_whole_ones_are_taken(repository, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        (path,), (same,) = pool.map(fetch_jars, [[repository], [repository]])
    assert path == same
    assert path.read_bytes() == b"not really a jar"
    (tmp_path / "repository").rename(tmp_path / "gone")
    assert fetch_jars([repository]) == [path]
    path.write_bytes(b"half")
    with pytest.raises(EngineError, match="could not be downloaded"):
        fetch_jars([repository])


def test_a_jar_with_other_content_is_refused(repository, tmp_path):
    mismatched = Jar("org.example", "thing", "1.0", repository.size, "0" * 64, classifier="runner")
    with pytest.raises(EngineError, match="not the file that was tested"):
        fetch_jars([mismatched])
    assert not list((tmp_path / "cache" / "jars").glob("*.jar"))


# --- all of it


def test_a_deployment_has_a_catalog_in_postgres_a_registry_and_credentials(tmp_path):
    with deployment(tmp_path / "work") as deployed:
        registry = parse_registry(deployed.registry.read_text(), deployed.registry.name)
        assert registry.region_names == ["us", "eu"]
        assert httpx.get(f"{deployed.nessie.uri}/config").json()["defaultBranch"] == "main"
        assert "/classes/nessie-" in Path(f"/proc/{deployed.nessie.process.pid}/maps").read_text(), (
            "it starts sooner so"
        )
        with psycopg.connect(replace(deployed.postgres.admin, name="nessie").url()) as connection:
            assert connection.execute("SELECT count(*) FROM refs2").fetchone() != (0,)
        for location in registry.locations:
            assert f"AIRFLOW_CONN_{location.credential_id.upper()}" in deployed.environment
            write(deployed.combined_endpoint, f"{location.id}/a", location.id.encode())
            assert read(deployed.endpoints[location.region], f"{location.id}/a") == location.id.encode()
        urls = [deployed.nessie.uri, *(endpoint.url for endpoint in deployed.endpoints.values())]
        secrets = [endpoint.secret_key for endpoint in (deployed.combined_endpoint, *deployed.endpoints.values())] + [
            deployed.postgres.admin.password
        ]
    for url in urls:
        with pytest.raises(OSError):
            urllib.request.urlopen(url, timeout=5)
    texts = {path.name: path.read_text() for path in (tmp_path / "work").glob("*") if path.is_file()}
    assert not [name for name, text in texts.items() for secret in secrets if secret in text]
