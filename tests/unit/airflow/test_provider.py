from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sterna.airflow import cli, settings
from sterna.airflow.provider import get_provider_info
from sterna.airflow.requirements import PACKAGES, require_airflow, require_packages
from sterna.cli import main
from sterna.config.registry.credential import rclone_environment
from sterna.config.registry.model import Location
from sterna.config.registry.remote_types import STORE_TYPES
from sterna.errors import UsageError
from tests.unit.config.samples import PREFIXES

_STORES = {
    f"sterna_{store_type.form.kind}": (name, PREFIXES[name])
    for name, store_type in STORE_TYPES.items()
    if store_type.form
}


def test_airflow_accepts_the_description() -> None:
    from jsonschema import validate

    validate(get_provider_info(), json.loads(files("airflow").joinpath("provider_info.schema.json").read_text()))


def test_airflow_knows_the_connection_forms() -> None:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    manager = ProvidersManagerTaskRuntime()
    for form in get_provider_info()["connection-types"]:
        hook = manager.hooks[form["connection-type"]]
        assert hook is not None
        assert hook.hook_class_name == form["hook-class-name"]


@pytest.mark.parametrize(
    "form", [form for form in get_provider_info()["connection-types"] if form["connection-type"] in _STORES], ids=str
)
def test_every_field_of_a_store_s_form_is_one_that_a_credential_reads(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sterna.airflow.secrets import airflow_secrets

    kind, prefix = _STORES[form["connection-type"]]
    location = Location(id="lake", prefix=prefix, region="eu", remote={"type": kind}, credential_id="lake")
    plain = {"login": "name", "password": "pass-word"}

    def settings_of(extra: dict[str, str]) -> dict[str, str]:
        monkeypatch.setenv(
            "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": form["connection-type"], **plain, "extra": extra})
        )
        return rclone_environment("lake", location, airflow_secrets("lake"))

    for field in form["conn-fields"]:
        text = {"is_anonymous": "true", "connection_string": "AccountKey=value-of-it"}.get(field, "value-of-it")
        assert text.removeprefix("AccountKey=") in " ".join(settings_of({field: text}).values())


def test_what_the_forms_call_secret_is_what_airflow_masks() -> None:
    from airflow.sdk.log import redact

    for form in get_provider_info()["connection-types"]:
        for field, described in form["conn-fields"].items():
            assert (redact({field: f"given-as-{field}"}) == {field: "***"}) is (
                described["schema"].get("format") == "password"
            ), field


def test_the_configuration_section_has_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.get_option("schedule") == "*/15 * * * *"
    assert settings.get_float("poll_interval") == 1
    assert settings.get_option("services") == ""
    monkeypatch.setenv("AIRFLOW__STERNA__POLL_INTERVAL", "0.5")
    assert settings.get_float("poll_interval") == 0.5
    monkeypatch.setenv("AIRFLOW__STERNA__POLL_INTERVAL", "soon")
    with pytest.raises(UsageError, match="poll_interval"):
        settings.get_float("poll_interval")


def test_a_setting_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__STERNA__REGION")
    with pytest.raises(UsageError, match="AIRFLOW__STERNA__REGION"):
        settings.get_option("region")


def test_airflow_sterna_lists_the_console_script_s_commands(capsys: pytest.CaptureFixture[str]) -> None:
    import typer.main

    from sterna.cli.main import app

    offered = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with pytest.raises(SystemExit):
        main.main(["--help"])  # what it calls without a command: see below
    shown = capsys.readouterr().out
    assert [name for name in offered if f"\n  {name} " not in shown] == []
    assert not any(command.hidden for command in offered.values()), "no older names"


def test_airflow_sterna_takes_region_registry_and_services_from_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    calls: list[list[str]] = []
    monkeypatch.setattr(main, "main", lambda argv, secrets: calls.append([*argv, secrets.__name__]))
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", "/etc/sterna/services.yaml")
    for name in ("STERNA_REGION", "STERNA_REGISTRY", "STERNA_SERVICES"):
        monkeypatch.setenv(name, "x")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    cli.run(["status", "--json"])
    assert calls == [["status", "--json", "command_secrets"]]
    assert os.environ["STERNA_REGION"] == "eu"
    assert os.environ["STERNA_SERVICES"] == "/etc/sterna/services.yaml"
    cli.run([])
    assert calls[-1][:1] == ["--help"]


@pytest.mark.parametrize("installed", ["2.11.0", "3.0.6", "3.2.1", "3.2.0rc1", "3"])
def test_an_airflow_that_is_too_old_is_named(installed: str) -> None:
    with pytest.raises(ImportError, match=rf"sterna needs Airflow 3\.3 or newer, and this is {installed}: "):
        require_airflow(installed)


@pytest.mark.parametrize("installed", ["3.3.0", "3.3.0b2", "3.10.1", "4.0.0"])
def test_a_newer_airflow_is_taken(installed: str) -> None:
    require_airflow(installed)


def test_from_the_plugins_folder_what_is_missing_is_named_in_one_line() -> None:
    require_packages()
    packages = {"json": "json", "no_such_module": "no-such-package", "no_such_driver": "driver[binary]"}
    with pytest.raises(ImportError) as caught:
        require_packages(packages)
    assert str(caught.value) == (
        "sterna lacks packages in Airflow's environment: pip install no-such-package 'driver[binary]'"
    )


def test_each_package_that_sterna_needs_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", text)[0] for text in project["dependencies"]}
    assert {package.partition("<")[0] for package in PACKAGES.values()} == needed
