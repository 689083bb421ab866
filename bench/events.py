"""Rows as applications send them: 20 columns, some 200 bytes a row as Parquet with Snappy."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_POOL = 1 << 15  # rows that are made once: files differ by their ids, and by where they begin in the pool
_AGENTS = [f"browser {number} on some system" for number in range(40)]


def event_file(number: int, rows: int) -> bytes:
    """Return a Parquet file of so many rows, whose ids follow those of the file before."""
    pool, first = _pool(), number * 7919 % _POOL
    places = pa.array((np.arange(rows) + first) % _POOL)
    ids = pa.array(np.arange(rows) + number * rows)
    sink = io.BytesIO()
    pq.write_table(pool.take(places).add_column(0, "id", ids), sink, compression="snappy")
    return sink.getvalue()


@cache
def _pool() -> pa.Table:
    rng = np.random.default_rng(0)
    seen = rng.integers(1_700_000_000_000_000, 1_800_000_000_000_000, _POOL)
    addresses = rng.integers(0, 256, (_POOL, 4))
    return pa.table(
        {
            "event": [rng.bytes(16).hex() for _ in range(_POOL)],
            "session": [rng.bytes(16).hex() for _ in range(_POOL)],
            "user": rng.integers(0, 1 << 40, _POOL),
            "seen": pa.array(seen, pa.timestamp("us", "UTC")),
            "received": pa.array(seen + rng.integers(0, 5_000_000, _POOL), pa.timestamp("us", "UTC")),
            "day": pa.array((seen // 86_400_000_000).astype(np.int32), pa.date32()),
            "kind": _choose(rng, ["view", "click", "search", "order", "refund"]),
            "country": _choose(rng, [f"country {number}" for number in range(60)]),
            "city": _choose(rng, [f"city {number}" for number in range(900)]),
            "agent": _choose(rng, _AGENTS),
            "url": [f"https://shop.example/articles/{a}/of/{b}" for a, b in rng.integers(0, 10**9, (_POOL, 2))],
            "referrer": _choose(rng, [f"pages.example/{number}" for number in range(200)]),
            "address": [f"{a}.{b}.{c}.{d}" for a, b, c, d in addresses],
            "amount": rng.random(_POOL) * 1000,
            "latitude": rng.random(_POOL) * 180 - 90,
            "longitude": rng.random(_POOL) * 360 - 180,
            "quantity": rng.integers(1, 100, _POOL).astype(np.int32),
            "milliseconds": rng.integers(0, 60_000, _POOL).astype(np.int32),
            "mobile": rng.random(_POOL) < 0.5,
        }
    )


def _choose(rng: np.random.Generator, words: list[str]) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), _POOL)))
