"""What `sterna registry check` found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.operations.registry_check import Probe, RegistryCheck


def check_text(check: RegistryCheck) -> str:
    """Return what works and what doesn't, a line each."""
    return join_lines(_probe_line(probe) for probe in check.probes)


def _probe_line(probe: Probe) -> str:
    message = f": {probe.message}" if probe.message else ""
    return f"{'ok  ' if probe.good else 'FAIL'} {probe.region}: {probe.what}{message}"
