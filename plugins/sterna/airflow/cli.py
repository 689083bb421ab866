"""`airflow sterna …`: the same commands as the console script `sterna`, for this Airflow's own region and registry."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points

from sterna.airflow.internals import delegating_command
from sterna.airflow.settings import SECTION

# It names no commands: they are the console script's, and to read them from there takes longer than `airflow --help`.
_DESCRIPTION = """\
The commands of the console script `sterna`: `airflow sterna` lists them, `airflow sterna COMMAND --help` explains each.
Region, registry and services file are those of section [sterna] in Airflow's configuration, unless an option
or STERNA_REGION, STERNA_REGISTRY and STERNA_SERVICES name others."""


def get_commands() -> list[object]:
    """Return what sterna adds to Airflow's command line."""
    return [delegating_command("sterna", "Replicate Iceberg tables between regions", _DESCRIPTION, run)]


def run(arguments: list[str]) -> None:
    """Run one of sterna's commands.

    Args:
        arguments: as behind `sterna` on a command line; none shows the help.
    """
    from airflow.sdk import conf

    from sterna.airflow.secrets import command_secrets

    _redirect_logs_to_stderr()
    for option in ("region", "registry", "services"):
        if value := conf.get(SECTION, option, fallback=""):
            os.environ.setdefault(f"STERNA_{option.upper()}", value)
    # Through its entry point: the command line is this package's sibling, and neither imports the other.
    (script,) = entry_points(group="console_scripts", name="sterna")
    script.load()(arguments or ["--help"], secrets=command_secrets)


def _redirect_logs_to_stderr() -> None:
    """Send to stderr what Airflow logs: a result may be JSON. Its loggers hold on to the stdout that they first see."""
    import structlog

    stdout_fd = os.dup(sys.stdout.fileno())
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(stdout_fd, "w", encoding=sys.stdout.encoding)
    factory = structlog.get_config()["logger_factory"]

    def logger(*arguments: object) -> object:
        with redirect_stdout(sys.stderr):
            return factory(*arguments)

    structlog.configure(logger_factory=logger)
