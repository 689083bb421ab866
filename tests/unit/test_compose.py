"""docker-compose.yml, checked without a container engine: its structure, and that it is set up like the embedded deployment."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.local import airflow, nessie, s3, stack
from sterna.local.postgres import Database
from sterna.registry.credential import parse_credential
from sterna.registry.load import parse_registry

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
REGISTRY = ROOT / "nessie" / "compose" / "storage_registry.yaml"
REGIONS = ("us", "eu")
LOOPBACK = "127.0.0.1"
# What of the Compose Specification this file uses; a misspelt key is a new one.
TOP_LEVEL = {"name", "services", "volumes"}
SERVICE = {"build", "command", "depends_on", "environment", "healthcheck", "image", "mem_limit", "ports", "restart", "volumes"}
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period"}
BUILD = {"context", "dockerfile_inline"}
VARIABLE = re.compile(r"\$\{(\w+):\?[^}]+\}")
SECRET = re.compile(r"PASSWORD|SECRET|FERNET|ACCESS_KEY|AUTH_KEY|SQL_ALCHEMY|AIRFLOW_CONN")


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


def environment(service: str, variables: dict[str, str]) -> dict[str, str]:
    return {name: VARIABLE.sub(lambda found: variables[found[1]], value) for name, value in SERVICES[service]["environment"].items()}


def mounts(service: str) -> list[tuple[str, str]]:
    parts = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    return [(part[0], part[1]) for part in parts]


def embedded_endpoints(tmp_path: Path) -> dict[str, s3.Endpoint]:
    """The endpoints that the embedded deployment would have at the addresses of the containers."""
    ports = {"us": 9001, "eu": 9002}
    return {
        region: s3.Endpoint(region, f"http://s3-{region}:{ports[region]}", f"key-{region}", f"secret-{region}", None, tmp_path / "log")
        for region in REGIONS
    }


def test_only_known_keys_stand_in_the_file() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == TOP_LEVEL
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", COMPOSE["name"])
    for service in SERVICES.values():
        assert set(service) <= SERVICE
        assert set(service.get("build", {})) <= BUILD
        assert all(isinstance(value, str) for value in service["environment"].values()), "YAML would turn true, 4 and 0.1 into other texts"


def test_two_regions_share_a_catalog_and_nothing_else() -> None:
    assert set(SERVICES) == {"postgres", "nessie", *(f"{kind}-{region}" for kind in ("s3", "airflow") for region in REGIONS)}
    for region, other in (REGIONS, REGIONS[::-1]):
        assert f"s3-{other}" not in SERVICES[f"airflow-{region}"]["depends_on"], "a region starts while the other one is dark"
        assert not {source for source, _ in mounts(f"s3-{region}")} & {source for source, _ in mounts(f"s3-{other}")}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    service = SERVICES[name]
    images = [service["image"], *re.findall(r"^FROM (\S+)$", service.get("build", {}).get("dockerfile_inline", ""), re.MULTILINE)]
    for image in images:
        assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?[a-z0-9.-]*", image), image


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_health_checks_and_wait_for_healthy_ones(name: str) -> None:
    service = SERVICES[name]
    assert set(service["healthcheck"]) <= HEALTHCHECK
    assert service["healthcheck"]["test"][0] == "CMD"
    assert all(re.fullmatch(r"\d+s", service["healthcheck"][key]) for key in ("interval", "timeout", "start_period"))
    for target, condition in service.get("depends_on", {}).items():
        assert target in SERVICES
        assert condition == {"condition": "service_healthy"}


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_bound_to_loopback_and_equal_inside_and_outside(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        host, outside, inside = port.split(":")
        assert (host, outside) == (LOOPBACK, inside)


def test_no_port_is_given_twice() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))


@pytest.mark.parametrize("name", SERVICES)
def test_mounted_files_exist_and_volumes_are_named(name: str) -> None:
    for source, _ in mounts(name):
        if source.startswith("."):
            assert (ROOT / source).exists(), source
        else:
            assert source in COMPOSE["volumes"], source


def test_every_volume_is_used() -> None:
    assert set(COMPOSE["volumes"]) == {source for name in SERVICES for source, _ in mounts(name) if not source.startswith(".")}


def test_the_image_is_built_from_files_of_the_checkout() -> None:
    build = SERVICES["airflow-us"]["build"]
    assert build["context"] == "."
    copied = [part for line in re.findall(r"^COPY --\S+ (.*) \S+$", build["dockerfile_inline"], re.MULTILINE) for part in line.split()]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    assert SERVICES["airflow-eu"]["build"] == build


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for variable, value in service["environment"].items():
            if SECRET.search(variable):
                assert VARIABLE.search(value), f"{name}: {variable}"


def test_new_env_writes_exactly_the_variables_that_the_file_asks_for(dotenv: dict[str, str]) -> None:
    assert set(re.findall(r"\$\{(\w+)", TEXT)) == set(VARIABLE.findall(TEXT)) == set(dotenv)
    assert len(set(dotenv.values())) == len(dotenv), "no two are alike"
    # Nothing that a URL, JSON, or rclone's comma-separated pair would read otherwise.
    assert all(re.fullmatch(r"[A-Za-z0-9_=-]{20,}", value) for value in dotenv.values())


def test_the_registry_is_the_embedded_deployment_s(tmp_path: Path) -> None:
    catalogs = {region: {"read": "http://nessie:19120/api/v2"} for region in REGIONS}
    embedded = stack.write_registry(tmp_path, catalogs, embedded_endpoints(tmp_path), {}).read_text()
    registry = parse_registry(REGISTRY.read_text(), REGISTRY.name)
    assert registry == parse_registry(embedded, "embedded")
    assert f"./{REGISTRY.relative_to(ROOT)}" in [source for source, _ in mounts("airflow-eu")]


def test_the_registry_s_addresses_are_services_of_the_file() -> None:
    registry = parse_registry(REGISTRY.read_text(), REGISTRY.name)
    addresses = [region.catalog.read for region in registry.regions] + [item.remote.options["endpoint"] for item in registry.locations]
    for address in addresses:
        service, port = re.fullmatch(r"http://([a-z0-9-]+):(\d+)(?:/.*)?", address).groups()  # type: ignore[union-attr]
        assert f"{LOOPBACK}:{port}:{port}" in SERVICES[service]["ports"]


@pytest.mark.parametrize("region", REGIONS)
def test_airflow_has_the_embedded_deployment_s_settings(region: str, tmp_path: Path, dotenv: dict[str, str]) -> None:
    embedded = airflow._environment(tmp_path, Database("h", 1, "d", "u", "p"), tmp_path / "dags", None, 8080, {})
    expected = {f"AIRFLOW__{name}": value for name, value in airflow._SETTINGS.items()}
    here = environment(f"airflow-{region}", dotenv)
    names = {name for name in here if name.startswith("AIRFLOW__") and "__STERNA__" not in name}
    # The plugins folder is the image's own.
    assert names == {name for name in embedded if name.startswith("AIRFLOW__")} - {"AIRFLOW__CORE__PLUGINS_FOLDER"}
    # In a container loopback would be nobody's but the container's.
    assert {name: here[name] for name in expected} == {**expected, "AIRFLOW__API__HOST": "0.0.0.0"}
    assert {name: here[name] for name in s3.CLIENT_ENVIRONMENT} == s3.CLIENT_ENVIRONMENT
    assert here["AIRFLOW__STERNA__REGION"] == here["STERNA_REGION"] == region


@pytest.mark.parametrize("region", REGIONS)
def test_airflow_s_addresses_agree(region: str, dotenv: dict[str, str]) -> None:
    here = environment(f"airflow-{region}", dotenv)
    base = f"http://{LOOPBACK}:{here['AIRFLOW__API__PORT']}"
    assert here["AIRFLOW__API__BASE_URL"] == base
    assert here["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"{base}/execution/"
    assert SERVICES[f"airflow-{region}"]["ports"] == [f"{LOOPBACK}:{here['AIRFLOW__API__PORT']}:{here['AIRFLOW__API__PORT']}"]
    targets = dict(map(reversed, mounts(f"airflow-{region}")))  # type: ignore[arg-type]
    assert targets[here["AIRFLOW__CORE__DAGS_FOLDER"]] == "./dags"
    assert here["STERNA_REGISTRY"] == here["AIRFLOW__STERNA__REGISTRY"]
    assert targets[here["STERNA_REGISTRY"]] == f"./{REGISTRY.relative_to(ROOT)}"
    for scheme, suffix in (("postgresql+psycopg", ""), ("postgresql+asyncpg", "_ASYNC")):
        database = Database("postgres", 5432, f"airflow_{region}", "airflow", dotenv["AIRFLOW_DATABASE_PASSWORD"])
        assert here[f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN{suffix}"] == database.url(scheme)


def test_each_region_has_the_keys_of_every_store(dotenv: dict[str, str]) -> None:
    registry = parse_registry(REGISTRY.read_text(), REGISTRY.name)
    for region in REGIONS:
        here = environment(f"airflow-{region}", dotenv)
        for location in registry.locations:
            id = location.credential_id or ""
            credential = parse_credential(id, here[f"AIRFLOW_CONN_{id.upper()}"])
            store = environment(f"s3-{location.region}", dotenv)
            assert store["RCLONE_AUTH_KEY"] == f'"{credential.login},{credential.password}"'
            assert (store["RCLONE_CONFIG_SELF_ACCESS_KEY_ID"], store["RCLONE_CONFIG_SELF_SECRET_ACCESS_KEY"]) == (
                credential.login,
                credential.password,
            )


def test_nessie_has_the_embedded_deployment_s_settings(tmp_path: Path, dotenv: dict[str, str]) -> None:
    here = environment("nessie", dotenv)
    expected = nessie._store_settings(Database("postgres", 5432, "nessie", "nessie", dotenv["NESSIE_DATABASE_PASSWORD"]))
    assert {name: here[name] for name in expected} == expected
    warehouses = [
        nessie.Warehouse(region, stack.bucket(region), "warehouse", endpoint) for region, endpoint in embedded_endpoints(tmp_path).items()
    ]
    secrets = nessie._warehouse_secrets(warehouses)
    assert set(here) - set(expected) - set(secrets) == {"QUARKUS_CONFIG_LOCATIONS", "QUARKUS_HTTP_HOST", "QUARKUS_HTTP_PORT"}
    for index, region in enumerate(REGIONS):
        for kind in ("ACCESS_KEY", "SECRET_KEY"):
            assert here[f"STERNA_S3_{index}_{kind}"] == dotenv[f"S3_{region.upper()}_{kind}"]
    (written,) = nessie._write_warehouses(tmp_path, warehouses)
    lines = (ROOT / "nessie" / "compose" / "warehouses.properties").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == written.read_text().splitlines()


def test_nessie_reads_the_files_that_are_mounted() -> None:
    read = SERVICES["nessie"]["environment"]["QUARKUS_CONFIG_LOCATIONS"].split(",")
    assert [target for _, target in mounts("nessie")] == read
    sources = [ROOT / source for source, _ in mounts("nessie")]
    assert os.path.samefile(sources[0], ROOT / "plugins" / "sterna" / "local" / "server.properties")


def test_nessie_is_healthy_while_a_store_is_dark() -> None:
    # /q/health asks the stores, too.
    (probe,) = [part for part in SERVICES["nessie"]["healthcheck"]["test"] if "/dev/tcp" in part]
    assert "/api/v2/config" in probe
    assert "/q/health" not in probe


@pytest.mark.parametrize("region", REGIONS)
def test_stores_are_served_as_in_the_embedded_deployment(region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3.Endpoint, "start", lambda self: None)
    embedded = s3.start_s3(tmp_path, region, [stack.bucket(region)], "key", "secret")
    command = shlex.split(SERVICES[f"s3-{region}"]["command"])
    port = SERVICES[f"s3-{region}"]["ports"][0].rpartition(":")[2]
    other = {f"{LOOPBACK}:{embedded.port}": f":{port}", str(embedded.folder): "/data"}
    assert command == [other.get(part, part) for part in embedded._command[1:]]
    # A folder below what is served is a bucket.
    assert mounts(f"s3-{region}") == [(f"s3-{region}", f"/data/{stack.bucket(region)}")]
    assert SERVICES[f"s3-{region}"]["environment"]["RCLONE_CONFIG_SELF_ENDPOINT"] == f"http://{LOOPBACK}:{port}"


def test_the_databases_that_services_use_are_made() -> None:
    script = (ROOT / "nessie" / "compose" / "databases.sql").read_text()
    made = set(re.findall(r"^CREATE DATABASE (\w+) OWNER (\w+);", script, re.MULTILINE))
    used = {("nessie", "nessie"), *((f"airflow_{region}", "airflow") for region in REGIONS)}
    assert made == used
    assert set(re.findall(r"^\\getenv \w+ (\w+)$", script, re.MULTILINE)) <= set(SERVICES["postgres"]["environment"])
    assert ("./nessie/compose/databases.sql", "/docker-entrypoint-initdb.d/databases.sql") in mounts("postgres")
