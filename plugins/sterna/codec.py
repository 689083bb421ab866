"""JSON objects that outlive the process that wrote them: the name, kind and default of each field, written down once.

In the code a field may have any name: the name in its `Record` is the persisted one.
Unknown fields are refused by name or passed through, and a missing required field is never read as empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
_MAX_SHOWN_CHARACTERS = 60  # letters of a name in a message


class MalformedRecord(ValueError):
    """This is no such record: a field is absent, unknown, there twice, or of another kind; the message names it."""


class DuplicateName(MalformedRecord):
    """A name occurs twice in an object, so that its value is ambiguous."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name[:_MAX_SHOWN_CHARACTERS]!r} appears twice in an object")
        self.name = name


class UnknownFields(Enum):
    """How fields that a record doesn't define, those of a newer version, are handled."""

    REJECT = "refuse"
    """An unknown field is an error: acting on the record takes all of it."""
    IGNORE = "ignore"
    """For records that are only read: unknown fields don't matter. A record that also lacks a known field is not a
    newer one, and is refused."""
    PRESERVE = "carry"
    """They are kept as JSON text, and written again with the rest."""


@dataclass(frozen=True)
class Codec(Generic[T]):
    """What a field's value may be.

    Args:
        decode: returns the value of what JSON has, at a path for messages; raises `MalformedRecord`.
        encode: returns what JSON has of a value; None: the value itself.
    """

    decode: Callable[[Any, str], T]
    encode: Callable[[T], Any] | None = None


REQUIRED: Any = object()
"""The default of a field that each record has."""


@dataclass(frozen=True)
class Field:
    """A field of a record.

    Args:
        name: in JSON.
        codec: of its value.
        default: its value where it is absent; `REQUIRED`: then this is no such record.
        attribute: of the Python object; "": it has the same name.
        omits_default: the field is left out where it has its default, so that older versions read the record.
    """

    name: str
    codec: Codec[Any]
    default: Any = REQUIRED
    attribute: str = ""
    omits_default: bool = False

    @property
    def argument(self) -> str:
        """What the Python object calls it."""
        return self.attribute or self.name


@dataclass(frozen=True)
class Record(Generic[T]):
    """How objects of a class are represented in JSON; fields are written in this order.

    Args:
        type: the class, whose arguments are named as `Field.argument`.
        fields: of the record.
        unknown: what becomes of others.
        preserved_attribute: with `UnknownFields.PRESERVE`: the attribute that keeps them, as JSON text.
        inlined: by attribute, records whose fields are merged into this one's object, before its own.
    """

    type: Callable[..., T]
    fields: tuple[Field, ...]
    unknown: UnknownFields = UnknownFields.REJECT
    preserved_attribute: str = ""
    inlined: Mapping[str, Record[Any]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields of the JSON object, in their order."""
        inlined_names = (name for record in self.inlined.values() for name in record.names)
        return (*inlined_names, *(member.name for member in self.fields))

    @property
    def omitted_names(self) -> frozenset[str]:
        """The names of those fields that are left out where they have their default."""
        inlined_names = (name for record in self.inlined.values() for name in record.omitted_names)
        return frozenset((*inlined_names, *(member.name for member in self.fields if member.omits_default)))

    @property
    def codec(self) -> Codec[T]:
        """The record as a field of another one."""
        return Codec(self.decode, self.encode)

    def encode(self, value: T) -> dict[str, Any]:
        """Return an object as JSON has it."""
        encoded: dict[str, Any] = {}
        for attribute, record in self.inlined.items():
            encoded |= record.encode(getattr(value, attribute))
        for member in self.fields:
            attribute_value = getattr(value, member.argument)
            if member.omits_default and attribute_value == member.default:
                continue
            encoded[member.name] = (
                attribute_value if member.codec.encode is None else member.codec.encode(attribute_value)
            )
        if self.preserved_attribute and (preserved := getattr(value, self.preserved_attribute)):
            encoded |= json.loads(preserved)
        return encoded

    def decode(self, raw: Any, path: str = "") -> T:
        """Return the object that parsed JSON represents.

        Args:
            raw: the parsed JSON.
            path: its path in the document, for messages.

        Raises:
            MalformedRecord: it is no such record.
        """
        if not isinstance(raw, dict):
            raise MalformedRecord(f"{path or 'it'} is no object")
        arguments: dict[str, Any] = {}
        matched = 0
        for attribute, record in self.inlined.items():
            inlined_raw = {name: raw[name] for name in record.names if name in raw}
            arguments[attribute] = record.decode(inlined_raw, path)
            matched += len(inlined_raw)
        for member in self.fields:
            if member.name in raw:
                matched += 1
                arguments[member.argument] = member.codec.decode(raw[member.name], f"{path}.{member.name}".lstrip("."))
            elif member.default is REQUIRED:
                raise MalformedRecord(f"{path}.{member.name} is absent".lstrip("."))
            else:
                arguments[member.argument] = member.default
        if matched < len(raw):
            self._handle_unknown(raw, path, arguments)
        return self.type(**arguments)

    def dumps(self, value: T) -> str:
        """Return an object as JSON text."""
        return json.dumps(self.encode(value), separators=(",", ":"), ensure_ascii=False)

    def loads(self, text: str | bytes) -> T:
        """Return the object that a JSON text has.

        Raises:
            MalformedRecord: it has no such record.
        """
        return self.decode(parse_json(text))

    def _handle_unknown(self, raw: Mapping[str, Any], path: str, arguments: dict[str, Any]) -> None:
        names = set(self.names)
        unknown = {name: value for name, value in raw.items() if name not in names}
        is_incomplete = self.unknown is UnknownFields.IGNORE and not names - self.omitted_names <= raw.keys()
        if self.unknown is UnknownFields.REJECT or is_incomplete:
            name = f"{path}.{min(unknown)[:_MAX_SHOWN_CHARACTERS]!r}".lstrip(".")
            raise MalformedRecord(f"{name} is a field that this version doesn't know")
        if self.unknown is UnknownFields.PRESERVE:
            arguments[self.preserved_attribute] = json.dumps(unknown, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Document(Generic[T]):
    """The file format of a record: its JSON object with the format's version.

    A field that an older sterna may leave out of account is added to the record. One that it must understand takes
    another version.

    Args:
        record: its fields.
        version: the value of the member `version`; a file with another one is refused.
        spaced: a space follows each comma and colon.
        sorted: members are sorted by name; else the version comes first, and fields in the record's order.
        ends_with_newline: the file ends with a line feed.
        needs_next_version: returns whether an older sterna must not read an object, whose file then has the next
            version.
    """

    record: Record[T]
    version: int = 1
    spaced: bool = False
    sorted: bool = True
    ends_with_newline: bool = True
    needs_next_version: Callable[[T], bool] | None = None

    def dumps(self, value: T) -> bytes:
        """Return a file's bytes: the same ones for the same object."""
        version = self.version + (self.needs_next_version is not None and self.needs_next_version(value))
        content = {"version": version, **self.record.encode(value)}
        separators = None if self.spaced else (",", ":")
        text = json.dumps(content, separators=separators, sort_keys=self.sorted) + (
            "\n" if self.ends_with_newline else ""
        )
        return text.encode()

    def loads(self, text: bytes) -> T:
        """Return the object that a file has.

        Raises:
            MalformedRecord: it is of another version, or has no such record.
        """
        content = parse_json(text)
        if not isinstance(content, dict):
            raise MalformedRecord("it is no object")
        version = INTEGER.decode(content.pop("version", None), "version")
        if version not in (self.version, self.version + (self.needs_next_version is not None)):
            raise MalformedRecord(f"it is another version's: {version}, and this sterna reads {self.version}")
        return self.record.decode(content)


_encode_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def dump_json(value: Any) -> bytes:
    """Return a value as JSON without spaces, in UTF-8; with escapes where a text has half of a surrogate pair."""
    try:
        return _encode_plain(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def parse_json(text: str | bytes) -> Any:
    """Return the parsed value of a JSON text.

    Raises:
        MalformedRecord: it is no JSON.
        DuplicateName: a name occurs twice in an object, at any depth.
    """
    try:
        return json.loads(text, object_pairs_hook=require_unique_names, parse_constant=_reject_constant)
    except MalformedRecord:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"it is no JSON: {error}") from None


def require_unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return names and their values as a mapping.

    Raises:
        DuplicateName: a name occurs twice.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateName(next(name for at, name in enumerate(names) if name in names[:at]))
    return mapping


def _reject_constant(name: str) -> NoReturn:
    raise MalformedRecord(f"{name} is none of JSON's numbers")


def _scalar(python_type: type[T], type_name: str, encode: Callable[[T], Any] | None = None) -> Codec[T]:
    def decode(raw: Any, path: str) -> T:
        # True is an int in Python, and isn't in JSON.
        if not isinstance(raw, python_type) or (isinstance(raw, bool) and python_type is not bool):
            raise MalformedRecord(f"{path} is no {type_name}")
        return raw

    return Codec(decode, encode)


def _decode_real(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise MalformedRecord(f"{path} is no number")
    return float(raw)


TEXT = _scalar(str, "text")
INTEGER = _scalar(int, "integer", int)  # a number of numpy's is none of JSON's
FLAG = _scalar(bool, "boolean")
REAL = Codec(_decode_real, lambda value: value if math.isfinite(value) else None)
"""A number; one without an end is written as null, which only `nullable(REAL)` takes."""


def _decode_time(raw: Any, path: str) -> datetime:
    text = TEXT.decode(raw, path)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedRecord(f"{path} is no time of ISO 8601") from None
    if moment.tzinfo is None:
        raise MalformedRecord(f"{path} is no time with an offset from UTC")
    return moment


TIME = Codec(_decode_time, datetime.isoformat)
"""A moment, as ISO 8601 has it, with its offset from UTC."""


def enum_of(*texts: str) -> Codec[str]:
    """Return the kind of some texts and no others."""

    def decode(raw: Any, path: str) -> str:
        if raw not in texts:
            raise MalformedRecord(f"{path} is none of {', '.join(texts)}")
        return str(raw)

    return Codec(decode)


def nullable(codec: Codec[T]) -> Codec[T | None]:
    """Return a kind that may be null, too."""
    encode = codec.encode
    return Codec(
        lambda raw, path: None if raw is None else codec.decode(raw, path),
        None if encode is None else lambda value: None if value is None else encode(value),
    )


def tuple_of(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """Return the kind of lists; in Python they are tuples."""

    def decode(raw: Any, path: str) -> tuple[T, ...]:
        if not isinstance(raw, list):
            raise MalformedRecord(f"{path} is no list")
        return tuple(codec.decode(element, f"{path}[{number}]") for number, element in enumerate(raw))

    encode = codec.encode
    return Codec(decode, list if encode is None else lambda value: [encode(element) for element in value])


def mapping_of(codec: Codec[T]) -> Codec[Mapping[str, T]]:
    """Return the kind of objects whose names are data, such as key names."""

    def decode(raw: Any, path: str) -> dict[str, T]:
        if not isinstance(raw, dict):
            raise MalformedRecord(f"{path} is no object")
        return {
            name: codec.decode(element, f"{path}[{name[:_MAX_SHOWN_CHARACTERS]!r}]") for name, element in raw.items()
        }

    encode = codec.encode
    return Codec(
        decode, dict if encode is None else lambda value: {name: encode(element) for name, element in value.items()}
    )


def array_of(type: Callable[..., T], **codecs: Codec[Any]) -> Codec[T]:
    """Return the kind of objects that are lists in JSON.

    Args:
        codecs: by attribute, the codec of each element, in the list's order.
    """

    def decode(raw: Any, path: str) -> T:
        if not isinstance(raw, list) or len(raw) != len(codecs):
            raise MalformedRecord(f"{path} is no list of {len(codecs)}")
        elements = enumerate(zip(codecs.items(), raw, strict=True))
        return type(**{name: codec.decode(element, f"{path}[{index}]") for index, ((name, codec), element) in elements})

    def encode(value: T) -> list[Any]:
        attributes = ((codec, getattr(value, name)) for name, codec in codecs.items())
        return [
            attribute_value if codec.encode is None else codec.encode(attribute_value)
            for codec, attribute_value in attributes
        ]

    return Codec(decode, encode)


def _decode_raw(raw: Any, path: str) -> Any:
    return raw


RAW_JSON: Codec[Any] = Codec(_decode_raw)
"""Foreign JSON, which is returned as it was received."""
