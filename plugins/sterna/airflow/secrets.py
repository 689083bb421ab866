"""Credentials from Airflow's own connections, whichever backend keeps them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sterna.errors import CredentialError

if TYPE_CHECKING:
    from sterna.config.registry.credential import Credential


def airflow_secrets(id: str) -> Credential:
    """Return the credential that an Airflow connection holds; its secrets are masked in this process's logs from
    then on.

    Works in tasks, and in triggers from another thread than the event loop's.

    Args:
        id: the connection's id.

    Raises:
        CredentialError: there is no such connection, or it can't be read.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return _credential(id, BaseHook.get_connection(id))
    except AirflowNotFoundException:
        raise _missing_credential(id) from None


def command_secrets(id: str) -> Credential:
    """Return what `airflow_secrets` returns, for `airflow` commands: they read Airflow's database themselves.

    Args:
        id: the connection's id.

    Raises:
        CredentialError: there is no such connection, or it can't be read.
    """
    from sterna.airflow.internals import find_connection

    connection = find_connection(id)
    if connection is None:
        raise _missing_credential(id)
    return _credential(id, connection)


def _missing_credential(id: str) -> CredentialError:
    searched = f"AIRFLOW_CONN_{id.upper()}, Airflow's secrets backends and its own connections"
    return CredentialError(f"credential {id!r} is missing: searched {searched}", hint="add a connection of that id")


def _credential(id: str, connection: Any) -> Credential:
    from sterna.config.registry.credential import parse_credential

    fields = {"login": connection.login, "password": connection.password, "extra": connection.extra}
    credential = parse_credential(id, json.dumps(fields))
    _mask(credential)
    return credential


def _mask(credential: Credential) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret(credential.password, "password")
    mask_secret(dict(credential.extra))
    keyfile = credential.extra.get("keyfile_dict")
    if isinstance(keyfile, str):
        # As text, Airflow would mask it as one long secret, and not the private key.
        with suppress(ValueError):
            mask_secret(json.loads(keyfile))
