"""The rule for paths below a replica root: `<metadata version>/<location>~<alias>/<path>`; a copy has no version.

`config/mapping.py` applies it to URIs, and gc tells by it what sterna wrote. The folders of metadata versions are named
in `config/registry/fingerprint.py`.
"""

from __future__ import annotations

from typing import Final

from sterna.config.registry.fingerprint import MetadataVersion

_ALIAS_MARK: Final = "~"  # the type `Name` keeps it out of ids


def location_folder(location_id: str, alias: str) -> str:
    """Return the folder of a location's files: a further one for those that `main` names by an alias of its prefix."""
    return f"{location_id}{_ALIAS_MARK}{alias}" if alias else location_id


def folder_location(folder: str) -> str:
    """Return the id of the location that a folder is for; of any other name something that is no location's id."""
    return folder.partition(_ALIAS_MARK)[0]


def replica_path(location_id: str, alias: str, path: str) -> str:
    """Return the path of a location's file or folder, below the root of copies or of a metadata version.

    Args:
        alias: of the prefix that it is named by, "" for the location's own.
        path: below that prefix; "" for the prefix itself.
    """
    return "/".join(filter(None, (location_folder(location_id, alias), path)))


def split_replica_path(path: str) -> tuple[str, str]:
    """Split such a path into the location's folder and the rest, which begins with a slash where there is one."""
    folder, slash, rest = path.partition("/")
    return folder, f"{slash}{rest}"


def version_root(replica_root: str, version: MetadataVersion | None) -> str:
    """Return the URI below which the localized files of a metadata version stand; None: the one of copies."""
    return f"{replica_root}/{version.folder}" if version else replica_root
