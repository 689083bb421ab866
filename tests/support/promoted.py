"""Rows of a table whose columns take wider types: files from before and after, in each of Parquet's encodings."""

from __future__ import annotations

NARROW = "id BIGINT, i INT, f FLOAT, d DECIMAL(5, 2), e DECIMAL(9, 2), l DECIMAL(18, 2)"
WIDE = {"i": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(12, 2)", "e": "DECIMAL(20, 2)", "l": "DECIMAL(30, 2)"}
# How large a dictionary may be: no limit that is reached; one that is reached at once; one that is reached on the way.
ENCODINGS = {"dictionary": 1_000_000, "plain": 64, "both": 3_000}


def properties(encoding: str) -> str:
    """Return the properties of a table whose files have an encoding."""
    pages = "'write.parquet.page-row-limit'='1000'"
    return f"TBLPROPERTIES ('write.parquet.dict-size-bytes'='{ENCODINGS[encoding]}', {pages})"


def encodings(path: str) -> set[str]:
    """Return which encodings of `ENCODINGS` a file's columns have, but for the first."""
    import pyarrow.parquet as pq

    group, kinds = pq.ParquetFile(path.removeprefix("file:")).metadata.row_group(0), set()
    for index in range(1, group.num_columns):
        parts = set(group.column(index).encodings)
        dictionary = bool(parts & {"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
        kinds.add(("both" if "PLAIN" in parts else "dictionary") if dictionary else "plain")
    return kinds


def narrow_rows(first: int, count: int) -> str:
    """Return the query of rows that fit the narrow types."""
    return (
        "SELECT id, CAST(n AS INT) i, CAST(n / 7 AS FLOAT) f, CAST(n / 100 AS DECIMAL(5, 2)) d, "
        "CAST(n * 99 + 0.25 AS DECIMAL(9, 2)) e, CAST(-n * 10000000003 AS DECIMAL(18, 2)) l " + _numbers(first, count)
    )


def wide_rows(first: int, count: int) -> str:
    """Return the query of rows that need the wide types."""
    return (
        "SELECT id, n + 5000000000 i, n + 0.1D f, CAST(n * 10000 + 0.75 AS DECIMAL(12, 2)) d, "
        "CAST(-n * 10000000000000 AS DECIMAL(20, 2)) e, CAST(n * 1e15BD * 1e9BD AS DECIMAL(30, 2)) l "
        + _numbers(first, count)
    )


def widened(query: str) -> str:
    """Return the query of rows as the wide table has them."""
    casts = ", ".join(f"CAST({name} AS {kind}) {name}" for name, kind in WIDE.items())
    return f"SELECT id, {casts} FROM ({query})"


def promotions(table: str) -> list[str]:
    """Return the statements that widen a table's columns."""
    return [f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}" for name, kind in WIDE.items()]


def differing(table: str, *queries: str) -> str:
    """Return the query of rows that a table has and queries haven't, or the other way round."""
    wanted = " UNION ALL ".join(widened(query) for query in queries)
    have = f"SELECT id, {', '.join(WIDE)} FROM {table}"
    return f"(({have}) EXCEPT ALL ({wanted})) UNION ALL (({wanted}) EXCEPT ALL ({have})) LIMIT 5"


def _numbers(first: int, count: int) -> str:
    # Few values at first, which a dictionary suits; then each of its own.
    number = "IF(id % 5000 < 3000, id % 50, (id * 7919) % 9973)"
    return f"FROM (SELECT id, IF(id % 11 = 3, NULL, {number}) n FROM range({first}, {first + count}, 1, 1))"
