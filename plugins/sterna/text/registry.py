"""What `sterna registry check` and `sterna doctor` have seen, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.operations.registry_check import Probe, RegistryCheck


def check_text(check: RegistryCheck) -> str:
    """Return what works and what doesn't, a line each; below what doesn't, the error's name, remedy and card."""
    return join_lines(line for probe in check.probes for line in probe_lines(probe))


def probe_lines(probe: Probe) -> Iterator[str]:
    """Yield the lines of one thing that was tried."""
    region = f"{probe.region}: " if probe.region else ""
    message = f": {probe.message}" if probe.message else ""
    yield f"{'ok  ' if probe.good else 'FAIL'} {region}{probe.what}{message}"
    if probe.error:
        yield f"     {probe.error}: {probe.remedy}{f', see {probe.card}' if probe.card else ''}"
