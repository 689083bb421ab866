"""What sterna has to know of one kind of store; `remote_types.STORE_TYPES` has all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sterna.config.registry.connection import Credential, StoreLocation

SettingsBuilder = Callable[[StoreLocation, Credential | None], dict[str, Any]]
"""Makes a location's settings, as one client calls them; CredentialError: the credential is incomplete."""


@dataclass(frozen=True)
class FormField:
    """A field of Airflow's form of a connection, kept in its `extra`.

    Args:
        label: its label.
        description: when it is filled in.
        kind: `secret` is masked by Airflow.
    """

    label: str
    description: str
    kind: Literal["secret", "text", "boolean"] = "secret"


@dataclass(frozen=True)
class ConnectionForm:
    """Airflow's form of a connection.

    Args:
        kind: the connection type is `sterna_<kind>`. It outlives a process: Airflow's database has it.
        hook: the class of its hook in `airflow/hooks.py`, which is made from this.
        title: what Airflow calls it.
        labels: of `login` and `password`.
        fields: further ones, by their names in `extra`. Airflow recognizes by a name what to mask.
    """

    kind: str
    hook: str
    title: str
    labels: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, FormField] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreType:
    """One kind of store.

    Args:
        name: rclone's name of the backend: `remote.type` in the registry.
        schemes: of URIs that no other type reaches.
        spellings: families of spellings of one place, by the name of the spelling and what stands before the authority;
            the first is canonical.
        obstore_class: the class of obstore's that opens it.
        rclone_options: its settings by rclone's names.
        store_options: by obstore's; the bucket is not among them.
        fileio_properties: by those of Iceberg's FileIO, in Java and PyIceberg.
        options: what rclone's backend takes, so that a misspelt option is refused.
        form: Airflow's form of its credentials; None: it takes none.
        is_folder: it is a folder of this machine: no requests, no bucket, names in no order.
        has_seekable_listings: a listing can start in the middle; else it reads all that stands before.
        may_ignore_ranges: some stores of the type answer a range with the status of a whole object.
        ambiguous_key: finds what it takes for another key.
    """

    name: str
    schemes: tuple[str, ...]
    obstore_class: str
    rclone_options: SettingsBuilder = field(repr=False)
    store_options: SettingsBuilder = field(repr=False)
    fileio_properties: SettingsBuilder = field(repr=False)
    options: frozenset[str] = field(repr=False)
    spellings: tuple[Mapping[str, str], ...] = ()
    form: ConnectionForm | None = None
    is_folder: bool = False
    has_seekable_listings: bool = False
    may_ignore_ranges: bool = False
    ambiguous_key: re.Pattern[str] | None = None


def split_names(text: str) -> frozenset[str]:
    """Return names that stand in a text, apart by white space."""
    return frozenset(text.split())
