"""Finding a credential by its id, without importing Airflow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sterna.config.registry.credential import Credential, parse_credential
from sterna.errors import CredentialError

Secrets = Callable[[str], Credential]
"""Finds a credential by its id; raises CredentialError where there is none."""

_PREFIX = "AIRFLOW_CONN_"


@dataclass(frozen=True)
class _Environment:
    # Secrets are read on use, so that this object itself can be shown and pickled.
    variables: Mapping[str, str] | None = field(default=None, repr=False)

    def __call__(self, id: str) -> Credential:
        variables = os.environ if self.variables is None else self.variables
        text = variables.get(variable_name(id), "")
        if not text:
            raise CredentialError(
                f"credential {id!r} is missing: expected in the environment variable {variable_name(id)}",
                hint=(
                    "set it to the Airflow connection in JSON form, or run where Airflow's own connections are at hand"
                ),
            )
        return parse_credential(id, text)


def environment_secrets(variables: Mapping[str, str] | None = None) -> Secrets:
    """Return a finder that reads Airflow's `AIRFLOW_CONN_<ID>` variables.

    Args:
        variables: the environment; None: the process's own, at each call.

    Source: Airflow, "Managing Connections", "Storing connections in environment variables".
    """
    return _Environment(variables)


def connection_environment(ids: Iterable[str], secrets: Secrets) -> dict[str, str]:
    """Return the variables from which `environment_secrets` finds some credentials in another process.

    Raises:
        CredentialError: one of them is missing, or two ids differ by the case of their letters alone: the other process
            would take one for both.
    """
    ids_by_variable: dict[str, str] = {}
    for id in sorted(set(ids)):
        other = ids_by_variable.setdefault(variable_name(id), id)
        if other != id:
            raise CredentialError(
                f"credentials {other!r} and {id!r} are one variable, {variable_name(id)}", hint="rename one of them"
            )
    return {name: secrets(id).to_json() for name, id in ids_by_variable.items()}


def variable_name(id: str) -> str:
    """Return the name of the variable with a connection."""
    return f"{_PREFIX}{id.upper()}"
