"""The section `cdc`: what fits each kind of database."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sterna.config.sections.cdc import CdcSource

_SETTINGS = {
    "name": "shop",
    "region": "eu",
    "hosts": ["db:3306"],
    "credential_id": "shop",
    "tables": ["s.*"],
    "into": "a",
}


def test_a_mariadb_has_its_databases_in_tables() -> None:
    source = CdcSource.model_validate({**_SETTINGS, "kind": "mariadb", "purge_alarm": "2h"})
    assert (source.database, source.purge_alarm) == ("", 7200)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "needs a database"),
        ({"kind": "mysql", "database": "s"}, "has no `database`"),
        ({"kind": "mariadb", "hosts": ["a:1", "b:1"]}, "has one host"),
        ({"kind": "oracle"}, "'postgres', 'mariadb' or 'mysql'"),
    ],
)
def test_what_does_not_fit_is_told(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CdcSource.model_validate({**_SETTINGS, **more})
