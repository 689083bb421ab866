"""Lists in pages: a client that sends `pageToken`, empty at first, gets one page; any other gets all.

A token has the last key of its page, so a list may change between two pages: what is there all the time is listed once.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.catalog.model import Key
from sterna.errors import BadUpdate

_MAX_PAGE_SIZE = 1_000
_MAX_TOKEN_CHARACTERS = 4_096


@dataclass(frozen=True)
class PageRequest:
    """A page that a client requests.

    Args:
        after: the last key of the page before; None: the first page.
        size: keys of it.
    """

    after: Key | None = None
    size: int = _MAX_PAGE_SIZE


def parse_page(token: str | None, size: str | None) -> PageRequest | None:
    """Return which page a client requests; None: all at once.

    Args:
        token: the parameter `pageToken`.
        size: the parameter `pageSize`, which means nothing without a token.

    Raises:
        BadUpdate: they are no such parameters.
    """
    if token is None:
        return None
    count = _MAX_PAGE_SIZE if size is None else _parse_size(size)
    return PageRequest(_parse_token(token) if token else None, min(count, _MAX_PAGE_SIZE))


def take_page(keys: Sequence[Key], page: PageRequest | None) -> tuple[Sequence[Key], str | None]:
    """Return the keys of a page, and the token of the next one, None where there is none.

    Args:
        keys: all of them, sorted.
        page: as `parse_page` returned it.
    """
    if page is None:
        return keys, None
    start = 0 if page.after is None else bisect_right(keys, page.after)
    chosen = keys[start : start + page.size]
    return chosen, _token(chosen[-1]) if start + page.size < len(keys) else None


def _token(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _parse_token(token: str) -> Key:
    try:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        key = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise BadUpdate("the pageToken is none of this address") from None
    if not isinstance(key, list) or not key or not all(isinstance(level, str) for level in key):
        raise BadUpdate("the pageToken is none of this address")
    return tuple(key)


def _parse_size(size: str) -> int:
    if not (size.isascii() and size.isdecimal() and len(size) < 10 and int(size) > 0):
        raise BadUpdate("pageSize is a number from 1")
    return int(size)
