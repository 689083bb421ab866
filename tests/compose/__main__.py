"""Start docker-compose.yml for real, and look at it: `python -m tests.compose FOLDER --java JDK`.

It asks for root, some 12 minutes on two cores, 8 GB of memory and 25 GB of disk in FOLDER; on the machine: docker with
Compose 2.23.1 or newer, mmdebstrap, Maven, and a JDK of Java 24 or newer for Trino. Base images that are missing are
made from packages. Nothing but FOLDER is left behind, where the images stay for the next time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compose.images import PYTHON, TRINO, is_there, make_python, make_trino

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PUBLISHED = (
    "19120/api/v2/config",
    "19121/api/v2/config",
    "8081/api/v2/monitor/health",
    "8082/api/v2/monitor/health",
    "8083/v1/info",
    "8084/v1/info",
)
REGIONS = ("us", "eu")
DARK = ("nessie-us", "s3-us", "postgres-us-a", "postgres-us-b")
_SECONDS = 300


def main() -> None:
    """Run it all; whatever fails ends the run with its output, and the containers with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the engine's data, the images and the checkout")
    parser.add_argument("--java", type=Path, required=True, help="a JDK of Java 24 or newer")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with engine(folder):
        if not is_there(PYTHON):
            step("the Python image", lambda: make_python(folder / "image"))
        if not is_there(TRINO):
            step("Trino's image", lambda: make_trino(folder / "image", options.java))
        source = checkout(folder)
        with started(source):
            check_deployment(source)
    print(f"all of it took {time.monotonic() - begun:.0f} s")


def check_deployment(source: Path) -> None:
    """Write in both regions, read both replicas, lose us, and promote eu."""
    for address in PUBLISHED:
        urllib.request.urlopen(f"http://127.0.0.1:{address}", timeout=30).close()
    print("every published address answers")
    for region, rows in (("us", 1000), ("eu", 500)):
        print(f"written in {region}: {write(source, region, rows, 'us')}")
    both = ("1000", "500")
    step(
        "both tables read by eu's Trino",
        lambda: until(lambda: tuple(counted(source, region_name) for region_name in REGIONS), both),
    )
    print(execute(source, "guard-eu", "sterna", "verify", "--region", "eu"))
    rows_read = execute(source, "airflow-scheduler-eu", "python", "-", "shop.orders_us", script="classic_spark.py")
    print(f"read by a classic Spark in eu's Airflow: {rows_read.splitlines()[-1]}")
    compose(source, "stop", *DARK)
    assert tuple(counted(source, region_name) for region_name in REGIONS) == both, "eu doesn't read on without us"
    print("us is dark, and eu's Trino reads both tables")
    print(execute(source, "guard-eu", "sterna", "catalog", "promote", "--region", "eu", "--yes"))
    print(f"written in eu, the primary: {write(source, 'eu', 500, 'eu')}")
    wanted = ("1000", "1000")
    step(
        "read by eu's Trino",
        lambda: until(lambda: tuple(counted(source, region_name) for region_name in REGIONS), wanted),
    )


def write(source: Path, region: str, rows: int, primary: str) -> str:
    """Append rows to a region's table through the primary's catalog; return what the writer says."""
    return execute(source, f"guard-{region}", "python", "-", region, str(rows), primary, script="write_table.py")


def counted(source: Path, region: str) -> str:
    """Return the count of rows of a region's table, as eu's Trino reads it; "" while it can't."""
    query = f"select count(*) from shop.orders_{region}"
    command = ["trino", "--catalog", "lake", "--output-format", "TSV", "--execute", query]
    done = subprocess.run(
        ["docker", "compose", "exec", "-T", "trino-eu", *command], cwd=source, capture_output=True, text=True
    )
    return done.stdout.strip()


def until(ask: Callable[[], object], wanted: object) -> None:
    """Ask until the answer is the one that is wanted, or a while is over."""
    deadline = time.monotonic() + _SECONDS
    while (answer := ask()) != wanted:
        if time.monotonic() > deadline:
            sys.exit(f"expected {wanted}, and it is {answer}")
        time.sleep(1)


def execute(source: Path, service: str, *command: str, script: str = "") -> str:
    """Run a command in a service's container and return what it printed; end with its errors where it fails."""
    text = (HERE / script).read_text() if script else None
    done = subprocess.run(
        ["docker", "compose", "exec", "-T", service, *command], cwd=source, input=text, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{service}: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def compose(source: Path, *words: str) -> None:
    """Run a command of Docker Compose."""
    subprocess.run(["docker", "compose", *words], cwd=source, check=True)


def step(name: str, call: Callable[[], object]) -> None:
    """Do something, and say how long it took."""
    begun = time.monotonic()
    call()
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def checkout(folder: Path) -> Path:
    """Return a folder with the newest commit's files, and passwords."""
    source = folder / "sterna"
    source.mkdir(exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-C", source, "-x"], input=archive.stdout, check=True)
    if not (source / ".env").exists():
        subprocess.run(["sh", "nessie/compose/new_env.sh"], cwd=source, check=True)
    return source


@contextmanager
def started(source: Path) -> Iterator[None]:
    """Start both regions as the file's head says; they end with the block, and their data with them."""
    step("the image", lambda: compose(source, "build", "first"))
    try:
        step("the first primary", lambda: compose(source, "run", "--rm", "first"))
        step("both regions", lambda: compose(source, "up", "--detach", "--wait"))
        yield
    except BaseException:
        subprocess.run(["docker", "compose", "ps", "--all"], cwd=source)
        subprocess.run(["docker", "compose", "logs", "--tail", "20"], cwd=source)
        raise
    finally:
        subprocess.run(["docker", "compose", "--profile", "first", "down", "--volumes"], cwd=source)


@contextmanager
def engine(folder: Path) -> Iterator[None]:
    """Use the container engine that answers, else one of our own, which ends with the block."""
    if subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        yield
        return
    os.environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    command = ["dockerd", "--data-root", folder / "docker", "--exec-root", folder / "run", "-p", folder / "docker.pid"]
    with (folder / "docker.log").open("w") as log:
        server = subprocess.Popen([*command, "-H", os.environ["DOCKER_HOST"]], stdout=log, stderr=log)
    try:
        while subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
            if server.poll() is not None:
                sys.exit(f"dockerd ended: see {folder / 'docker.log'}")
            time.sleep(1)
        yield
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
