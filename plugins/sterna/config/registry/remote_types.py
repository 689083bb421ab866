"""The kinds of stores, and the options of a remote that are refused: rclone has none such, or a setting decides it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from sterna.config.registry.azure import AZURE
from sterna.config.registry.gcs import GOOGLE_CLOUD_STORAGE
from sterna.config.registry.local import LOCAL
from sterna.config.registry.s3 import S3
from sterna.config.registry.store_type import StoreType, split_names
from sterna.config.registry.types import SECRET_OPTION

STORE_TYPES: Final[Mapping[str, StoreType]] = {type.name: type for type in (S3, GOOGLE_CLOUD_STORAGE, AZURE, LOCAL)}
"""All kinds of stores, by the name that `remote.type` has: a further one is a module, and its entry here."""

if TYPE_CHECKING:
    RemoteType = str
else:
    RemoteType = Literal[tuple(STORE_TYPES)]

ALIASES: Final = tuple(family for type in STORE_TYPES.values() for family in type.spellings)
"""Spellings of one place, by the name of the spelling and what stands before the authority; the first is canonical."""

TYPE_BY_SCHEME: Final[Mapping[str, str]] = {
    scheme: type.name for type in STORE_TYPES.values() for scheme in type.schemes
}
"""The type that reaches a scheme; a scheme that is not listed (oss, cosn, …) may have any."""

# The encoding of rclone's own paths. With the same one for the store a key passes byte for byte; with the stores'
# defaults keys that hold one of rclone's replacement characters (U+201B, U+2401, …) arrive under another name.
RCLONE_ENCODING: Final = "Slash,Ctl,Del,Dot"

# Set by sterna, whose guarantees depend on them: they may be repeated with the same value.
_FIXED_OPTIONS: Final = {"encoding": RCLONE_ENCODING, "no_check_bucket": "true", "no_check_container": "true"}
# Options by which rclone logs in otherwise than with the credential of the location.
_LOGIN_OPTIONS: Final = split_names(
    """
    anonymous client_certificate_path env_auth profile service_account_file service_principal_file tenant use_az
    use_emulator use_msi username
    """
)
# What sterna reads itself: whatever rclone takes for true or false beside these would be read in two ways.
_BOOLEAN_OPTIONS: Final = split_names("anonymous force_path_style")
_MIN_SIMILARITY: Final = 0.75  # of difflib: what is less like an option was hardly meant
_CONNECTION_HINT: Final = "put it into an Airflow connection and name it in credential_id"


def invalid_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options that no remote may have, and why; never the value."""
    for option, value in options.items():
        if SECRET_OPTION.search(option):
            yield option, f"looks like a secret: {_CONNECTION_HINT}"
        elif "@" in value.partition("://")[2].partition("/")[0]:
            yield option, f"holds user-info: {_CONNECTION_HINT}"
        elif value != _FIXED_OPTIONS.get(option, value):
            yield option, f"is always {_FIXED_OPTIONS[option]!r} here: leave it out"
        elif option in _BOOLEAN_OPTIONS and value not in ("true", "false"):
            yield option, 'expected "true" or "false"'


def unknown_options(type: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options that rclone's backend of a type doesn't have, and what was meant."""
    backend_options = STORE_TYPES[type].options
    public = sorted(name for name in backend_options if not SECRET_OPTION.search(name))
    for option in options:
        if option not in backend_options:
            similar = difflib.get_close_matches(option.lower().replace("-", "_"), public, 1, _MIN_SIMILARITY)
            hint = f"did you mean {similar[0]}?" if similar else f"`rclone help backend {type!r}` lists them"
            yield option, f"rclone's backend {type!r} has no such option: {hint}"


def login_options(options: Mapping[str, str]) -> list[str]:
    """Return the options by which rclone would log in otherwise than with the location's credential."""
    return [option for option, value in options.items() if option in _LOGIN_OPTIONS and value not in ("", "false")]
