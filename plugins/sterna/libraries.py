"""Libraries that take long to import, imported at their first use.

Airflow parses every DAG file in every task, and little of what a DAG imports works on columns then. So modules import
these names from here, at their top, instead of the libraries in each function.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["np", "orc", "pa", "pc", "pq"]


class LazyModule(ModuleType):
    """A module that is imported when a name of it is used for the first time."""

    def __getattr__(self, name: str) -> Any:
        """Return a name of the module."""
        if name.startswith("__"):  # of modules as such: inspecting this one imports nothing
            raise AttributeError(name)
        attribute = getattr(import_module(self.__name__), name)
        setattr(self, name, attribute)  # the next use finds it at once
        return attribute

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as the module's name: functions that are sent to workers may name it."""
        return import_module, (self.__name__,)


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyarrow import orc
else:
    np, pa = LazyModule("numpy"), LazyModule("pyarrow")
    orc, pc, pq = (LazyModule(f"pyarrow.{name}") for name in ("orc", "compute", "parquet"))
