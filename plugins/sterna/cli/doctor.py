"""The command `sterna doctor`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials, open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output
from sterna.config.services_file import read_services
from sterna.config.yaml import credential_fields
from sterna.errors import SternaError, first_exit_code

if TYPE_CHECKING:
    from sterna.config.registry.model import Registry
    from sterna.operations.doctor import Examination
    from sterna.operations.status.model import RegionStatus

doctor_app = typer.Typer()


@doctor_app.command(
    epilog="Examples: sterna doctor --region eu; sterna doctor --region eu --bundle report.tar.gz",
)
def doctor(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Write a report without secrets to this new file, .tar.gz.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try all that a region needs on this machine: versions, programs, servers, rights and clocks.

    It writes one small object below the replica root, and deletes it. Its exit code is that of the first check that
    failed.
    """
    from sterna.operations.bundle import require_new_file
    from sterna.operations.doctor import examine
    from sterna.text.doctor import doctor_text

    if bundle is not None:
        require_new_file(bundle)
    output = Output(as_json)
    with output.progress("doctor") as progress:
        examination = examine(registry, region, services, credentials(), progress)
    exit_code = first_exit_code(it.exit_code for it in examination.probes)
    try:
        output.result(examination, doctor_text(examination), exit_code)
    finally:
        if bundle is not None:
            _write_report(bundle, examination, registry, services)


def _write_report(bundle: Path, examination: Examination, registry: Path, services: Path | None) -> None:
    """Write what was tried, the registry, and the region's status, as far as each can be read."""
    from sterna.operations.bundle import readable_credentials, variable_names, write_bundle
    from sterna.operations.status.gather import gather_status
    from sterna.text.doctor import bundle_texts

    variables, ids = variable_names(os.environ), set[str]()
    settings: Registry | None = None
    status: RegionStatus | str
    try:
        with open_context(registry, examination.region) as context:
            settings = context.registry
            status = gather_status(context)
    except SternaError as error:
        status = str(error)
    if settings is not None:
        ids |= {id for _, id in credential_fields(settings)}
    with suppress(SternaError):  # its own check has failed: no text of the report is made from the file
        ids |= {id for _, id in credential_fields(read_services(services))}
    texts = bundle_texts(examination, settings, status, variables)
    write_bundle(bundle, texts, readable_credentials(ids, credentials()))
