"""Versions of localized files: what decides their content beside their origin and the mapping, encoded in the folder.

So a file that another version of the localizer wrote is another file, and never taken for what this one would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LOCALIZED_FOLDER: Final = "_localized"  # no location id begins with "_"
_LAST_UNVERSIONED: Final = 2  # up to this version of the localizer the folder had no version
_VERSION_FOLDER: Final = re.compile(r"_([0-9]{1,6})(?:-([0-9]{1,6}))?(?=/|$)")


@dataclass(frozen=True)
class MetadataVersion:
    """Which of the files that may be made from one origin.

    Args:
        rewrite_count: how often an operator had the table's localized files rewritten.
    """

    localizer_version: int
    rewrite_count: int = 0

    @property
    def folder(self) -> str:
        """The folder of its files below a replica root: one for each version, but for the localizers before there were
        any.
        """
        if self.localizer_version <= _LAST_UNVERSIONED and not self.rewrite_count:
            return LOCALIZED_FOLDER
        suffix = f"-{self.rewrite_count}" if self.rewrite_count else ""
        return f"{LOCALIZED_FOLDER}/_{self.localizer_version}{suffix}"


def list_metadata_versions(folders: Iterable[str]) -> list[MetadataVersion]:
    """Return the metadata versions of some folders, by their names right below `_localized`; newest first, and that
    of the localizers before there were any last of all.
    """
    versions = (split_metadata_version(f"{LOCALIZED_FOLDER}/{name}/")[0] for name in folders if name.startswith("_"))
    newest_first = sorted(
        filter(None, versions), key=lambda version: (version.localizer_version, version.rewrite_count), reverse=True
    )
    return [*newest_first, MetadataVersion(_LAST_UNVERSIONED)]


def split_metadata_version(path: str) -> tuple[MetadataVersion | None, str]:
    """Split the path of a localized file below a replica root: its metadata version, and the rest.

    None with any other path, which comes back as it is; so does one below a folder that no metadata version has.
    """
    if not path.startswith(f"{LOCALIZED_FOLDER}/"):
        return None, path
    rest = path.removeprefix(f"{LOCALIZED_FOLDER}/")
    match = _VERSION_FOLDER.match(rest)
    if match is None:
        return MetadataVersion(_LAST_UNVERSIONED), rest
    version = MetadataVersion(int(match[1]), int(match[2] or 0))
    if version.folder != f"{LOCALIZED_FOLDER}/{match[0]}":
        return None, path
    return version, rest[match.end() + 1 :]
