"""Editions of localized files: whatever decides their content beside their origin and the mapping, told by the folder.

So a file that another version of the localizer wrote is another file, and never taken for what this one would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LOCALIZED: Final = "_localized"  # no location id begins with "_"
_UNMARKED: Final = 2  # up to this version of the localizer the folder told nothing
_MARK: Final = re.compile(r"_([0-9]{1,6})(?:-([0-9]{1,6}))?(?=/|$)")


@dataclass(frozen=True)
class Edition:
    """Which of the files that may be made from one origin.

    Args:
        version: of the localizer.
        generation: how often an operator had the table's localized files written anew.
    """

    version: int
    generation: int = 0

    @property
    def folder(self) -> str:
        """Where its files stand below a replica root: one for each edition, but for the versions before there were
        any.
        """
        if self.version <= _UNMARKED and not self.generation:
            return LOCALIZED
        generation = f"-{self.generation}" if self.generation else ""
        return f"{LOCALIZED}/_{self.version}{generation}"


def editions_among(folders: Iterable[str]) -> list[Edition]:
    """Return the editions that some folders are of, by their names right below `_localized`; newest first, and that
    of the versions before there were any last of all.
    """
    found = (split_edition(f"{LOCALIZED}/{name}/")[0] for name in folders if name.startswith("_"))
    newest = sorted(filter(None, found), key=lambda edition: (edition.version, edition.generation), reverse=True)
    return [*newest, Edition(_UNMARKED)]


def split_edition(below: str) -> tuple[Edition | None, str]:
    """Split the path of a localized file below a replica root: its edition, and the rest.

    None with any other path, which comes back as it is; so does one below a folder that no edition has.
    """
    if not below.startswith(f"{LOCALIZED}/"):
        return None, below
    rest = below.removeprefix(f"{LOCALIZED}/")
    mark = _MARK.match(rest)
    if mark is None:
        return Edition(_UNMARKED), rest
    edition = Edition(int(mark[1]), int(mark[2] or 0))
    if edition.folder != f"{LOCALIZED}/{mark[0]}":
        return None, below
    return edition, rest[mark.end() + 1 :]
