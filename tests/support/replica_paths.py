"""Where a replica's files stand, for tests of what stands there: by the code's own rule, as today's localizer writes.

The rule itself is held by tests that spell places out: `tests/unit/config/test_mapping.py` and those of gc's `decide`.
"""

from __future__ import annotations

from sterna.config.registry.fingerprint import LOCALIZED_FOLDER as LOCALIZED_FOLDER
from sterna.config.registry.fingerprint import MetadataVersion, split_metadata_version
from sterna.iceberg import LOCALIZER_VERSION

TODAY = MetadataVersion(LOCALIZER_VERSION)
"""The metadata version of what nobody had rewritten."""


def localized_path(path: str, version: MetadataVersion = TODAY) -> str:
    """Return the path below a replica root of a localized file or folder, from that of its copy, as `us-lake/a`."""
    return f"{version.folder}/{path}"


def version_of(place: str) -> MetadataVersion | None:
    """Return the metadata version of a localized file, from its URI or its path below a replica root."""
    return split_metadata_version(place[place.find(f"{LOCALIZED_FOLDER}/") :])[0]
