"""PyArrow without pandas.

It imports it, for most of a second, to learn whether what it is given comes from there. Here nothing does.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _PandasBlocker(MetaPathFinder):
    """Reports pandas as not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=fullname)


_finder = _PandasBlocker()


def block_pandas() -> None:
    """Let imports of pandas fail in this process, which must be sterna's own."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def unblock_pandas() -> None:
    """Let pandas be imported after all, for PySpark needs it."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
