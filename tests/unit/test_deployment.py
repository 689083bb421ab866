"""What `deploy/kubernetes` and `deploy/systemd` ship: fields that Kubernetes has, commands and settings of sterna's."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator

from sterna.airflow.settings import OPTIONS
from sterna.cli.main import app
from sterna.config.secrets import variable_name
from sterna.config.yaml import credential_fields
from sterna.errors import ExitCode
from sterna.replication.replica.region import read_registry

ROOT = Path(__file__).parents[2]
KUBERNETES, SYSTEMD = ROOT / "deploy" / "kubernetes", ROOT / "deploy" / "systemd"
SCHEMAS = json.loads((ROOT / "tests" / "data" / "kubernetes" / "schemas-1.37.json").read_text())
VALUES = yaml.safe_load((KUBERNETES / "airflow-values.yaml").read_text())
UNITS = sorted(SYSTEMD.glob("*.service"))


def manifests() -> Iterator[Any]:
    for name in ("gateway.yaml", "replication.yaml"):
        yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def identity(manifest: Any) -> str:
    return f"{manifest['apiVersion']} {manifest['kind']}"


def pod(manifest: Any) -> Any:
    """The pod that a manifest starts, None where it starts none."""
    spec = manifest["spec"]
    return (spec.get("jobTemplate", {}).get("spec", spec)).get("template", {}).get("spec")


PODS = [pytest.param(pod(manifest), id=manifest["metadata"]["name"]) for manifest in manifests() if pod(manifest)]


def parse(arguments: list[str]) -> None:
    """Parse a command line of sterna's as it would be, and run nothing."""
    program, name, *options = arguments
    assert Path(program).name == "sterna"
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, options)


@pytest.mark.parametrize("manifest", [*manifests()], ids=identity)
def test_a_manifest_has_no_field_that_kubernetes_lacks(manifest: Any) -> None:
    schema = Draft202012Validator(SCHEMAS[identity(manifest)])
    assert [error.message for error in schema.iter_errors(manifest)] == []


@pytest.mark.parametrize("spec", PODS)
def test_a_pod_runs_a_command_of_sterna_without_rights_and_with_what_it_mounts(spec: Any) -> None:
    (container,) = spec["containers"]
    parse(container["args"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    folders = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    files = [entry["value"] for entry in container["env"] if entry["name"] in ("STERNA_REGISTRY", "STERNA_SERVICES")]
    assert files and all(file.startswith(folders) for file in files)


def test_the_service_and_the_budget_are_for_the_pods_of_the_gateway() -> None:
    deployment, service, budget = yaml.safe_load_all((KUBERNETES / "gateway.yaml").read_text())
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    assert service["spec"]["sessionAffinity"] == "ClientIP", "a ticket is good at one gateway alone"


def test_no_pod_is_started_again_because_a_server_that_it_needs_does_not_answer() -> None:
    deployment, *_ = yaml.safe_load_all((KUBERNETES / "gateway.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"httpGet", "exec"}.isdisjoint(container["startupProbe"] | container["livenessProbe"])


def test_airflows_values_have_settings_of_sterna_and_each_credential_of_the_registry() -> None:
    assert set(VALUES["config"]["sterna"]) <= set(OPTIONS)
    needed = {variable_name(id) for _, id in credential_fields(read_registry(ROOT / "storage_registry.yaml"))}
    assert {entry["envName"] for entry in VALUES["secret"]} == needed
    (mount,) = VALUES["volumeMounts"]
    assert VALUES["config"]["sterna"]["registry"].startswith(mount["mountPath"])
    assert [volume["name"] for volume in VALUES["volumes"]] == [mount["name"]]


def read_unit(unit: Path) -> configparser.ConfigParser:
    sections = configparser.ConfigParser(interpolation=None, strict=True)
    sections.optionxform = str  # type: ignore[assignment, method-assign]
    sections.read(unit)
    return sections


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_whose_exit_code_needs_a_person_stays_failed(unit: Path) -> None:
    service = read_unit(unit)["Service"]
    if "Restart" in service:
        needs_person = (ExitCode.INPUT, ExitCode.CREDENTIAL, ExitCode.CHANGED)
        assert service["RestartPreventExitStatus"].split() == [str(code.value) for code in needs_person]
    else:
        assert service["SuccessExitStatus"] == str(ExitCode.INTERRUPTED.value), "held tables are an alarm"


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_of_sterna_and_is_started(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_REGION", "eu")
    sections = read_unit(unit)
    parse(sections["Service"]["ExecStart"].split())
    timer = unit.with_suffix(".timer")
    assert ("Install" in sections) != timer.exists()
    assert sections["Service"]["User"] == "sterna"


@pytest.mark.parametrize("path", [*KUBERNETES.iterdir(), *SYSTEMD.iterdir()], ids=lambda path: path.name)
def test_sections_of_documents_that_are_named_are_there(path: Path) -> None:
    for page, title in re.findall(r"\(?(docs/\w+\.md), \"([^\"]+)\"", path.read_text()):
        assert re.search(rf"^#+ {title}$", (ROOT / page).read_text(), re.MULTILINE), (page, title)
