"""Copying between real stores, and every way in which a copy can go wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sterna.config.secrets import connection_environment
from sterna.errors import (
    CredentialError,
    EngineError,
    NotCopied,
    SizeDiffers,
    SourceGone,
    StoreDenied,
    StoreUnreachable,
    UnsafeUri,
)
from sterna.replication.execution import copy as sync_copy
from sterna.replication.execution.copy import CopyProgress, CopyResult, copy_batch
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.plan.inventory import check_targets
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT
from sterna.replication.replica.region import RegionContext
from sterna.storage.rclone.transfer import copy_files
from tests.support.stores import ODD, SECRET, Stores

DARK = {"type": "s3", "options": {"endpoint": "http://127.0.0.1:1"}}


@pytest.fixture
def here(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.partition('[')[0]}/data"


def put(stores: Stores, folder: str, contents: dict[str, bytes], table: str = "t") -> list[CopyFile]:
    """Write files into us and return them as a plan lists them."""
    uris = {f"{stores.us}/{folder}/{name}": data for name, data in contents.items()}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(stores.put, uris, uris.values()))
    return [CopyFile(table, uri, stores.mapping.replica_uri(uri), len(data)) for uri, data in uris.items()]


def copy(stores: Stores, files: Sequence[CopyFile], **more: Any) -> CopyResult:
    return copy_batch(files, stores.mapping, stores.objects.secrets, stores.objects, **more)


def missing_file(stores: Stores, folder: str, name: str, table: str = "t", size: int = 1) -> CopyFile:
    uri = f"{stores.us}/{folder}/{name}"
    return CopyFile(table, uri, stores.mapping.replica_uri(uri), size)


def requests(stores: Stores, region: int, since: int, *methods: str) -> list[str]:
    return [request.key for request in stores.endpoints[region].requests(since) if request.method in methods]


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if met := condition():
            return met
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def list_copy_processes(endpoint: str) -> dict[int, str]:
    """Return the command lines of the running processes that copy from an endpoint."""
    commands = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                f"RCLONE_CONFIG_STERNA_ORIGIN_STORE_ENDPOINT={endpoint}\0".encode()
                in (process / "environ").read_bytes() + b"\0"
            ):
                commands[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return {pid: command for pid, command in commands.items() if command}


class TestEveryStore:
    def test_files_arrive_at_their_place_and_are_counted(self, stores: Stores, here: str) -> None:
        files = put(stores, here, {f"p={number % 3}/{number}": b"x" * number for number in range(30)})
        seen: list[CopyProgress] = []
        result = copy(stores, files, progress=seen.append)
        assert (result.files, result.bytes, result.failures, result.failed) == (30, 435, (), 0)
        assert result.sent >= 435  # more when rclone had to send one again
        assert all(stores.objects.read(file.target) == b"x" * file.size for file in files)
        assert (seen[-1].files, seen[-1].bytes, seen[-1].files_total, seen[-1].bytes_total) == (30, 435, 30, 435)
        assert str(seen[-1]) == "30 of 30 files, 435 of 435 bytes sent"

    def test_a_second_run_sends_nothing(self, stores: Stores, here: str) -> None:
        files = put(stores, here, {str(number): b"12345" for number in range(5)})
        assert copy(stores, files[:3]).sent >= 15  # more when rclone had to send one again
        again = copy(stores, files)
        assert (again.files, again.bytes) == (5, 25)
        assert 10 <= again.sent < 25
        assert copy(stores, files).sent == 0

    @pytest.mark.parametrize("there", [0, 3])
    def test_many_files_are_looked_up_where_few_are_there(self, stores: Stores, here: str, there: int) -> None:
        sources = [f"{stores.us}/{here}/p={number % 7}/{number:04}" for number in range(1100)]
        targets = [stores.mapping.replica_uri(source) for source in sources]
        for number in range(there):
            stores.put(targets[number], b"x" * number)
        stores.put(f"{stores.mapping.replica_uri(f'{stores.us}/{here}/p=0')}/of-no-table", b"x")
        rows = listing.rows("t", CONTENT, [(*pair, 1) for pair in zip(sources, targets, strict=True)], 0)
        context = cast(
            RegionContext, SimpleNamespace(objects=stores.objects, mapping=stores.mapping, region=stores.mapping.region)
        )
        since = [len(endpoint.requests()) for endpoint in stores.endpoints]
        sizes = check_targets(context, rows).sizes.to_pylist()
        assert sizes == [*range(there), *[None] * (len(sources) - there)]
        if stores.endpoints:
            assert len(stores.endpoints[1].requests(since[1])) == 1

    def test_odd_names_arrive_byte_for_byte(self, stores: Stores, here: str) -> None:
        names = [name for name in ODD if name not in stores.alike]
        files = put(stores, here, {name: name.encode() for name in names})
        result = copy(stores, files)
        assert (result.files, result.failures) == (len(names), ())
        assert all(
            stores.objects.read(stores.mapping.replica_uri(f"{stores.us}/{here}/{name}")) == name.encode()
            for name in names
        )
        assert copy(stores, files).sent == 0

    def test_a_missing_source_is_told_though_rclone_sees_nothing_wrong(self, stores: Stores, here: str) -> None:
        files = put(stores, here, {"good": b"1"})
        result = copy(stores, [missing_file(stores, here, "away", "t2"), *files])
        assert (result.files, result.bytes, result.failed) == (1, 1, 1)
        (failure,) = result.failures
        assert isinstance(failure, SourceGone)
        assert (failure.table, failure.file) == ("t2", f"{stores.us}/{here}/away")

    def test_a_source_of_another_size_is_told_for_the_table_that_says_so(self, stores: Stores, here: str) -> None:
        (file,) = put(stores, here, {"f": b"12345"})
        liar = CopyFile("liar", file.source, file.target, 4)
        for files in ([file, liar], [liar, file]):
            (failure,) = copy(stores, files).failures
            assert isinstance(failure, SizeDiffers)
            assert (failure.table, failure.file) == ("liar", file.source)
            assert "5 bytes" in str(failure) and "says 4" in str(failure)

    def test_a_target_of_another_size_is_copied_anew(self, stores: Stores, here: str) -> None:
        (file,) = put(stores, here, {"f": b"12345"})
        stores.put(file.target, b"half")
        assert copy(stores, [file]).files == 1
        assert stores.objects.read(file.target) == b"12345"

    def test_a_copy_that_is_here_outlives_its_source(self, stores: Stores, here: str) -> None:
        file = missing_file(stores, here, "f")
        stores.put(file.target, b"1")
        assert copy(stores, [file]) == CopyResult(1, 1, 0)

    def test_a_target_that_stands_twice_is_copied_once(self, stores: Stores, here: str) -> None:
        (file,) = put(stores, here, {"f": b"12345"})
        result = copy(stores, [file, CopyFile("other", file.source, file.target, 5), file])
        assert (result.files, result.bytes, result.sent) == (1, 5, 5)

    def test_another_spelling_has_a_place_of_its_own(self, stores: Stores, here: str) -> None:
        (file,) = put(stores, here, {"f": b"12345"})
        source = stores.respelled(file.source)
        respelled = CopyFile("t", source, stores.mapping.replica_uri(source), 5)
        assert respelled.target != file.target
        assert copy(stores, [file, respelled]).files == 2
        assert stores.objects.size(respelled.target) == 5

    def test_a_large_file_in_parts(self, stores: Stores, here: str) -> None:
        data = os.urandom(1 << 20) * 66
        (file,) = put(stores, here, {"large": data})
        assert len(data) <= copy(stores, [file]).sent < 2 * len(data)  # more when rclone had to send a part again
        assert stores.objects.read(file.target) == data
        assert copy(stores, [file]).sent == 0


class TestFaults:
    def test_an_empty_list_starts_nothing(self, served: Stores) -> None:
        dark = served.with_location("us", remote=DARK).with_location("eu", remote=DARK)
        assert copy(dark, []) == CopyResult(0, 0, 0)

    @pytest.mark.parametrize("side", ["us", "eu"])
    def test_a_dark_store_is_named(self, served: Stores, here: str, side: str) -> None:
        files = put(served, here, {side: b"1"})
        dark, message = served.with_location(side, remote=DARK), r"http://127\.0\.0\.1:1\b.*a later run resumes"
        if side == "eu":  # the region's own
            with pytest.raises(StoreUnreachable, match=message):
                copy(dark, files)
            return
        (failure,) = copy(dark, files).failures
        assert isinstance(failure, StoreUnreachable)
        assert (failure.table, failure.file) == ("t", files[0].source)
        assert re.search(message, str(failure))

    def test_a_refused_or_missing_credential_is_named(self, served: Stores, here: str) -> None:
        files = put(served, here, {"f": b"1"})
        with pytest.raises(StoreDenied, match=r"'(us|eu)_store'"):
            copy(served.with_location("us", secret="anotherSecret99"), files)
        (failure,) = copy(served.with_location("us", credential_id="nobody"), files).failures
        assert isinstance(failure, CredentialError)
        with pytest.raises(CredentialError, match="'nobody'"):
            copy(served.with_location("eu", credential_id="nobody"), files)

    def test_what_rclone_can_not_do_is_told_in_its_words(self, served: Stores, here: str) -> None:
        files = put(served, here, {"f": b"1"})
        inside = served.endpoints[1].folder
        assert inside is not None
        # A file stands where a folder must be made.
        (inside / "home/replica's root/us" / here).parent.mkdir(parents=True, exist_ok=True)
        (inside / "home/replica's root/us" / here).touch()
        (failure,) = copy(served, files).failures
        assert isinstance(failure, EngineError)
        assert re.match(r"1 files were not copied though they are at their source: .+", failure.message)
        assert failure.file == files[0].source
        assert SECRET not in str(failure)

    def test_a_file_that_does_not_arrive_is_told_when_others_do(
        self, served: Stores, here: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = put(served, here, {"good": b"1", "archived": b"22"})
        real = copy_files

        def without(origin: Any, replica: Any, names: list[str], **more: Any) -> Any:
            return real(origin, replica, [name for name in names if not name.endswith("archived")], **more)

        monkeypatch.setattr(sync_copy, "copy_files", without)
        result = copy(served, files)
        assert result.files == 1
        assert [(type(error), error.file) for error in result.failures] == [(NotCopied, files[1].source)]
        (failure,) = copy(served, [files[1]]).failures
        assert isinstance(failure, EngineError)
        assert "a later run resumes" in str(failure)

    def test_a_file_may_go_to_its_place_only(self, served: Stores, here: str) -> None:
        (file,) = put(served, here, {"f": b"1"})
        (failure,) = copy(served, [CopyFile("t", file.source, f"{served.eu}/elsewhere", 1)]).failures
        assert isinstance(failure, UnsafeUri)
        assert "not its place" in str(failure)

    def test_failures_are_counted_and_the_first_hundred_of_a_table_kept(self, served: Stores, here: str) -> None:
        files = [
            missing_file(served, here, f"{number}", table)
            for table, count in (("a", 120), ("b", 3))
            for number in range(count)
        ]
        result = copy(served, files)
        assert (result.files, result.failed) == (0, 123)
        assert [sum(failure.table == table for failure in result.failures) for table in ("a", "b")] == [100, 3]


class TestProcess:
    def test_variables_of_this_process_change_nothing(
        self, served: Stores, here: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = put(served, here, {"f": b"1"})
        settings = {
            "RCLONE_DRY_RUN": "true",
            "RCLONE_EXCLUDE": "*",
            "RCLONE_CONFIG": "/nowhere/rclone.conf",
            "RCLONE_CONFIG_STERNA_ORIGIN_STORE_ENDPOINT": "http://127.0.0.1:1",
            "RCLONE_S3_ENDPOINT": "http://127.0.0.1:1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_SESSION_TOKEN": "wrong",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        assert copy(served, files).sent == 1

    def test_a_folder_for_temporary_files_may_have_any_name(
        self, served: Stores, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        odd = tmp_path / 'it\'s $(touch x) `y` "z"'
        odd.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(odd))
        assert copy(served, put(served, here, {"f": b"1"})).sent == 1
        assert list(odd.iterdir()) == []

    def test_a_remote_of_an_existing_rclone_conf(self, served: Stores, here: str, tmp_path: Path) -> None:
        files = put(served, here, {"f": b"1"})
        url = served.endpoints[0].url
        config = tmp_path / "rclone.conf"
        config.write_text(
            f"[mine]\ntype = s3\nprovider = Rclone\nendpoint = {url}\naccess_key_id = AKIASTERNA\nsecret_access_key "
            f"= {SECRET}\n"
        )
        remote = {"type": "s3", "options": {"endpoint": url}, "name": "mine", "config": str(config)}
        assert copy(served.with_location("us", remote=remote), files).sent == 1

    def test_no_secret_stands_on_a_command_line(self, served: Stores, here: str) -> None:
        slow = served.with_location("us", bandwidth="100k")
        files = put(served, here, {"f": os.urandom(400_000)})
        worker = threading.Thread(target=copy, args=(slow, files))
        worker.start()
        commands: set[str] = set()
        while worker.is_alive():
            commands |= set(list_copy_processes(served.endpoints[0].url).values())
            time.sleep(0.05)
        worker.join()
        assert any('rclone copy "sterna_origin:" "sterna_replica:"' in command for command in commands)
        assert any(command.startswith("rclone copy sterna_origin: sterna_replica:") for command in commands)
        assert not any(SECRET in command or here in command or "ware house" in command for command in commands)

    def test_the_deadline_ends_the_whole_family(self, served: Stores, here: str) -> None:
        slow = served.with_location("us", bandwidth="20k")
        files = put(served, here, {"f": os.urandom(2_000_000)})
        with pytest.raises(EngineError, match="a later run resumes"):
            copy(slow, files, deadline=3.0)
        wait_for(lambda: not list_copy_processes(served.endpoints[0].url))

    def test_a_copy_that_stalls_is_ended(self, served: Stores, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
        files = put(served, here, {"f": os.urandom(2_000_000)})
        monkeypatch.setattr(sync_copy, "copy_files", lambda *sides, **more: copy_files(*sides, **more | {"stall": 1.0}))
        with pytest.raises(EngineError, match="no byte arrived for 1 s"):
            copy(served.with_location("us", bandwidth="1"), files)
        wait_for(lambda: not list_copy_processes(served.endpoints[0].url))

    def test_an_interrupt_ends_the_whole_family(self, served: Stores, here: str) -> None:
        slow = served.with_location("us", bandwidth="50k")
        files = put(served, here, {"f": os.urandom(2_000_000)})

        def interrupt(_: CopyProgress) -> None:
            assert list_copy_processes(served.endpoints[0].url)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(slow, files, progress=interrupt)
        wait_for(lambda: not list_copy_processes(served.endpoints[0].url))

    def test_when_the_copys_own_process_dies_rclone_goes_with_it(self, served: Stores, here: str) -> None:
        slow = served.with_location("us", bandwidth="50k")
        files = put(served, here, {"f": os.urandom(2_000_000)})

        def kill(_: CopyProgress) -> None:
            for pid, command in list_copy_processes(served.endpoints[0].url).items():
                if "rclone/child.py" in command:
                    os.kill(pid, signal.SIGKILL)

        with pytest.raises(EngineError, match="the copy's process failed"):
            copy(slow, files, progress=kill)
        wait_for(lambda: not list_copy_processes(served.endpoints[0].url))

    def test_killed_in_the_middle_and_run_again_sends_only_what_had_not_arrived(
        self, served: Stores, here: str
    ) -> None:
        slow = served.with_location("us", bandwidth="300k", transfers=2)
        files = put(served, here, {f"{number:02}": os.urandom(100_000) for number in range(30)})
        parent = start(slow, files)

        def arrived() -> list[CopyFile]:
            sizes = served.objects.sizes(file.target for file in files)
            return [file for file in files if sizes[file.target] == file.size]

        wait_for(lambda: len(arrived()) >= 3)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not list_copy_processes(served.endpoints[0].url))
        before = arrived()
        assert 3 <= len(before) < len(files)
        marks = [len(endpoint.requests()) for endpoint in served.endpoints]
        result = copy(served, files)
        left = 30 - len(before)
        assert result.files == 30
        assert left - 2 <= result.sent / 100_000 <= left, "what was under way may have arrived since"
        sources = {file.source.removeprefix("s3://lake/") for file in before}
        targets = {file.target.removeprefix("s3://home/") for file in before}
        assert not sources & set(requests(served, 0, marks[0], "GET"))
        assert not targets & set(requests(served, 1, marks[1], "PUT", "PUT PART"))


def start(stores: Stores, files: list[CopyFile]) -> subprocess.Popen[bytes]:
    """Start a process that copies."""
    program = (
        "import json, sys\n"
        "from sterna.storage.objects import Objects\n"
        "from sterna.config.secrets import environment_secrets\n"
        "from sterna.replication.execution.copy import copy_batch\n"
        "from sterna.replication.execution.copy_file import CopyFile\n"
        "spec, files = json.load(sys.stdin)\n"
        "objects = Objects.from_spec(spec, environment_secrets())\n"
        "copy_batch([CopyFile(*file) for file in files], objects.mapping, objects.secrets, objects)\n"
    )
    environment = {**os.environ, **connection_environment(["us_store", "eu_store"], stores.objects.secrets)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(
        json.dumps(
            [stores.objects.spec(), [[file.table, file.source, file.target, file.size] for file in files]]
        ).encode()
    )
    process.stdin.close()
    return process
