"""Hooks: the connection types behind the registry's `credential_id`.

A connection of any other type serves as well, such as `aws`: only login, password and extra are read.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from sterna.airflow.provider import CONNECTION_FORMS
from sterna.airflow.secrets import airflow_secrets

if TYPE_CHECKING:
    from sterna.config.registry.credential import Credential


class SternaHook(BaseHook):
    """What the connection types share.

    They have no test of their own: the endpoint of a credential is in the registry, and
    `sterna registry check` tries each of them.

    Args:
        credential_id: id of the connection.
    """

    conn_name_attr = "credential_id"

    def __init__(self, credential_id: str) -> None:
        super().__init__()
        self.credential_id = credential_id

    def get_conn(self) -> Credential:
        """Return the credential.

        Raises:
            CredentialError: there is no such connection, or it can't be read.
        """
        return airflow_secrets(self.credential_id)


@cache
def __getattr__(name: str) -> type[SternaHook]:
    """Return the hook of a connection form by its class name, such as `SternaS3Hook`: Airflow imports it so.

    Raises:
        AttributeError: no form names it.
    """
    form = next((form for form in CONNECTION_FORMS if form.hook == name), None)
    if form is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attributes = {"__doc__": form.title, "conn_type": f"sterna_{form.kind}", "hook_name": form.title}
    return type(name, (SternaHook,), {"__module__": __name__, **attributes})
