"""What `sterna doctor` has seen, for people and for a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sterna.text.lines import join_lines
from sterna.text.plain import to_plain
from sterna.text.registry import probe_lines
from sterna.text.status import status_text

if TYPE_CHECKING:
    from sterna.config.registry.model import Registry
    from sterna.operations.doctor import Examination
    from sterna.operations.status.model import RegionStatus


def doctor_text(examination: Examination) -> str:
    """Return versions, then what works and what doesn't, a line each."""
    versions = ", ".join(f"{name} {version}" for name, version in examination.versions.items())
    failed = sum(not probe.good for probe in examination.probes)
    summary = f"{failed} of {len(examination.probes)} checks failed" if failed else "all checks passed"
    lines = (line for probe in examination.probes for line in probe_lines(probe))
    return join_lines([versions, *lines, summary])


def bundle_texts(
    examination: Examination, registry: Registry | None, status: RegionStatus | str, variables: str
) -> dict[str, str]:
    """Return the texts of a report, by name; the registry without the file's comments.

    Args:
        examination: what was tried.
        registry: the registry; None where it can't be read.
        status: the region's status, or why it can't be read.
        variables: names of variables of the environment.
    """
    texts = {"doctor.txt": doctor_text(examination), "doctor.json": _json(to_plain(examination))}
    if registry is not None:
        texts["registry.json"] = _json(registry.model_dump(mode="json", by_alias=True))
    if isinstance(status, str):
        texts["status.txt"] = status
    else:
        texts |= {"status.txt": status_text(status), "status.json": _json(to_plain(status))}
    return {name: f"{text.rstrip()}\n" for name, text in {**texts, "environment.txt": variables}.items()}


def _json(content: Any) -> str:
    return json.dumps(content, indent=2)
