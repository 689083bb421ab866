"""Stand-ins for the base images of docker-compose.yml, made from packages where no image can be pulled.

They have the very names that the file uses, and the layout of the official ones: what runs on them runs there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = "python:3.11.14-slim-bookworm"
TRINO = "trinodb/trino:476"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What the official slim image has beside Debian's smallest system.
_LIBRARIES = (
    "ca-certificates,netbase,tzdata,libbz2-1.0,libffi8,libgdbm6,liblzma5,libncursesw6,libreadline8,libsqlite3-0,"
    "libssl3,libuuid1,zlib1g"
)
_HEALTH_CHECK = """\
#!/bin/bash
set -euo pipefail
info=$(curl --fail --silent --show-error http://localhost:8080/v1/info)
grep -q '"starting":\\s*false' <<<"$info"
"""
_RUN_TRINO = """\
#!/bin/bash
set -euo pipefail
exec /usr/lib/trino/bin/launcher run --etc-dir /etc/trino "-Dnode.id=${HOSTNAME}" "$@"
"""
_TRINO_FILES = {
    "config.properties": "coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port=8080\n"
    "discovery.uri=http://localhost:8080\ncatalog.management=${ENV:CATALOG_MANAGEMENT}\n",
    "node.properties": "node.environment=docker\nnode.data-dir=/data/trino\n",
    "jvm.config": "-server\n-XX:InitialRAMPercentage=80\n-XX:MaxRAMPercentage=80\n-XX:G1HeapRegionSize=32M\n"
    "-XX:+ExplicitGCInvokesConcurrent\n-XX:+ExitOnOutOfMemoryError\n-XX:ReservedCodeCacheSize=256M\n"
    "-Djdk.attach.allowAttachSelf=true\n-Dfile.encoding=UTF-8\n-XX:+EnableDynamicAgentLoading\n",
    "log.properties": "io.trino=INFO\n",
}


def make_python(folder: Path) -> None:
    """Make the Python image: Debian's smallest system, this machine's CPython 3.11 in /usr/local, and its certificates.

    Args:
        folder: for the image's files, which are gone afterwards.
    """
    home = Path(os.path.realpath(sys.base_prefix))
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"the image is of Python 3.11: run this with one, not {sys.version.split()[0]}")
    _debian(folder, _LIBRARIES)
    local = folder / "usr" / "local"
    for name in ("lib", "include"):
        shutil.copytree(
            home / name,
            local / name,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a"),
        )
    shutil.copy2(home / "bin" / "python3.11", local / "bin" / "python3.11")
    for name in ("python3", "python"):
        (local / "bin" / name).symlink_to("python3.11")
    _here(folder)
    _chroot(folder, "ldconfig")
    _chroot(folder, "/usr/local/bin/python", "-m", "ensurepip", "--upgrade")
    settings = " ".join(f"{name}={_CERTIFICATES}" for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"))
    path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    _import(folder, PYTHON, f"ENV PATH={path} LANG=C.UTF-8 {settings}", 'CMD ["python3"]')


def make_trino(folder: Path, java: Path) -> None:
    """Make Trino's image from its server and command line, which Maven fetches, and a JDK.

    Args:
        folder: for the image's files, which are gone afterwards.
        java: a JDK of Java 24 or newer.
    """
    version = TRINO.partition(":")[2]
    for artifact in (f"trino-server:{version}:tar.gz", f"trino-cli:{version}:jar:executable"):
        command = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact=io.trino:{artifact}", "-Dtransitive=false"]
        subprocess.run(command, check=True)
    repository = Path.home() / ".m2" / "repository" / "io" / "trino"
    _debian(folder, "ca-certificates,curl,less,tzdata,locales")
    _chroot(folder, "groupadd", "trino", "--gid", "1000")
    _chroot(folder, "useradd", "trino", "--uid", "1000", "--gid", "1000", "--create-home")
    server = folder / "usr" / "lib" / "trino"
    for directory in (server, folder / "data" / "trino", folder / "etc" / "trino" / "catalog"):
        directory.mkdir(parents=True)
    shutil.copytree(
        java.resolve(), folder / "usr" / "lib" / "jvm" / "jdk", symlinks=True, ignore=shutil.ignore_patterns("jmods")
    )
    archive = repository / "trino-server" / version / f"trino-server-{version}.tar.gz"
    subprocess.run(["tar", "-C", server, "--strip-components=1", "-xzf", archive], check=True)
    _program(
        folder / "usr" / "bin" / "trino", repository / "trino-cli" / version / f"trino-cli-{version}-executable.jar"
    )
    for name, text in (("run-trino", _RUN_TRINO), ("health-check", _HEALTH_CHECK)):
        (server / "bin" / name).write_text(text)
        (server / "bin" / name).chmod(0o755)
    for name, text in _TRINO_FILES.items():
        (folder / "etc" / "trino" / name).write_text(text)
    for place in (server, folder / "data" / "trino", folder / "etc" / "trino"):
        subprocess.run(["chown", "-R", "1000:1000", place], check=True)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/jvm/jdk/bin"
    _import(
        folder,
        TRINO,
        f"ENV JAVA_HOME=/usr/lib/jvm/jdk PATH={path} LANG=C.UTF-8 CATALOG_MANAGEMENT=static",
        "USER trino:trino",
        "EXPOSE 8080",
        'CMD ["/usr/lib/trino/bin/run-trino"]',
    )


def is_there(image: str) -> bool:
    """Tell whether the container engine has an image."""
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode == 0


def _debian(folder: Path, packages: str) -> None:
    """Put Debian bookworm's smallest system and some packages into a folder, from this machine's package sources."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = [f"--include={packages}", "--mode=root", "--variant=minbase", "--format=directory"]
    options += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")]
    options += [f'--aptopt=Acquire::Check-{name} "false"' for name in ("Valid-Until", "Date")]
    sources = "/etc/apt/sources.list.d/debian.sources"
    subprocess.run(["mmdebstrap", *options, "bookworm", folder, sources], check=True)


def _here(folder: Path) -> None:
    """Give an image this machine's certificates and its settings for packages."""
    ours = folder / "usr" / "local" / "share" / "ca-certificates"
    ours.mkdir(parents=True, exist_ok=True)
    for certificate in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(certificate, ours)
    _chroot(folder, "update-ca-certificates")
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", folder / "etc" / "pip.conf")


def _program(target: Path, source: Path) -> None:
    shutil.copy(source, target)
    target.chmod(0o755)


def _chroot(folder: Path, *command: str) -> None:
    subprocess.run(["chroot", folder, *command], check=True, stdout=subprocess.DEVNULL)


def _import(folder: Path, image: str, *changes: str) -> None:
    """Make an image of a folder's files, and delete them."""
    changed = [word for change in changes for word in ("--change", change)]
    with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["docker", "import", *changed, "-", image], stdin=packed.stdout, check=True)
    shutil.rmtree(folder)
