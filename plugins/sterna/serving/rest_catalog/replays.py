"""Requests that are sent again since their answer was lost: known by the client's `Idempotency-Key`.

The key is kept in the commit on `main`, so that any instance of any region finds it.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from sterna.catalog.reader import CatalogReader
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BadUpdate
from sterna.serving.rest_catalog.swap import REST_KEY

KEY_LIFETIME = timedelta(minutes=30)
"""For how long a key is looked for; clients read it from the address's configuration."""
KEY_LIFETIME_ISO = f"PT{KEY_LIFETIME // timedelta(minutes=1)}M"
"""The same as ISO 8601 has it."""
_MAX_KEY_CHARACTERS = 128


class IdempotencyKeys:
    """The keys of the commits on `main`; may be used by any number of threads."""

    def __init__(self) -> None:
        self._keys: dict[str, datetime] = {}
        self._head = ""
        self._lock = threading.Lock()

    def has(self, catalog: CatalogReader, head_hash: str, key: str) -> bool:
        """Return whether a request with a key was carried out.

        Args:
            catalog: has `main`.
            head_hash: `main`'s head.
            key: the client's.

        Raises:
            BadUpdate: it is no such key.
        """
        if len(key) > _MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
            raise BadUpdate(f"an Idempotency-Key has up to {_MAX_KEY_CHARACTERS} printable characters of ASCII")
        with self._lock:
            self._read_until(catalog, head_hash)
            return key in self._keys

    def _read_until(self, catalog: CatalogReader, head_hash: str) -> None:
        if head_hash == self._head:
            return
        oldest = datetime.now(UTC) - KEY_LIFETIME
        since = f"{SOURCE_BRANCH}@{head_hash}"
        for commit in catalog.history(since, operations=False, until=self._head or None):
            if commit.commit_time < oldest:
                break
            if key := commit.properties.get(REST_KEY):
                self._keys[key] = commit.commit_time
        self._head = head_hash
        self._keys = {key: time for key, time in self._keys.items() if time >= oldest}
