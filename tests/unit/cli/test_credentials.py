"""Whose credentials a command works with."""

from __future__ import annotations

import pytest

from sterna.cli.context import credentials
from sterna.cli.main import main
from sterna.config.registry.credential import Credential
from sterna.config.secrets import environment_secrets


def test_credentials_given_for_one_command_are_not_the_next_one_s() -> None:
    def read_credential(id: str) -> Credential:
        raise AssertionError("the next command's")

    with pytest.raises(SystemExit):
        main(["--help"], secrets=read_credential)
    assert credentials() == environment_secrets()
