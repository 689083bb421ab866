"""Credentials from the environment, and handed on to another process."""

import json
import pickle

import pytest

from sterna.config.secrets import connection_environment, environment_secrets
from sterna.errors import CredentialError

TEXT = json.dumps({"conn_type": "aws", "login": "AKIA1", "password": "hunter22"})


def test_a_credential_is_found_under_airflows_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = environment_secrets()
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_US", TEXT)
    assert secrets("lake_us").login == "AKIA1"


@pytest.mark.parametrize("variables", [{}, {"AIRFLOW_CONN_LAKE_US": ""}])
def test_a_missing_one_names_its_id_and_where_it_was_looked_for(variables: dict[str, str]) -> None:
    with pytest.raises(CredentialError, match=r"'lake_us'.*AIRFLOW_CONN_LAKE_US"):
        environment_secrets(variables)("lake_us")


def test_the_finder_shows_no_secret_and_pickles() -> None:
    secrets = environment_secrets({"AIRFLOW_CONN_A": TEXT})
    assert "hunter22" not in repr(secrets)
    assert pickle.loads(pickle.dumps(secrets))("a").login == "AKIA1"


def test_another_process_finds_what_this_one_hands_on() -> None:
    handed = connection_environment(["a", "a"], environment_secrets({"AIRFLOW_CONN_A": TEXT}))
    assert list(handed) == ["AIRFLOW_CONN_A"]
    assert environment_secrets(handed)("a") == environment_secrets({"AIRFLOW_CONN_A": TEXT})("a")


def test_two_ids_that_are_one_variable_are_not_handed_on_as_one() -> None:
    # Airflow's database tells them apart; the other process would take one's keys for both.
    for ids in (["lake", "Lake"], ["Lake", "lake", "a"]):
        with pytest.raises(CredentialError, match=r"'Lake' and 'lake' are one variable, AIRFLOW_CONN_LAKE") as raised:
            connection_environment(ids, environment_secrets({"AIRFLOW_CONN_A": TEXT, "AIRFLOW_CONN_LAKE": TEXT}))
        assert "hunter22" not in str(raised.value)
    assert connection_environment(["lake", "lake"], environment_secrets({"AIRFLOW_CONN_LAKE": TEXT}))
