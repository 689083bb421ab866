"""The command line: puts the commands together, and makes exit codes of errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sterna.cli.capacity import capacity_app
from sterna.cli.catalog import catalog_app
from sterna.cli.cdc import cdc_app
from sterna.cli.changes import changes_app
from sterna.cli.context import secrets_override
from sterna.cli.demo import demo_app
from sterna.cli.doctor import doctor_app
from sterna.cli.events import events_app
from sterna.cli.features import features_app
from sterna.cli.gc import gc_app
from sterna.cli.ingest import ingest_app
from sterna.cli.maintenance import maintenance_app
from sterna.cli.output import Output
from sterna.cli.pause import pause_app
from sterna.cli.query import query_app
from sterna.cli.registry import registry_app
from sterna.cli.restore import restore_app
from sterna.cli.serve import serve_app
from sterna.cli.services import services_app
from sterna.cli.status import status_app
from sterna.cli.sync import sync_app
from sterna.cli.transforms import transform_app
from sterna.cli.verify import verify_app
from sterna.cli.why import why_app
from sterna.config import renamed
from sterna.config.secrets import Secrets
from sterna.errors import ExitCode, SternaError, UsageError
from sterna.operations.versions import sterna_version

EPILOG = f"Exit codes: {'; '.join(f'{code.value} {code.meaning}' for code in ExitCode)}. " + (
    "Errors go to stderr, with --json as one JSON object."
)

app = typer.Typer(
    name="sterna",
    help="Geo-distributed replication of Apache Iceberg tables.",
    epilog=EPILOG.replace("`", ""),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"sterna {sterna_version()}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Geo-distributed replication of Apache Iceberg tables."""


# Without a name: their commands are top-level.
for command_group in (
    *(sync_app, status_app, why_app, verify_app, pause_app, restore_app, gc_app),
    *(query_app, changes_app, serve_app, capacity_app, doctor_app, demo_app),
):
    app.add_typer(command_group)
app.add_typer(registry_app, name="registry")
app.add_typer(catalog_app, name="catalog")
app.add_typer(services_app, name="services")
app.add_typer(events_app, name="events")
app.add_typer(maintenance_app, name="maintenance")
app.add_typer(features_app, name="features")
app.add_typer(ingest_app, name="ingest")
app.add_typer(cdc_app, name="cdc")
app.add_typer(transform_app, name="transforms")


def main(argv: Sequence[str] | None = None, secrets: Secrets | None = None) -> None:
    """Run the command line; every error of sterna becomes one message and its exit code.

    Args:
        argv: the arguments; None: the process's own.
        secrets: finds credentials; None: the environment's `AIRFLOW_CONN_*`.
    """
    previous = secrets_override.set(secrets)
    arguments = list(sys.argv[1:] if argv is None else argv)
    output = Output("--json" in arguments)
    try:
        _require_current_names(arguments)
        app(args=arguments, prog_name="sterna")
    except SternaError as error:
        output.error(error)
        sys.exit(error.exit_code)
    except SystemExit as exit_error:
        if exit_error.code == ExitCode.INTERRUPTED:
            demo = arguments[:1] == ["demo"]
            sys.stderr.write(f"interrupted; {'all that it started has ended' if demo else 'a later run resumes'}\n")
        raise
    finally:
        secrets_override.reset(previous)


def _require_current_names(arguments: Sequence[str]) -> None:
    """Refuse commands and flags by the names that they had in version 0.1.

    Raises:
        UsageError: it names the new one.
    """
    for name in (" ".join(arguments[:length]) for length in (1, 2)):
        if command := renamed.COMMANDS.get(name):
            raise UsageError(f"no such command: {name}", hint=f"did you mean {command}?")
    for argument in arguments:
        if flag := renamed.FLAGS.get(argument.partition("=")[0]):
            raise UsageError(f"no such option: {argument}", hint=f"did you mean {flag}?")


if __name__ == "__main__":
    main()
