"""An option of section [sterna] by the name that it had in version 0.1 is refused with the new one."""

from __future__ import annotations

import pytest

from sterna.airflow import settings
from sterna.config.renamed import AIRFLOW_OPTIONS
from sterna.errors import UsageError


@pytest.mark.parametrize(("old", "new"), AIRFLOW_OPTIONS.items())
@pytest.mark.parametrize("value", ["1", ""])
def test_an_old_option(old: str, new: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert new in settings.OPTIONS and old not in settings.OPTIONS
    settings.get_option(new)
    monkeypatch.setenv(f"AIRFLOW__STERNA__{old.upper()}", value)
    with pytest.raises(UsageError, match=rf"\[sterna\] {old} .*no such option") as refused:
        settings.get_option(new)
    assert refused.value.hint == f"did you mean {new}?"
