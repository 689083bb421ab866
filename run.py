#!/usr/bin/env python3
"""Set up sterna from a clone, with Python 3.11 or newer and nothing else, then run it.

    python3 run.py demo [...]     two regions on this machine; options as in `sterna demo --help`
    python3 run.py test [...]     the tests; options as pytest takes them, and --quick, --long or --engines
    python3 run.py sterna [...]   any other command of sterna
    python3 run.py bench [...]    the measurements, each beside its rival; see bench/README.md
    python3 run.py check          lint, types and import rules

What is installed goes into .venv beside this file, at the versions and hashes of requirements.lock.
"""

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
UV = "uv==0.13.8"
COMMANDS = {
    "demo": ["sterna", "demo"],
    "test": ["pytest", "-n", "3", "--dist", "loadfile"],  # on two cores: tests also wait
    "bench": ["python", "-m", "bench"],
    "sterna": ["sterna"],
}
CHECKS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["lint-imports"],
]


def set_up() -> None:
    """Bring .venv to what the lock file says; does nothing when it is there already."""
    wanted = hashlib.sha256(
        b"".join((HERE / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    ).hexdigest()
    stamp = VENV / "sterna-installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("setting up .venv from requirements.lock (once)", file=sys.stderr, flush=True)
    install_packages()
    subprocess.run([*_installer(), "--no-deps", "--editable", HERE], check=True)
    stamp.write_text(wanted)


def install_packages() -> None:
    """Make .venv with all packages of the lock file, without sterna itself."""
    python = BIN / "python"
    if not python.exists():
        try:
            venv.create(VENV, with_pip=True, symlinks=os.name != "nt")
        except subprocess.CalledProcessError:
            sys.exit(
                "this Python has no pip to start from: install its venv package (on Debian and Ubuntu: python3-venv)"
            )
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV], check=True)
    subprocess.run([*_installer(), "--require-hashes", "--requirements", HERE / "requirements.lock"], check=True)


def _installer() -> list[str | Path]:
    return [BIN / "uv", "pip", "install", "--quiet", "--python", BIN / "python"]


def environment_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of what is started: .venv comes first, and bytecode is kept.

    Container images often forbid bytecode. Then every process compiles all that it imports: Airflow alone takes two
    seconds, in each of hundreds of processes.
    """
    kept = {name: value for name, value in variables.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PATH": f"{BIN}{os.pathsep}{variables.get('PATH', '')}", "VIRTUAL_ENV": str(VENV)}


def main() -> int:
    if sys.version_info < (3, 11):
        sys.exit(f"sterna needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    if len(sys.argv) < 2 or sys.argv[1] not in (*COMMANDS, "check"):
        sys.exit(__doc__)
    set_up()
    environment = environment_of(os.environ)
    if sys.argv[1] == "check":
        started = [
            (check, subprocess.Popen([BIN / check[0], *check[1:]], cwd=HERE, env=environment)) for check in CHECKS
        ]
        failed = [" ".join(check) for check, process in started if process.wait()]
        print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
        return 1 if failed else 0
    command, *arguments = COMMANDS[sys.argv[1]]
    cwd = HERE if sys.argv[1] in ("bench", "test") else None
    os.chdir(cwd or os.getcwd())
    os.execve(BIN / command, [str(BIN / command), *arguments, *sys.argv[2:]], environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
