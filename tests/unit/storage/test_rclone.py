"""What a copy's process is given, and which rclone it runs."""

from pathlib import Path

import pytest

from sterna.config.registry.credential import Credential
from sterna.config.registry.model import Location
from sterna.errors import EngineError, RegistryError
from sterna.storage.rclone import transfer as rclone
from sterna.storage.rclone.transfer import Folder, child_environment, find_rclone, rclone_version
from tests.support.doubles.rclone import copy_here
from tests.unit.config import samples


def folder(id: str, path: str = "", credential: Credential | None = None, **changes: object) -> Folder:
    return Folder(Location.model_validate({**samples.location(id, f"s3://{id}/p"), **changes}), credential, path)


KEYS = Credential("c", "AKIA1", "hunter22")
US = folder("us", credential=KEYS)
EU = folder("eu", "replica/us~s3a", KEYS)


def program(path: Path, output: str) -> Path:
    path.mkdir()
    (path / "rclone").write_text(f"#!/bin/sh\necho '{output}'\n")
    (path / "rclone").chmod(0o755)
    return path / "rclone"


def test_both_sides_are_aliases_of_folders_in_their_stores() -> None:
    environment = child_environment(US, EU)
    assert environment["RCLONE_CONFIG_STERNA_ORIGIN_TYPE"] == "alias"
    assert environment["RCLONE_CONFIG_STERNA_ORIGIN_REMOTE"] == "sterna_origin_store:us/p"
    assert environment["RCLONE_CONFIG_STERNA_REPLICA_REMOTE"] == "sterna_replica_store:eu/p/replica/us~s3a"
    assert environment["RCLONE_CONFIG_STERNA_REPLICA_STORE_SECRET_ACCESS_KEY"] == "hunter22"
    assert environment["RCLONE_CONFIG"] == "/dev/null"


@pytest.mark.parametrize(
    "name",
    ["RCLONE_DRY_RUN", "RCLONE_CONFIG_X_TYPE", "AIRFLOW_CONN_A", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "PGPASSWORD"],
)
def test_nothing_of_this_process_leaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "leak")
    assert "leak" not in child_environment(US, EU).values()


def test_what_a_network_needs_and_ambient_credentials_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("AWS_PROFILE", "reader")
    assert child_environment(US, EU)["HTTPS_PROXY"] == "http://proxy:1"
    assert child_environment(folder("us"), EU)["AWS_PROFILE"] == "reader"


def test_a_remote_of_an_existing_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RCLONE_CONFIG", "/mine.conf")
    monkeypatch.setenv("RCLONE_DRY_RUN", "true")
    named = folder("us", remote={"type": "s3", "name": "mine"})
    environment = child_environment(named, EU)
    assert environment["RCLONE_CONFIG_STERNA_ORIGIN_REMOTE"] == "mine:us/p"
    assert environment["RCLONE_CONFIG"] == "/mine.conf"
    assert not {"RCLONE_DRY_RUN", "RCLONE_CONFIG_STERNA_ORIGIN_STORE_TYPE"} & set(environment)
    configured = folder("us", remote={"type": "s3", "name": "mine", "config": "/other.conf"})
    assert child_environment(configured, EU)["RCLONE_CONFIG"] == "/other.conf"
    with pytest.raises(RegistryError, match=r"two rclone\.conf"):
        child_environment(configured, named)


def test_the_rclone_at_hand_is_new_enough() -> None:
    assert tuple(map(int, rclone_version().split("."))) >= rclone.MIN_VERSION


def test_an_old_one_in_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path / "old", "rclone v1.60.1-DEV")
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    assert find_rclone() != old


def test_one_that_tells_no_version_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without memory or time for a moment: a process that lives for weeks must not take it for none."""
    new = program(tmp_path / "new", "rclone v1.99.0")
    (new.parent / "tired").touch()
    new.write_text(f"#!/bin/sh\nif [ -e {new.parent}/tired ]; then kill -9 $$; fi\necho 'rclone v1.99.0'\n")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    monkeypatch.setattr(rclone.shutil, "which", lambda name, path: str(new) if str(new.parent) in path else None)
    with pytest.raises(EngineError, match="new/rclone is no rclone"):
        find_rclone()
    (new.parent / "tired").unlink()
    assert find_rclone() == new
    assert rclone_version() == "1.99.0"


def test_without_a_new_one_the_error_says_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path / "old", "rclone v1.75.1")
    other = program(tmp_path / "other", "hello")
    monkeypatch.setattr("sys.executable", str(other.with_name("python")))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(other.parent))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(
        EngineError, match=r"1\.75\.2 or newer is needed: .*old/rclone is 1\.75\.1, .*other/rclone is no rclone"
    ):
        find_rclone()
    other.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="none was found"):
        find_rclone()


@pytest.mark.slow
def test_the_tests_own_copy_does_what_rclone_does(tmp_path: Path) -> None:
    """New files, one that is there already with other bytes, and one that is missing, under names as they come."""
    names = ["a", "data/b c.parquet", "data/day=2020-01-01 00%3A00/ü.parquet", "old", "gone"]
    for at, name in enumerate(names[:-1]):
        path = tmp_path / "us" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([at]) * (at + 1))
    outcomes = []
    for kind, copies in (("rclone", rclone.copy_files), ("own", copy_here)):
        root = tmp_path / kind
        root.mkdir()
        (root / "old").write_bytes(b"other bytes")
        sides = [
            folder(id, prefix=f"file://{place}", remote={"type": "local"})
            for id, place in (("us", tmp_path / "us"), ("eu", root))
        ]
        reported: list[tuple[int, int]] = []
        done = copies(*sides, names, progress=lambda sent, files, reported=reported: reported.append((sent, files)))
        assert done.errors == ""  # of a file that is missing rclone says nothing: whoever copies looks at what is here
        files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        assert reported[-1] == (done.bytes, done.files)
        outcomes.append((done.bytes, done.files, {name: path.read_bytes() for name, path in files.items()}))
    assert outcomes[0] == outcomes[1]
    assert sorted(outcomes[0][2]) == sorted(names[:-1])
