"""Identifiers in SQL text, whatever characters they have."""

from __future__ import annotations


def quote_backtick(name: str) -> str:
    """Return an identifier as Spark SQL and MySQL take it."""
    return "`" + name.replace("`", "``") + "`"


def quote_ansi(name: str) -> str:
    """Return an identifier as the SQL standard has it, and Postgres and DuckDB take it."""
    return '"' + name.replace('"', '""') + '"'
