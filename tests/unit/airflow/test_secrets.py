from __future__ import annotations

import json

import pytest

from sterna.airflow.hooks import SternaS3Hook
from sterna.airflow.secrets import airflow_secrets
from sterna.errors import CredentialError


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    keyfile = json.dumps({"private_key": "-----KEY-OF-A-SERVICE-----", "project_id": "p"})
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "sterna_s3", "login": "AKIA", "password": "s3cr3t-p4ss"})
    )
    monkeypatch.setenv(
        "AIRFLOW_CONN_CLOUD",
        json.dumps({"conn_type": "sterna_gcs", "extra": {"keyfile_dict": keyfile, "region": "eu-1"}}),
    )
    monkeypatch.setenv(
        "AIRFLOW_CONN_BROKEN", json.dumps({"conn_type": "sterna_s3", "password": "s3cr3t-p4ss", "extra": "no json"})
    )


def test_a_connection_becomes_a_credential() -> None:
    credential = airflow_secrets("lake")
    assert (credential.id, credential.login, credential.password) == ("lake", "AKIA", "s3cr3t-p4ss")
    assert SternaS3Hook("lake").get_conn() == credential


def test_a_missing_connection_is_named_with_where_it_was_looked_for() -> None:
    with pytest.raises(CredentialError, match=r"'nowhere' is missing.*AIRFLOW_CONN_NOWHERE"):
        airflow_secrets("nowhere")


def test_a_broken_one_is_refused_without_repeating_it() -> None:
    with pytest.raises(CredentialError) as caught:
        airflow_secrets("broken")
    assert "s3cr3t" not in str(caught.value)
    assert "no json" not in str(caught.value)


def test_its_secrets_are_masked_from_then_on() -> None:
    from airflow.sdk.log import redact

    airflow_secrets("lake")
    airflow_secrets("cloud")
    shown = redact("password s3cr3t-p4ss, key -----KEY-OF-A-SERVICE-----, in eu-1")
    assert shown == "password ***, key ***, in eu-1"
