"""`sterna doctor`: what is tried of rights and clocks, and a report without secrets."""

from __future__ import annotations

import tarfile
from email.utils import formatdate
from pathlib import Path

import pytest

from sterna.config.registry.credential import Credential
from sterna.config.secrets import environment_secrets
from sterna.errors import (
    CatalogUnreachable,
    ClockSkew,
    CredentialError,
    StoreDenied,
    StoreUnreachable,
    UsageError,
)
from sterna.operations import doctor as examining
from sterna.operations.bundle import readable_credentials, variable_names, write_bundle
from sterna.operations.doctor import Examination, check_clock, clock_skew_seconds, probe_rights
from sterna.operations.registry_check import Probe, check_registry
from sterna.replication.execution import spark_executor
from sterna.replication.replica import catalog_copy
from sterna.replication.replica.region import RegionContext
from sterna.text.doctor import bundle_texts, doctor_text
from tests.support.doubles.http_server import answer, scripted_server
from tests.support.small_world import World, quiet, refusing
from tests.unit.cli.conftest import Sterna

NOON = 1_780_000_000.0
DATE = formatdate(NOON, usegmt=True)
LONG_AGO = {"Date": formatdate(NOON - 10 * 365 * 86_400, usegmt=True)}
WORKS = Probe("eu", "Java", True, "21 in /java")
FAILS = Probe("eu", "writing", False, "no", 3, "StoreDenied", "stop", "docs/operations.md#card")
EXAMINATION = Examination(False, "eu", {"python": "3.11", "sterna": "0.1.0"}, (WORKS, FAILS))


def left(world: World) -> list[Path]:
    return [path for path in (world.folder / "eu" / "replica").rglob("*") if path.is_file()]


def test_rights_are_tried_and_nothing_is_left(world: World) -> None:
    world.commit(a=world.write("a"))
    probes = list(probe_rights(world.context(), quiet))
    assert [probe for probe in probes if not probe.good] == []
    seen = {probe.what: probe.message for probe in probes}
    assert seen[f"reading file://{world.folder}/us/lake"] == "can be read"
    assert seen[f"reading file://{world.folder}/eu/lake"] == "has no object to read"
    root = f"file://{world.folder}/eu/replica"
    steps = ("writing", "reading", "listing", "deleting")
    assert [seen[f"{step} below {root}"] for step in steps] == [
        "can be written",
        "can be read",
        "can be listed",
        "can be deleted",
    ]
    assert left(world) == []


def test_what_is_refused_is_named_with_its_card_and_ends_the_trial(world: World) -> None:
    with refusing(f"file://{world.folder}/eu/replica", StoreDenied):
        probes = [probe for probe in probe_rights(world.context(), quiet) if not probe.good]
    last = probes[-1]
    assert last.what.startswith("writing below ")
    assert (last.error, last.remedy, last.exit_code) == ("StoreDenied", "stop", 3)
    assert last.card == "docs/operations.md#credentialerror-storedenied-catalogdenied"


@pytest.mark.parametrize(
    ("date", "sent", "received", "expected"),
    [
        (DATE, NOON, NOON + 0.2, 0.0),
        (DATE, NOON + 0.9, NOON + 1.0, 0.0),
        (DATE, NOON + 61, NOON + 61.1, 60.0),
        (DATE, NOON - 60, NOON - 59, 59.0),
        ("", NOON, NOON, None),
        ("yesterday", NOON, NOON, None),
    ],
)
def test_clocks_differ_by_no_less_than_what_is_seen(
    date: str, sent: float, received: float, expected: float | None
) -> None:
    assert clock_skew_seconds(date, sent, received) == expected


def test_a_server_of_another_time_is_an_error_whatever_it_answers() -> None:
    refusal = answer(403, "", headers=LONG_AGO)
    with scripted_server(refusal) as server, pytest.raises(ClockSkew, match=r"differs by \d+ s: the server says "):
        check_clock(server.uri)


def test_the_date_of_a_cached_answer_says_nothing_of_a_clock() -> None:
    with scripted_server(answer(403, "", headers={"Age": "4711", **LONG_AGO})) as server:
        assert check_clock(server.uri) == "its answers come from a cache"


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(StoreUnreachable, match="the connection is refused"):
        check_clock("http://127.0.0.1:1")


def test_a_shared_catalog_is_tried_within_seconds_and_not_in_minutes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(context: RegionContext) -> None:
        raise CatalogUnreachable("no answer in time")

    path = tmp_path / "registry.json"
    path.write_text(world.registry.model_dump_json(by_alias=True))
    monkeypatch.setattr(catalog_copy, "probe_catalog", silent)
    monkeypatch.setattr(spark_executor, "open_spark", silent)
    failed = [probe for probe in check_registry(path, "eu", environment_secrets({}), quiet).probes if not probe.good]
    assert [probe.message for probe in failed if probe.what.startswith("catalog ")] == ["no answer in time"]


def test_the_text_has_versions_then_each_check() -> None:
    assert doctor_text(EXAMINATION).splitlines() == [
        "python 3.11, sterna 0.1.0",
        "ok   eu: Java: 21 in /java",
        "FAIL eu: writing: no",
        "     StoreDenied: stop, see docs/operations.md#card",
        "1 of 2 checks failed",
    ]


def test_a_report_has_no_secret_and_is_its_owners(tmp_path: Path, world: World) -> None:
    def secrets(id: str) -> Credential:
        if id == "absent":
            raise CredentialError("none")
        return Credential(id, "login", "hush-hush", {"sas_token": "sig=quiet%3D&se=1"})

    texts = bundle_texts(EXAMINATION, world.registry, "refused hush-hush at ?sig=quiet%3D", variable_names({}))
    path = tmp_path / "report.tar.gz"
    write_bundle(path, texts, readable_credentials(["absent", "lake"], secrets))
    with tarfile.open(path) as bundle:
        members = {name: bundle.extractfile(name).read().decode() for name in bundle.getnames()}  # type: ignore[union-attr]
    assert list(members) == ["doctor.txt", "doctor.json", "registry.json", "status.txt", "environment.txt"]
    assert "hush" not in "".join(members.values()) and "quiet%3D" not in members["status.txt"]
    assert "StoreDenied" in members["doctor.txt"]
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="can't write the report"):
        write_bundle(path, texts, ())


def test_a_report_that_is_there_is_refused_before_anything_is_tried(tmp_path: Path, sterna: Sterna) -> None:
    path = tmp_path / "report.tar.gz"
    path.touch()
    answer = sterna("doctor", "--region", "eu", "--registry", str(tmp_path / "none.yaml"), "--bundle", str(path))
    assert (answer.code, answer.out) == (2, "")
    assert "it is there already" in answer.err and path.stat().st_size == 0


def test_a_report_in_no_folder_is_refused_before_anything_is_tried(tmp_path: Path, sterna: Sterna) -> None:
    path = tmp_path / "absent" / "report.tar.gz"
    answer = sterna("doctor", "--region", "eu", "--registry", str(tmp_path / "none.yaml"), "--bundle", str(path))
    assert (answer.code, answer.out) == (2, "")
    assert "there is no folder" in answer.err


def test_what_was_tried_is_shown_though_its_report_cannot_be_written(
    tmp_path: Path, sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.tar.gz"

    def examine(*_: object) -> Examination:
        path.touch()
        return EXAMINATION

    monkeypatch.setattr(examining, "examine", examine)
    arguments = ("doctor", "--region", "eu", "--registry", str(tmp_path / "none.yaml"), "--bundle", str(path))
    answer = sterna(*arguments)
    assert answer.code == 2 and "can't write the report" in answer.err
    assert answer.out.endswith("1 of 2 checks failed\n")
    path.unlink()
    monkeypatch.setattr(examining, "examine", lambda *_: EXAMINATION)
    assert (sterna(*arguments).code, path.exists()) == (3, True)


def test_of_the_environment_a_report_has_names_alone() -> None:
    environment = {"AIRFLOW_CONN_LAKE": "secret", "HTTPS_PROXY": "http://user:secret@proxy", "PATH": "/bin"}
    assert variable_names(environment) == "AIRFLOW_CONN_LAKE\nHTTPS_PROXY\n"
