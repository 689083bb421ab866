"""Hooks: the connection types behind the registry's `credential_id`.

A connection of any other type serves as well, such as `aws`: only login, password and extra are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

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


class SternaS3Hook(SternaHook):
    """The keys of an S3 store."""

    conn_type = "sterna_s3"
    hook_name = "S3 for sterna"


class SternaGcsHook(SternaHook):
    """A service account's key, or a token, for Google Cloud Storage."""

    conn_type = "sterna_gcs"
    hook_name = "Google Cloud Storage for sterna"


class SternaAzureHook(SternaHook):
    """An account's key, a service principal or a SAS token for Azure storage."""

    conn_type = "sterna_azure"
    hook_name = "Azure storage for sterna"


class SternaNessieHook(SternaHook):
    """The login at a Nessie catalog."""

    conn_type = "sterna_nessie"
    hook_name = "Nessie for sterna"
