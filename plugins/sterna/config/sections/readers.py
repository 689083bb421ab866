"""The section `readers` of the services file: which tables only some roles may read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from sterna.config.sections.types import EmptyAs
from sterna.config.yaml import StrictModel

Role = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class ReaderRule(StrictModel):
    """Tables that only holders of some roles may read; every rule that matches a table counts.

    Args:
        tables: patterns over the dotted key, as in the registry's policies.
        roles: a reader needs one of these, beside a role that may read at all.
    """

    tables: list[Pattern] = Field(min_length=1)
    roles: list[Role] = Field(min_length=1)


Readers = Annotated[list[ReaderRule], EmptyAs([])]
