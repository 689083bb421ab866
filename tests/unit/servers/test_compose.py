"""docker-compose.yml, checked without a container engine: against the Compose Specification's schema, and against
what the tests run.

What the embedded deployment would start is caught where it would start it, and compared word by word and variable by
variable. The differences that a container asks for are spelt out here; there are no others.
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import typer.main
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

import run
from sterna.cli.main import app
from sterna.config.registry.credential import parse_credential
from sterna.config.registry.load import parse_registry
from sterna.jvm.java import Java
from sterna.servers import airflow, nessie, s3, sites, stack
from sterna.servers.jars import NESSIE
from sterna.servers.postgres import Database, find_binaries
from tests.support.servers import patroni, spark_connect

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONFIGS: dict[str, dict[str, str]] = COMPOSE["configs"]
REGISTRY = parse_registry((ROOT / "nessie" / "compose" / "storage_registry.yaml").read_text(), "storage_registry.yaml")
REGIONS = ("us", "eu")
KINDS = {
    *(
        "postgres-{}-a",
        "postgres-{}-b",
        "voter-{}",
        "databases-{}",
        "nessie-{}",
        "guard-{}",
        "s3-{}",
        "spark-{}",
        "trino-{}",
    ),
    *("airflow-{}", "airflow-tables-{}", "airflow-scheduler-{}", "airflow-dag-processor-{}", "airflow-triggerer-{}"),
}
LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
NESSIE_PORT = {"us": "19120", "eu": "19121"}
S3_PORT = {"us": "9001", "eu": "9002"}
AIRFLOW_PORT = {"us": "8081", "eu": "8082"}
DOCKERFILE: str = SERVICES["first"]["build"]["dockerfile_inline"]
HOME = "/opt/sterna"
PURELIB = sysconfig.get_path("purelib")
PACKAGES = f"{HOME}/.venv/lib/python3.11/site-packages"
VARIABLE = re.compile(r"\$\{(\w+):\?[^}]+\}")
SECRET = re.compile(r"PASSWORD|SECRET|FERNET|ACCESS_KEY|AUTH_KEY|SQL_ALCHEMY|AIRFLOW_CONN")
ONE_OFF = {name for name, service in SERVICES.items() if service["restart"] == "no"}


@pytest.fixture(scope="module")
def dotenv(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What new_env.sh writes into .env."""
    folder = tmp_path_factory.mktemp("env")
    script = ROOT / "nessie" / "compose" / "new_env.sh"
    subprocess.run(["sh", str(script)], cwd=folder, check=True)
    # Never over an old one: the databases keep their passwords.
    assert subprocess.run(["sh", str(script)], cwd=folder, capture_output=True).returncode != 0
    assert (folder / ".env").stat().st_mode & 0o077 == 0
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def filled(text: str, variables: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda match: variables[match[1]], text).replace("$$", "$")


def environment(service: str, variables: Mapping[str, str]) -> dict[str, str]:
    return {name: filled(value, variables) for name, value in SERVICES[service].get("environment", {}).items()}


def config(service: str, target: str) -> str:
    """What a service finds in a file that is put into it."""
    (source,) = [mount["source"] for mount in SERVICES[service]["configs"] if mount["target"] == target]
    definition = CONFIGS[source]
    return (ROOT / definition["file"]).read_text() if "file" in definition else definition["content"]


def words(service: str) -> list[str]:
    """The command, without the shell that some of them begin with."""
    command = [filled(word, {}) for word in SERVICES[service]["command"]]
    if command[:2] == ["sh", "-c"]:
        assert command[2].endswith('"$0" "$@"')
        return command[3:]
    return command


def gate_of(service: str) -> str:
    """Where the gate of a store listens."""
    command = words(service)
    return next(after for word, after in pairwise(command) if word.endswith("s3_gate.py"))


def region_of(service: str) -> str | None:
    return next((region for region in REGIONS if region in service.split("-")), None)


def needed_by(service: str) -> set[str]:
    """The services that have to be up before one, and before those."""
    targets = set(SERVICES[service].get("depends_on", {}))
    return targets.union(*(needed_by(target) for target in targets))


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


class ProcessRecorder:
    """Stands where the embedded deployment starts its servers, and keeps what it would have started."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.commands: list[list[str]] = []
        self.env: dict[str, str] = {}

    def start(
        self, name: str, command: list[Any], *, log: Path, env: Mapping[str, str] | None = None, **_: object
    ) -> Any:
        self.command = [str(word) for word in command]
        self.commands.append(self.command)
        # What a server is given beyond what this process has.
        self.env = {name: value for name, value in (env or {}).items() if os.environ.get(name) != value}
        return SimpleNamespace(stop=lambda: None, log=log)


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessRecorder]:
    recorder = ProcessRecorder()
    for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
        monkeypatch.delenv(name)  # other tests' Airflow, which would hide what this one is given
    for module in (airflow, nessie, patroni, s3, spark_connect):
        monkeypatch.setattr(module, "start_process", recorder.start)
        if module is not patroni:
            monkeypatch.setattr(module, "wait_until_ready", lambda *args, **kwargs: None)
    java = Java(Path(f"{HOME}/java"), 21, frozenset())
    monkeypatch.setattr(nessie, "find_java", lambda: java)
    monkeypatch.setattr(
        nessie, "fetch_jars", lambda jars, **_: [Path(f"{HOME}/cache/jars/{jar.file_name}") for jar in jars]
    )
    monkeypatch.setattr(spark_connect, "find_java", lambda minimum: java)
    monkeypatch.setattr(spark_connect, "java_home_for_spark", lambda java, folder: java.home)
    monkeypatch.setattr(s3, "find_rclone", lambda: Path("rclone"))
    yield recorder


def embedded_endpoints(tmp_path: Path) -> dict[str, s3.Endpoint]:
    """The endpoints that the embedded deployment would have at the addresses of the containers."""
    return {
        region: s3.Endpoint(
            region, f"http://s3-{region}:{S3_PORT[region]}", f"key-{region}", f"secret-{region}", None, tmp_path / "log"
        )
        for region in REGIONS
    }


def in_the_image(path: str) -> str:
    """Where a file of this Python environment lies in the image."""
    places = {
        sysconfig.get_path("purelib"): PACKAGES,
        sysconfig.get_path("scripts"): f"{HOME}/.venv/bin",
        str(ROOT / "plugins"): f"{HOME}/plugins",
    }
    for here, there in places.items():
        path = path.replace(here, there)
    return path


# ------------------------------------------------------------------------------------------------------------------ the
# file


def faults(compose: dict[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    return [error.message for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(compose)]


def test_the_file_fits_the_specification() -> None:
    assert faults(COMPOSE) == []


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("nessie-us", "healthchek", {}),
        ("s3-us", "ports", "9001"),
        ("first", "networks", 1),
        ("trino-eu", "depends_on", {"s3-eu": {}}),
    ],
)
def test_the_schema_sees_what_is_wrong(service: str, key: str, value: object) -> None:
    wrong = deepcopy(COMPOSE)
    wrong["services"][service][key] = value
    assert faults(wrong)


def test_both_regions_have_the_same_services() -> None:
    assert set(SERVICES) == {"first", *(kind.format(region) for kind in KINDS for region in REGIONS)}


def test_what_differs_between_the_regions_is_their_name_and_their_ports() -> None:
    ports = dict(zip(("19120", "9001", "8081", "8083"), ("19121", "9002", "8082", "8084"), strict=True))

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {renamed(key): renamed(member) for key, member in value.items()}
        if isinstance(value, list):
            return [renamed(member) for member in value]
        if not isinstance(value, str):
            return value
        text = re.sub(r"(?<![A-Za-z])us(?![A-Za-z])(?!-east)", "eu", value)
        return re.sub("|".join(ports), lambda match: ports[match[0]], re.sub(r"_US(?=_)", "_EU", text))

    shared = set(COMPOSE["x-credentials"]) | set(COMPOSE["x-nessie-environment"])
    for kind in KINDS:
        us, eu = (deepcopy(SERVICES[kind.format(region)]) for region in REGIONS)
        for service in (us, eu):
            for name in shared:
                service.get("environment", {}).pop(name, None)
        us["configs"], eu["configs"] = (
            [mount for mount in side.get("configs", []) if "trino" in mount["source"]] for side in (us, eu)
        )
        assert renamed(us) == eu, kind
    assert properties(renamed(CONFIGS["trino-us"]["content"])) == properties(CONFIGS["trino-eu"]["content"])


def test_images_are_pinned() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name, service in SERVICES.items():
        if name.startswith("trino-"):
            assert re.fullmatch(r"trinodb/trino:\d+", service["image"])
        else:
            assert (service["image"], service["pull_policy"]) == (f"sterna:{version}", "never"), name
    assert [name for name, service in SERVICES.items() if "build" in service] == ["first"]


def test_the_image_holds_what_readme_installs() -> None:
    lines = [line.partition(" ")[::2] for line in DOCKERFILE.splitlines()]
    (base,) = [rest for instruction, rest in lines if instruction == "FROM"]
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)
    assert f"{HOME}/.venv/lib/python3.11" in PACKAGES
    assert lines[1] == ("WORKDIR", HOME)
    copied = [source for instruction, rest in lines if instruction == "COPY" for source in rest.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied)
    # What run.py reads, and what pyproject.toml builds the package from.
    whole = [source for source in copied if not source.startswith("plugins/")]
    assert whole == ["run.py", "requirements.lock", "pyproject.toml", "README.md", "LICENSE", "plugins"]
    assert ("RUN", "python run.py sterna --help") in lines
    assert run.VENV.relative_to(run.HERE) == Path(".venv")
    assert SERVICES["first"]["build"]["context"] == "."
    assert "$" not in DOCKERFILE, "Compose would fill it in"


def test_a_change_of_the_code_installs_and_fetches_nothing_anew(tmp_path: Path) -> None:
    """All that is copied before the code is what these steps need, and is enough for them."""
    before, _, after = DOCKERFILE.partition("COPY plugins plugins")
    assert "install_packages" in before and "fetch_jars" in before and "java_home_for_spark" in before
    assert "pyproject.toml" not in before.partition("fetch_jars")[0] and "run.py sterna" in after
    for source in re.findall(r"plugins/sterna/\S+\.py", before):
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / source).read_bytes())
    lines = [line for line in before.splitlines() if line.startswith("RUN PYTHONPATH=plugins ")]
    assert len(lines) == 2
    for line in lines:
        imports = ";".join(line.partition('"')[2].split(";")[:-1])
        subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {['plugins', PURELIB]!r}; {imports}"],
            cwd=tmp_path,
            check=True,
        )


def test_the_image_s_build_calls_functions_that_there_are() -> None:
    scripts = re.findall(r'^RUN (?:PYTHONPATH=plugins )?python -c "(.*)"$', DOCKERFILE, re.MULTILINE)
    assert len(scripts) == 4
    for script in scripts:
        imports = [node for node in ast.parse(script).body if isinstance(node, ast.ImportFrom)]
        assert imports
        for node in imports:
            assert all(hasattr(import_module(node.module or ""), alias.name) for alias in node.names)
        imported = {alias.name for node in imports for alias in node.names}
        assert {node.id for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Name)} == imported
    assert f"STERNA_CACHE={HOME}/cache" in DOCKERFILE
    assert f"Path('{HOME}/java')" in scripts[2]
    assert SERVICES["spark-eu"]["environment"]["JAVA_HOME"] == f"{HOME}/java"
    assert f"Path('{HOME}/classic')" in scripts[3]
    classic = SERVICES["airflow-scheduler-eu"]["environment"]
    assert (classic["JAVA_HOME"], classic["SPARK_CONF_DIR"]) == (f"{HOME}/java", f"{HOME}/classic/spark/conf")


def test_volumes_lie_where_the_image_lets_its_user_write() -> None:
    (folders,) = re.findall(r"install -d -o sterna (.*)$", DOCKERFILE, re.MULTILINE)
    used = set()
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                assert (ROOT / source).is_dir(), source
            else:
                assert target in folders.split(), f"{name}: {target}"
                used.add(source)
    assert used == set(COMPOSE["volumes"])
    # Its own data alone: only an Airflow's components share a folder.
    owners = {
        volume: [
            name
            for name in SERVICES
            if any(mount.startswith(f"{volume}:") for mount in SERVICES[name].get("volumes", []))
        ]
        for volume in used
    }
    assert all(len(names) == 1 or all(name.startswith("airflow-") for name in names) for names in owners.values())


def test_files_that_are_put_into_services_exist_and_are_used() -> None:
    sources = {mount["source"] for service in SERVICES.values() for mount in service.get("configs", [])}
    assert sources == set(CONFIGS)
    for definition in CONFIGS.values():
        assert "content" in definition or (ROOT / definition["file"]).is_file()
    embedded = ROOT / "plugins" / "sterna" / "servers" / "server.properties"
    assert os.path.samefile(ROOT / CONFIGS["nessie"]["file"], embedded)
    assert os.path.samefile(ROOT / CONFIGS["patroni"]["file"], patroni.SETTINGS)


@pytest.mark.parametrize("name", SERVICES)
def test_who_runs_on_has_a_health_check_and_who_waits_waits_for_it(name: str) -> None:
    service = SERVICES[name]
    if name in ONE_OFF:
        assert "healthcheck" not in service
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    for target, condition in service.get("depends_on", {}).items():
        assert condition == {
            "condition": "service_completed_successfully" if target in ONE_OFF else "service_healthy"
        }, target
        assert target in SERVICES


def test_ports_are_bound_to_loopback_lead_to_a_server_and_stand_in_the_head() -> None:
    inside = {
        **{f"nessie-{region}": SERVICES[f"nessie-{region}"]["environment"]["QUARKUS_HTTP_PORT"] for region in REGIONS},
        **{f"s3-{region}": gate_of(f"s3-{region}").partition(":")[2] for region in REGIONS},
        **{
            f"airflow-{region}": SERVICES[f"airflow-{region}"]["environment"]["AIRFLOW__API__PORT"]
            for region in REGIONS
        },
        **{f"trino-{region}": "8080" for region in REGIONS},  # the image's own
    }
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == set(inside)
    outside = []
    for name, (port,) in published.items():
        host, number, target = port.split(":")
        assert (host, target) == (LOOPBACK, inside[name])
        outside.append(number)
        assert f" http://{LOOPBACK}:{number}" in TEXT.partition("\nname:")[0]
    assert len(outside) == len(set(outside))


def test_the_documents_speak_of_services_that_there_are() -> None:
    for path in ("docker-compose.yml", "docs/procedures.md"):
        called = re.findall(
            r"docker compose (?:build|run --rm|exec|stop) ((?:[a-z0-9-]+ ?)+)", (ROOT / path).read_text()
        )
        assert called, path
        names = [call.split()[0] for call in called]
        assert set(names) <= set(SERVICES), path


# --------------------------------------------------------------------------------------------------------- between the
# regions


def test_a_region_s_services_reach_the_other_one_by_one_network_alone() -> None:
    assert set(COMPOSE["networks"]) == {*REGIONS, "between"}
    for name, service in SERVICES.items():
        region = region_of(name)
        assert set(service["networks"]) <= {region, "between"}, name
        assert region in service["networks"] or name == "first"
    # The servers that another region's sterna or Postgres asks, and those that ask.
    for kind in (
        "postgres-{}-a",
        "postgres-{}-b",
        "nessie-{}",
        "guard-{}",
        "s3-{}",
        "spark-{}",
        "airflow-{}",
        "airflow-scheduler-{}",
    ):
        for region in REGIONS:
            assert "between" in SERVICES[kind.format(region)]["networks"], kind


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_starts_and_answers_while_the_other_one_is_dark(region: str) -> None:
    for name in SERVICES:
        if region_of(name) == region:
            assert {region_of(needed) for needed in needed_by(name)} <= {region}, name
    assert SERVICES[f"trino-{region}"]["networks"] == [region]
    assert needed_by(f"trino-{region}") == {
        *(f"nessie-{region}", f"s3-{region}", f"databases-{region}", f"postgres-{region}-a", f"postgres-{region}-b")
    }
    # /q/health asks every region's store.
    assert (
        SERVICES[f"nessie-{region}"]["healthcheck"]["test"][-1]
        == f"http://nessie-{region}:{NESSIE_PORT[region]}/api/v2/config"
    )


@pytest.mark.parametrize("region", REGIONS)
def test_trino_reads_its_region_s_replica_at_its_region_s_store(region: str, dotenv: dict[str, str]) -> None:
    settings = properties(filled(config(f"trino-{region}", "/etc/trino/catalog/lake.properties"), {}))
    registered = REGISTRY.region(region)
    (location,) = [candidate for candidate in REGISTRY.locations if candidate.region == region]
    assert settings["iceberg.nessie-catalog.ref"] == registered.replica_branch == f"main_replica_{region}"
    assert settings["iceberg.nessie-catalog.uri"] == registered.catalog.read
    assert settings["iceberg.nessie-catalog.default-warehouse-dir"] == registered.replica_root
    assert (settings["s3.endpoint"], settings["s3.region"]) == (
        location.remote.options["endpoint"],
        location.remote.options["region"],
    )
    (other,) = set(REGIONS) - {region}
    assert not re.search(
        rf"\b{other}\b|_{other}\b", "\n".join(setting for key, setting in settings.items() if key != "s3.region")
    )
    # The keys come from the environment, and are the region's own.
    here = environment(f"trino-{region}", dotenv)
    for key, kind in (("s3.aws-access-key", "ACCESS_KEY"), ("s3.aws-secret-key", "SECRET_KEY")):
        assert settings[key] == f"${{ENV:S3_{kind}}}"
        assert here[f"S3_{kind}"] == dotenv[f"S3_{region.upper()}_{kind}"]
    # The documented settings, with what this store needs.
    page = (ROOT / "docs" / "engines.md").read_text()
    recipe = properties(page.partition("Trino (`etc/catalog/lake.properties`):\n\n```\n")[2].partition("```")[0])
    assert set(recipe) == set(settings) - {
        "s3.aws-access-key",
        "s3.aws-secret-key",
        "s3.path-style-access",
        "s3.region",
    }
    assert {
        key: recipe[key]
        for key in ("connector.name", "iceberg.catalog.type", "iceberg.security", "fs.native-s3.enabled")
    } == {
        key: settings[key]
        for key in ("connector.name", "iceberg.catalog.type", "iceberg.security", "fs.native-s3.enabled")
    }


# ---------------------------------------------------------------------------------------------------------------------
# secrets


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            assert isinstance(value, str), f"{name}: YAML would turn true, 4 and 0.1 into other texts"
            if SECRET.search(variable):
                assert VARIABLE.search(value), f"{name}: {variable}"
        assert not VARIABLE.search(" ".join(service.get("command", []))), (
            f"{name}: every user of the machine can read a command"
        )


def test_new_env_writes_exactly_the_variables_that_the_file_asks_for(dotenv: dict[str, str]) -> None:
    text = json.dumps(COMPOSE)  # comments ask for nothing
    variables = re.findall(r"(?<!\$)\$\{?(\w+)", text)
    assert set(variables) == set(dotenv)
    assert variables == VARIABLE.findall(text), "each of them fails without a value"
    assert len(set(dotenv.values())) == len(dotenv), "no two are alike"
    # Nothing that a URL, JSON, or rclone's comma-separated pair would read otherwise.
    assert all(re.fullmatch(r"[A-Za-z0-9_=-]{20,}", value) for value in dotenv.values())


def test_who_works_for_a_region_has_the_credentials_that_the_registry_names(dotenv: dict[str, str]) -> None:
    databases = [region.catalog.database for region in REGISTRY.regions]
    ids = {location.credential_id for location in REGISTRY.locations} | {
        region_database and region_database.credential_id for region_database in databases
    }
    configured = [name for name, service in SERVICES.items() if "STERNA_REGISTRY" in service.get("environment", {})]
    assert {"first", "nessie-us", "guard-eu", "airflow-scheduler-us", "airflow-triggerer-eu"} <= set(configured)
    for name in configured:
        here = environment(name, dotenv)
        assert {f"AIRFLOW_CONN_{str(id).upper()}" for id in ids} == {
            variable for variable in here if variable.startswith("AIRFLOW_CONN_")
        }
        assert {variable: here[variable] for variable in s3.CLIENT_ENVIRONMENT} == s3.CLIENT_ENVIRONMENT
        assert here["STERNA_REGISTRY"] in [
            mount["target"] for mount in SERVICES[name]["configs"] if mount["source"] == "registry"
        ]
        assert here.get("STERNA_REGION") == region_of(name)
        for region in REGIONS:
            store = parse_credential(f"sterna_{region}", here[f"AIRFLOW_CONN_STERNA_{region.upper()}"])
            assert environment(f"s3-{region}", dotenv)["RCLONE_AUTH_KEY"] == f'"{store.login},{store.password}"'
            database = parse_credential(f"catalog_{region}", here[f"AIRFLOW_CONN_CATALOG_{region.upper()}"])
            member = environment(f"postgres-{region}-a", dotenv)
            assert (database.login, database.password) == (
                member["PATRONI_SUPERUSER_USERNAME"],
                member["PATRONI_SUPERUSER_PASSWORD"],
            )


# ------------------------------------------------------------------------------------------- commands and settings of
# the tests


def test_the_registry_is_that_of_regions_with_a_catalog_each(tmp_path: Path) -> None:
    catalogs = {}
    for index, region in enumerate(REGIONS):
        server = SimpleNamespace(admin=Database(LOOPBACK, 5432 + index, "postgres", "postgres", "p"))
        database = Database(LOOPBACK, 5432 + index, "nessie", "nessie", "p")
        site = sites.EmbeddedSite(region, tmp_path, server, database, None, int(NESSIE_PORT[region]))  # type: ignore[arg-type]
        catalogs[region] = sites.catalog_of(site)
    text = stack.write_registry(
        tmp_path, catalogs, embedded_endpoints(tmp_path), {"us": 15002, "eu": 15003}
    ).read_text()
    for index, region in enumerate(REGIONS):
        text = text.replace(f"{LOOPBACK}:{5432 + index}", f"postgres-{region}-a:5432\n      - postgres-{region}-b:5432")
        text = text.replace(f"http://{LOOPBACK}:{NESSIE_PORT[region]}", f"http://nessie-{region}:{NESSIE_PORT[region]}")
        text = text.replace(f"{LOOPBACK}:{15002 + index}", f"spark-{region}:15002")
    assert LOOPBACK not in text
    assert parse_registry(text, "embedded") == REGISTRY


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("name", ["a", "b", "voter"])
def test_postgres_is_run_as_in_the_tests(
    region: str, name: str, tmp_path: Path, caught: ProcessRecorder, dotenv: dict[str, str]
) -> None:
    service = f"voter-{region}" if name == "voter" else f"postgres-{region}-{name}"
    hosts = {"a": f"postgres-{region}-a", "b": f"postgres-{region}-b", "voter": f"voter-{region}"}
    here = environment(service, dotenv)
    passwords = {
        key: value
        for key, value in environment(f"postgres-{region}-a", dotenv).items()
        if key.endswith(("USERNAME", "PASSWORD"))
    }
    ports, apis, votes = ({host: number + index for index, host in enumerate(hosts)} for number in (10, 20, 30))
    setup = patroni.ClusterSetup(tmp_path, Path("/data"), None, find_binaries(), ports, apis, votes, passwords)
    setup.launch(name)
    expected = {key: value for key, value in caught.env.items() if key.startswith("PATRONI_")}
    for numbers, port in ((ports, 5432), (apis, 8008), (votes, 2222)):
        for host, number in numbers.items():
            expected = {
                key: value.replace(f"{LOOPBACK}:{number}", f"{hosts[host]}:{port}") for key, value in expected.items()
            }
    expected = {key: in_the_image(value).replace(f"/data/{name}/", "/data/") for key, value in expected.items()}
    # A container has addresses on two networks, and its own address isn't loopback.
    expected["PATRONI_RAFT_BIND_ADDR"] = f"{EVERYWHERE}:2222"
    if name != "voter":
        expected |= {"PATRONI_POSTGRESQL_LISTEN": f"{EVERYWHERE}:5432", "PATRONI_RESTAPI_LISTEN": f"{EVERYWHERE}:8008"}
        # Where it ends with the container, as it ends with the tests' cluster.
        expected["PATRONI_POSTGRESQL_PGPASS"] = "/tmp/pgpass"
    assert here == expected
    # The program, and instead of patroni.yml the folder in which it lies.
    assert words(service) == [Path(caught.command[1]).name, "/etc/patroni"]
    assert Path(caught.command[2]).name == "patroni.yml"


def test_the_passwords_are_those_that_patroni_is_given_in_the_tests(tmp_path: Path, dotenv: dict[str, str]) -> None:
    setup = patroni.prepare_cluster(tmp_path, tmp_path, None)
    here = environment("postgres-us-a", dotenv)
    assert set(setup.passwords) == {name for name in here if name.endswith(("USERNAME", "PASSWORD"))}
    users = [name for name in setup.passwords if name.endswith("USERNAME")]
    assert {name: here[name] for name in users} == {name: setup.passwords[name] for name in users}


@pytest.mark.parametrize("service", ["postgres-us-a", "postgres-eu-b", "voter-eu"])
def test_patroni_understands_its_folder(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dotenv: dict[str, str]
) -> None:
    from patroni.config import Config

    for mount in SERVICES[service]["configs"]:
        if mount["target"].startswith("/etc/patroni/"):
            (tmp_path / Path(mount["target"]).name).write_text(config(service, mount["target"]))
    here = environment(service, dotenv)
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    settings = Config(str(tmp_path))
    assert settings["name"] == here["PATRONI_NAME"]
    assert len(settings["raft"]["partner_addrs"]) == 2
    assert set(settings["raft"]) == {"self_addr", "bind_addr", "partner_addrs", "data_dir", "password"}
    if service.startswith("postgres-"):
        # What regions that follow one another need: nessie/postgresql.conf.
        targets = {mount["target"]: mount["source"] for mount in SERVICES[service]["configs"]}
        assert CONFIGS[targets[settings["postgresql"]["custom_conf"]]]["file"] == "./nessie/postgresql.conf"
        assert settings["postgresql"]["parameters"]["password_encryption"] == "scram-sha-256", (
            "patroni.yml is there, too"
        )


def test_the_databases_that_services_use_are_made(dotenv: dict[str, str]) -> None:
    text = config("databases-us", "/etc/sterna/databases.sql")
    assert words("databases-us")[0] == in_the_image(str(find_binaries() / "psql"))
    assert (find_binaries() / "psql").exists()
    assert "--file=/etc/sterna/databases.sql" in words("databases-us")
    databases = set(re.findall(r"'CREATE DATABASE (\w+) OWNER (\w+)'", text))
    logins = set(re.findall(r"'CREATE ROLE (\w+) LOGIN PASSWORD %L'", text))
    assert databases == {("nessie", "nessie"), ("airflow", "airflow")}
    assert logins == {"nessie", "airflow"}
    # Each of them only where there is none: `up` runs it every time.
    assert text.count("\\gexec") == text.count("WHERE NOT EXISTS") == len(databases) + len(logins)
    for region in REGIONS:
        here = environment(f"databases-{region}", dotenv)
        assert set(re.findall(r"^\\getenv \w+ (\w+)$", text, re.MULTILINE)) == {
            name for name in here if name.endswith("DATABASE_PASSWORD")
        }
        assert (
            here["NESSIE_DATABASE_PASSWORD"]
            == environment(f"nessie-{region}", dotenv)["QUARKUS_DATASOURCE_POSTGRESQL_PASSWORD"]
        )
        member = environment(f"postgres-{region}-a", dotenv)
        assert (here["PGUSER"], here["PGPASSWORD"]) == (
            member["PATRONI_SUPERUSER_USERNAME"],
            member["PATRONI_SUPERUSER_PASSWORD"],
        )
        assert (here["PGHOST"], here["PGTARGETSESSIONATTRS"]) == (
            f"postgres-{region}-a,postgres-{region}-b",
            "read-write",
        )


@pytest.mark.parametrize("region", REGIONS)
def test_nessie_is_run_as_in_the_tests(
    region: str, tmp_path: Path, caught: ProcessRecorder, dotenv: dict[str, str]
) -> None:
    keys = {
        site: (dotenv[f"S3_{site.upper()}_ACCESS_KEY"], dotenv[f"S3_{site.upper()}_SECRET_KEY"]) for site in REGIONS
    }
    endpoints = {
        site: s3.Endpoint(site, end.url, *keys[site], None, end.log)
        for site, end in embedded_endpoints(tmp_path).items()
    }
    warehouses = [nessie.Warehouse(site, stack.bucket_name(site), "warehouse", end) for site, end in endpoints.items()]
    database = Database("h", 1, "nessie", "nessie", dotenv[f"NESSIE_{region.upper()}_DATABASE_PASSWORD"], (2,))
    nessie.start_nessie(tmp_path, database=database, warehouses=warehouses, port=int(NESSIE_PORT[region]))

    settings = f"{nessie.__file__.rpartition('/')[0]}/server.properties"
    command = [
        word.replace(settings, "/etc/nessie/server.properties").replace(str(tmp_path), "/etc/nessie")
        for word in caught.command
    ]
    assert words(f"nessie-{region}") == command
    written = properties((tmp_path / "warehouses.properties").read_text())
    assert properties(config(f"nessie-{region}", "/etc/nessie/warehouses.properties")) == written
    assert config(f"nessie-{region}", "/etc/nessie/server.properties") == Path(settings).read_text()

    expected = {
        name: value.replace("h:1", f"postgres-{region}-a:5432").replace("h:2", f"postgres-{region}-b:5432")
        for name, value in caught.env.items()
    }
    # Several servers share a machine in the tests, and loopback.
    del expected["QUARKUS_MANAGEMENT_PORT"]
    expected["QUARKUS_HTTP_HOST"] = EVERYWHERE
    ours = set(COMPOSE["x-credentials"]) | {"STERNA_REGION"}
    assert {
        name: value for name, value in environment(f"nessie-{region}", dotenv).items() if name not in ours
    } == expected
    assert words(f"nessie-{region}")[-1] == f"{HOME}/cache/jars/{NESSIE.file_name}"


def test_nessie_starts_behind_the_guard_and_without_its_passwords() -> None:
    for region in REGIONS:
        script = filled(SERVICES[f"nessie-{region}"]["command"][2], {})
        before, _, after = script.partition("; exec ")
        assert before == "sterna catalog guard"
        superusers = {name for name in COMPOSE["x-credentials"] if name.startswith("AIRFLOW_CONN_CATALOG_")}
        assert superusers == set(re.findall(r"-u (\w+)", after))


@pytest.mark.parametrize("service", ["first", "guard-us", "guard-eu"])
def test_commands_of_sterna_are_understood(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVICES[service]["environment"].items():
        if name.startswith("STERNA_"):
            monkeypatch.setenv(name, value)
    program, *rest = words(service)
    assert program == "sterna"
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    context = command.make_context(command.name, rest)
    assert context.params["registry"] == Path(SERVICES[service]["environment"]["STERNA_REGISTRY"])
    assert context.params["region"] == (region_of(service) or "us")


@pytest.mark.parametrize("region", REGIONS)
def test_stores_are_served_as_in_the_tests(
    region: str, tmp_path: Path, caught: ProcessRecorder, dotenv: dict[str, str]
) -> None:
    keys = dotenv[f"S3_{region.upper()}_ACCESS_KEY"], dotenv[f"S3_{region.upper()}_SECRET_KEY"]
    embedded = s3.start_s3(tmp_path, region, [stack.bucket_name(region)], *keys)
    other = {f"{LOOPBACK}:{embedded.port}": f"{EVERYWHERE}:{S3_PORT[region]}", str(embedded.folder): "/data"}
    command = [in_the_image(other.get(word, word)) for word in caught.command]
    assert [command[0].replace(sys.executable, f"{HOME}/.venv/bin/python"), *command[1:]] == words(f"s3-{region}")
    assert SERVICES[f"s3-{region}"]["command"][2].startswith(f"mkdir -p /data/{stack.bucket_name(region)};")
    probe = {
        "TYPE": "s3",
        "PROVIDER": "Rclone",
        "ENDPOINT": f"http://{LOOPBACK}:{S3_PORT[region]}",
        "ACCESS_KEY_ID": keys[0],
        "SECRET_ACCESS_KEY": keys[1],
        "REGION": embedded.region,
    }
    assert environment(f"s3-{region}", dotenv) == {
        "RCLONE_AUTH_KEY": caught.env["RCLONE_AUTH_KEY"],
        **{f"RCLONE_CONFIG_SELF_{name}": value for name, value in probe.items()},
    }


@pytest.mark.parametrize("region", REGIONS)
def test_spark_connect_is_run_as_in_the_tests(region: str, tmp_path: Path, caught: ProcessRecorder) -> None:
    spark_connect.start_spark_connect(tmp_path, region, 15002)
    bound = "spark.connect.grpc.binding.address="
    folder = str(tmp_path / f"spark-{region}")
    other = {f"{bound}{LOOPBACK}": f"{bound}{EVERYWHERE}"}
    command = [in_the_image(other.get(word, word)).replace(folder, "/tmp/spark") for word in caught.command]
    assert words(f"spark-{region}") == command
    expected = {name: caught.env[name] for name in ("JAVA_HOME", "SPARK_LOCAL_IP")}
    assert set(caught.env) - {"PYSPARK_PYTHON", "SPARK_CONF_DIR"} == set(expected)
    assert SERVICES[f"spark-{region}"]["environment"] == {**expected, "PYSPARK_PYTHON": f"{HOME}/.venv/bin/python"}


@pytest.mark.parametrize("region", REGIONS)
def test_airflow_is_run_as_in_the_tests(
    region: str, tmp_path: Path, caught: ProcessRecorder, dotenv: dict[str, str]
) -> None:
    database = Database("h", 1, "airflow", "airflow", dotenv[f"AIRFLOW_{region.upper()}_DATABASE_PASSWORD"], (2,))
    airflow.start_airflow(tmp_path, region, database, tmp_path / "dags", port=int(AIRFLOW_PORT[region]))
    roles = {
        "airflow-{}": "api-server",
        **{f"airflow-{role}-{{}}": role for role in ("scheduler", "dag-processor", "triggerer")},
    }
    assert sorted([Path(command[0]).name, *command[1:]] for command in caught.commands) == sorted(
        words(kind.format(region)) for kind in roles
    )
    assert all(words(kind.format(region))[1] == role for kind, role in roles.items())

    expected = {name: value for name, value in caught.env.items() if name.startswith("AIRFLOW_")}
    for name, value in expected.items():
        expected[name] = value.replace("h:1", f"postgres-{region}-a:5432").replace("h:2", f"postgres-{region}-b:5432")
    for name in ("CORE__FERNET_KEY", "API__SECRET_KEY", "API_AUTH__JWT_SECRET"):
        expected[f"AIRFLOW__{name}"] = dotenv[f"AIRFLOW_{region.upper()}_{name.rpartition('__')[2]}"]
    expected |= {
        "AIRFLOW_HOME": "/airflow",
        "AIRFLOW__CORE__PLUGINS_FOLDER": "/airflow/plugins",
        "AIRFLOW__CORE__DAGS_FOLDER": f"{HOME}/dags",
        "AIRFLOW__API__HOST": EVERYWHERE,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://airflow-{region}:{AIRFLOW_PORT[region]}/execution/",
        # What start_airflow is given by Deployment.start_airflow.
        "AIRFLOW__STERNA__REGION": region,
        "AIRFLOW__STERNA__REGISTRY": "/etc/sterna/storage_registry.yaml",
        # What jobs on a classic Spark are given by `spark_environment`; the image's folder is not theirs to write.
        "JAVA_HOME": f"{HOME}/java",
        "SPARK_CONF_DIR": f"{HOME}/classic/spark/conf",
        "SPARK_LOCAL_DIRS": "/tmp",
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    ours = set(COMPOSE["x-credentials"]) | {"STERNA_REGION"}
    for kind in (*roles, "airflow-tables-{}"):
        here = environment(kind.format(region), dotenv)
        assert {name: value for name, value in here.items() if name not in ours} == expected, kind
    for kind in roles:
        folders = dict(volume.split(":")[1::-1] for volume in SERVICES[kind.format(region)]["volumes"])
        assert folders == {f"{HOME}/dags": "./dags", "/airflow/logs": f"airflow-{region}"}


def test_airflow_s_tables_are_made_as_in_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def start(name: str, command: list[Any], **_: object) -> Any:
        commands.append([Path(command[0]).name, *command[1:]])
        return SimpleNamespace(popen=SimpleNamespace(wait=lambda seconds: 0), stop=lambda: None)

    monkeypatch.setattr(airflow, "start_process", start)
    airflow.create_airflow_tables(Database("h", 1, "airflow", "airflow", "p"), tmp_path)
    assert commands == [words("airflow-tables-us")] == [words("airflow-tables-eu")]


# --------------------------------------------------------------------------------------------------------------- health
# checks


def probe(service: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the Python of a service's health check, and return its exit code; what it raises is a failure, too."""
    kind, python, option, code, *arguments = SERVICES[service]["healthcheck"]["test"]
    assert (kind, python, option) == ("CMD", "python", "-c")
    monkeypatch.setattr("sys.argv", ["-c", *arguments])
    try:
        exec(filled(code, {}), {})
    except SystemExit as end:
        return int(end.code or 0)
    except (OSError, KeyError):
        return 1
    return 0


def answering(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, bytes | int]) -> None:
    def urlopen(url: str, timeout: float) -> Any:
        answer = answers.get(url, 0)
        if isinstance(answer, bytes):
            return SimpleNamespace(status=200, read=BytesIO(answer).read)
        raise urllib.error.HTTPError(url, answer, "", {}, None) if answer else urllib.error.URLError("refused")  # type: ignore[arg-type]

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)


@pytest.mark.parametrize(
    ("answers", "code"),
    [({"primary": b""}, 0), ({"primary": 503, "sync": b""}, 0), ({"primary": 503, "sync": 503}, 1), ({}, 1)],
)
def test_a_member_is_healthy_as_primary_or_synchronous_standby(
    answers: dict[str, bytes | int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, {f"http://{LOOPBACK}:8008/{part}": answer for part, answer in answers.items()})
    assert probe("postgres-eu-b", monkeypatch) == code


@pytest.mark.parametrize(("answer", "code"), [(b"{}", 0), (500, 1), (0, 1)])
def test_nessie_is_healthy_when_the_catalog_answers(
    answer: bytes | int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, {"http://nessie-eu:19121/api/v2/config": answer})
    assert probe("nessie-eu", monkeypatch) == code


@pytest.mark.parametrize(
    ("service", "component"),
    [
        ("airflow-eu", "metadatabase"),
        *((f"airflow-{role}-eu", role.replace("-", "_")) for role in ("scheduler", "dag-processor", "triggerer")),
    ],
)
def test_airflow_s_health_is_the_component_s_own(service: str, component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for status, code in (("healthy", 0), ("unhealthy", 1)):
        answering(
            monkeypatch,
            {"http://airflow-eu:8082/api/v2/monitor/health": f'{{"{component}": {{"status": "{status}"}}}}'.encode()},
        )
        assert probe(service, monkeypatch) == code
    answering(monkeypatch, {"http://airflow-eu:8082/api/v2/monitor/health": b'{"another": {"status": "healthy"}}'})
    assert probe(service, monkeypatch) == 1


@pytest.mark.parametrize(("service", "port"), [("spark-us", 15002), ("voter-eu", 2222)])
def test_a_server_without_an_address_to_ask_is_healthy_when_it_listens(
    service: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_to(address: tuple[str, int], timeout: float) -> Any:
        if address != (LOOPBACK, port):
            raise ConnectionRefusedError
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(socket, "create_connection", connect_to)
    assert probe(service, monkeypatch) == 0
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: connect_to(("", 0), timeout))
    assert probe(service, monkeypatch) == 1
