"""Names in the paths, queries and bodies of the REST specification, and the keys of the catalog that they mean.

Java's clients encode a level of a name as a form does (a space is `+`), Python's as a URI (`%20`): both are decoded by
the same rule, since either writes a plus as `%2B`. Levels of a namespace are separated by the unit separator, `%1F`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

from sterna.catalog.model import Key
from sterna.errors import BadUpdate

NAMESPACE_SEPARATOR = "\x1f"
_MAX_LEVELS = 20  # as Nessie has it
_MAX_KEY_CHARACTERS = 500  # of all levels together


def parse_namespace(text: str) -> Key:
    """Return the key of a namespace.

    Args:
        text: its levels, decoded, with separators between them.

    Raises:
        BadUpdate: it names none.
    """
    return require_key(tuple(text.split(NAMESPACE_SEPARATOR)))


def parse_parents(text: str) -> tuple[Key, ...]:
    """Return which namespaces the parameter `parent` may mean, the likeliest first; (): the top.

    PyIceberg encodes each level once more than others do.

    Args:
        text: the parameter, decoded once; "" is none.

    Raises:
        BadUpdate: it names none.
    """
    if not text:
        return ((),)
    parent = parse_namespace(text)
    try:
        decoded = require_key(tuple(unquote(level, errors="strict") for level in parent))
    except (BadUpdate, UnicodeDecodeError):
        return (parent,)
    return (parent,) if decoded == parent else (parent, decoded)


def parse_namespace_segment(segment: str) -> Key:
    """Return the key of a namespace, from a segment of a path that is still encoded.

    Raises:
        BadUpdate: it names none.
    """
    return parse_namespace(_decode(segment))


def parse_identifier(namespace: str, name: str) -> Key:
    """Return the key of a table or view, from two segments of a path that are still encoded.

    Raises:
        BadUpdate: they name none.
    """
    return require_key((*parse_namespace_segment(namespace), _decode(name)))


def read_identifier(identifier: object) -> Key:
    """Return the key of a table or view that a body names, as a TableIdentifier.

    Raises:
        BadUpdate: it names none.
    """
    if isinstance(identifier, Mapping):
        namespace, name = identifier.get("namespace"), identifier.get("name")
        if isinstance(namespace, list) and isinstance(name, str):
            return require_key((*read_namespace(namespace), name))
    raise BadUpdate("an identifier is an object of a namespace, which is a list, and a name")


def read_namespace(levels: object) -> Key:
    """Return the key of a namespace that a body names, as a list of its levels.

    Raises:
        BadUpdate: it names none.
    """
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise BadUpdate("a namespace is a list of texts")
    return require_key(tuple(levels))


def identifier_json(key: Key) -> dict[str, Any]:
    """Return the TableIdentifier of a table or view."""
    return {"namespace": list(key[:-1]), "name": key[-1]}


def require_key(key: Key) -> Key:
    """Return a key that the catalog may have.

    Raises:
        BadUpdate: a level is empty, or has a control character or half a surrogate pair; or there are too many or too
            long ones.
    """
    if not key or not all(key):
        raise BadUpdate("a level of the name is empty")
    if len(key) > _MAX_LEVELS or sum(map(len, key)) > _MAX_KEY_CHARACTERS:
        raise BadUpdate(f"the name has more than {_MAX_LEVELS} levels or {_MAX_KEY_CHARACTERS} characters")
    if not all(map(is_unicode, key)):
        raise BadUpdate("half a surrogate pair in the name")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for level in key for character in level):
        raise BadUpdate("a control character in the name")
    return key


def is_unicode(text: str) -> bool:
    """Return whether a text can be sent to the catalog: JSON may have half a surrogate pair, UTF-8 can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decode(segment: str) -> str:
    try:
        return unquote_plus(segment, errors="strict")
    except UnicodeDecodeError:
        raise BadUpdate("the name is no UTF-8") from None
