"""Fields of a client's JSON by type: whatever is missing or of another type is refused by its name.

Numbers are bounded as Iceberg's are: an id is an int of 32 bits, a snapshot id, time or size one of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sterna.errors import BadUpdate

Json = Mapping[str, Any]
_T = TypeVar("_T")
_INT_LIMIT = 1 << 31
_LONG_LIMIT = 1 << 63


def as_object(content: object, name: str) -> Json:
    """Return what has to be an object.

    Args:
        content: a part of the client's JSON.
        name: what it is called in an error.

    Raises:
        BadUpdate: it is none.
    """
    if not isinstance(content, Mapping):
        raise BadUpdate(f"{name} is {_type_name(content)}, and has to be an object")
    return content


def as_text(content: object, name: str) -> str:
    """Return what has to be a string; arguments and errors as `as_object`.

    Raises:
        BadUpdate: it is none.
    """
    if not isinstance(content, str):
        raise BadUpdate(f"{name} is {_type_name(content)}, and has to be a string")
    return content


def as_int(content: object, name: str) -> int:
    """Return what has to be an integer of 32 bits; arguments as `as_object`.

    Raises:
        BadUpdate: it is none.
    """
    return _integer(content, name, _INT_LIMIT)


def as_long(content: object, name: str) -> int:
    """Return what has to be an integer of 64 bits; arguments as `as_object`.

    Raises:
        BadUpdate: it is none.
    """
    return _integer(content, name, _LONG_LIMIT)


def as_bool(content: object, name: str) -> bool:
    """Return what has to be true or false; arguments as `as_object`.

    Raises:
        BadUpdate: it is neither.
    """
    if not isinstance(content, bool):
        raise BadUpdate(f"{name} is {_type_name(content)}, and has to be true or false")
    return content


def as_elements(content: object, name: str) -> Sequence[object]:
    """Return what has to be an array, also as the caller's own tuple; arguments as `as_object`.

    Raises:
        BadUpdate: it is none.
    """
    return content if isinstance(content, tuple) else as_array(content, name)


def as_array(content: object, name: str) -> list[Any]:
    """Return what has to be an array; arguments as `as_object`.

    Raises:
        BadUpdate: it is none.
    """
    if not isinstance(content, list):
        raise BadUpdate(f"{name} is {_type_name(content)}, and has to be an array")
    return content


def with_small_letters(document: Json, name: str) -> Json:
    """Return an object with one of its texts in small letters; one that isn't there, or is no text, stays as it is.

    Args:
        document: an object of the client's.
        name: the text's.
    """
    text = document.get(name)
    return {**document, name: text.lower()} if isinstance(text, str) else document


def field(document: Json, name: str, convert: Callable[[object, str], _T]) -> _T:
    """Return a field that has to be there.

    Args:
        document: an object of the client's.
        name: the field's.
        convert: one of the functions above.

    Raises:
        BadUpdate: it is missing.
    """
    if document.get(name) is None:
        raise BadUpdate(f"{name} is missing")
    return convert(document[name], name)


def optional_field(document: Json, name: str, convert: Callable[[object, str], _T]) -> _T | None:
    """Return a field that may be missing or null; arguments and errors as `field`."""
    content = document.get(name)
    return None if content is None else convert(content, name)


def array_field(document: Json, name: str, convert: Callable[[object, str], _T]) -> list[_T]:
    """Return the elements of an array that has to be there; arguments and errors as `field`."""
    return [convert(element, f"{name}[{at}]") for at, element in enumerate(field(document, name, as_array))]


def text_map(content: object, name: str) -> dict[str, str]:
    """Return what has to be an object of strings; arguments and errors as `as_object`."""
    return {key: as_text(text, f"{name}.{key}") for key, text in as_object(content, name).items()}


def _integer(content: object, name: str, limit: int) -> int:
    if isinstance(content, bool) or not isinstance(content, int):
        raise BadUpdate(f"{name} is {_type_name(content)}, and has to be an integer")
    if not -limit <= content < limit:
        raise BadUpdate(f"{name} does not fit {limit.bit_length()} bits")
    return content


def _type_name(content: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array"}
    return "null" if content is None else names.get(type(content), "an object")
