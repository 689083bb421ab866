"""What sterna needs of Airflow and its environment: whoever imports this module is refused in one line where it lacks.

It comes first in what Airflow loads as a plugin or by a DAG file, where an ImportError stays with that plugin or file.
The description of the package doesn't import it: an error in there would end every `airflow` command.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

_MIN_AIRFLOW_VERSION: Final = (3, 3)
PACKAGES: Final = {
    "cramjam": "cramjam",
    "fastavro": "fastavro",
    "httpcore": "httpcore",
    "httpx": "httpx",
    "httpx_sse": "httpx-sse",
    "isal": "isal",
    "marshmallow": "marshmallow<4",
    "numba": "numba",
    "obstore": "obstore",
    "psycopg": "psycopg[binary]",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "pynessie": "pynessie",
    "pyorc": "pyorc",
    "rclone_python": "rclone-python",
    "rich": "rich",
    "tenacity": "tenacity",
    "typer": "typer",
    "yaml": "pyyaml",
}
"""The packages that all of sterna needs, by the module that each brings."""


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


def require_packages(packages: Mapping[str, str] = PACKAGES) -> None:
    """Refuse to load sterna from Airflow's plugins folder, which brings no packages along, where some are missing.

    Args:
        packages: as `PACKAGES`.

    Raises:
        ImportError: it names all of them, in one line.
    """
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if missing:
        raise ImportError(f"sterna lacks packages in Airflow's environment: pip install {shlex.join(missing)}")


# The core alone may be installed, or nothing: then the imports raise.
with suppress(PackageNotFoundError):
    require_airflow(version("apache-airflow"))
try:
    version("sterna")
except PackageNotFoundError:
    require_packages()
