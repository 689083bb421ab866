"""A folder of this machine: no server, and no credential."""

from __future__ import annotations

from typing import Any, Final

from sterna.config.registry.connection import Credential, StoreLocation
from sterna.config.registry.store_type import StoreType, split_names

# Source: rclone 1.75.2, `rclone config providers`; a test compares them with the rclone that is installed.
_OPTIONS: Final = split_names(
    """
    case_insensitive case_sensitive copy_links description encoding fatal_if_no_space hashes links
    metadata_restore_special_bits no_check_updated no_clone no_preallocate no_set_modtime no_sparse nounc
    one_file_system skip_links skip_specials time_type unicode_normalization zero_size_links
    """
)


def rclone_options(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the options of rclone's backend `local`."""
    return location.remote.options


def no_settings(location: StoreLocation, credential: Credential | None) -> dict[str, Any]:
    """Return what obstore and Iceberg's FileIO need to open a folder: nothing."""
    return {}


LOCAL: Final = StoreType(
    name="local",
    schemes=("file",),
    # Hadoop writes file:/x where others write file:///x.
    spellings=({"file": "file://", "file1": "file:"},),
    obstore_class="LocalStore",
    rclone_options=rclone_options,
    store_options=no_settings,
    fileio_properties=no_settings,
    options=_OPTIONS,
    is_folder=True,
)
