"""Whose credentials a command works with."""

from __future__ import annotations

import pytest

from sterna.cli.context import credentials
from sterna.cli.main import main
from sterna.edges.secrets import environment_secrets
from sterna.registry.credential import Credential


def test_credentials_given_for_one_command_are_not_the_next_one_s() -> None:
    def given(id: str) -> Credential:
        raise AssertionError("the next command's")

    with pytest.raises(SystemExit):
        main(["--help"], secrets=given)
    assert credentials() == environment_secrets()
