"""The last line of every dry run."""

from __future__ import annotations

NOTHING_CHANGED = "nothing was changed: --yes does it"
