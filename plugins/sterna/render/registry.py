"""What `sterna registry check` found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.status.probes import Probe, RegistryCheck


def check_text(found: RegistryCheck) -> str:
    """Return what works and what doesn't, a line each."""
    return joined(_line(probe) for probe in found.probes)


def _line(probe: Probe) -> str:
    message = f": {probe.message}" if probe.message else ""
    return f"{'ok  ' if probe.good else 'FAIL'} {probe.region}: {probe.what}{message}"
