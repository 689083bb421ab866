"""What Airflow loads of sterna: operators, DAG factories, pages, commands and connection forms."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

_MIN_AIRFLOW_VERSION: Final = (3, 3)


def require_airflow(installed: str) -> None:
    """See that Airflow has what sterna imports of it: an older one lacks some, and names a module of its own alone.

    Raises:
        ImportError: it is too old.
    """
    release = tuple(int(part) for part in installed.split(".")[:2] if part.isdecimal())
    if release < _MIN_AIRFLOW_VERSION:
        raise ImportError(
            f"sterna needs Airflow {'.'.join(map(str, _MIN_AIRFLOW_VERSION))} or newer, and this is {installed}: take "
            "a newer one, or run the sterna command in an environment without Airflow"
        )


# The core alone may be installed, or nothing: then the imports raise.
with suppress(PackageNotFoundError):
    require_airflow(version("apache-airflow"))
