"""JSON objects that outlive the process that wrote them: the name, kind and default of each field, written down once.

In the code a field may be called anything: the name that stands in a `Record` is the one that others read and wrote.
What a record doesn't know is refused by name, or passed through, and what it needs is never read as empty.
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
_SHOWN = 60  # letters of a name in a message


class MalformedRecord(ValueError):
    """This is no such record: a field is absent, unknown, there twice, or of another kind; the message names it."""


class DoubledName(MalformedRecord):
    """A name stands twice where it may stand once: which of the two counts nobody can tell."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name[:_SHOWN]!r} stands twice in an object")
        self.name = name


class Unknown(Enum):
    """What becomes of fields that a record doesn't know: those of a newer version."""

    REFUSE = "refuse"
    """Whoever acts by the record must understand all of it."""
    IGNORE = "ignore"
    """Nobody writes it again, and nobody acts by them: it stays as it is. A record that lacks one of the known fields
    besides is no newer one, and is refused."""
    CARRY = "carry"
    """They are kept as JSON text, and written again with the rest."""


@dataclass(frozen=True)
class Kind(Generic[T]):
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
        kind: of its value.
        default: its value where it is absent; `REQUIRED`: then this is no such record.
        attribute: of the Python object; "": it has the same name.
    """

    name: str
    kind: Kind[Any]
    default: Any = REQUIRED
    attribute: str = ""

    @property
    def argument(self) -> str:
        """What the Python object calls it."""
        return self.attribute or self.name


@dataclass(frozen=True)
class Record(Generic[T]):
    """How objects of a class stand in JSON; their fields are written in this order.

    Args:
        type: the class, whose arguments are named as `Field.argument`.
        fields: of the record.
        unknown: what becomes of others.
        carried: with `Unknown.CARRY`: the attribute that keeps them, as JSON text.
        inlined: by attribute, records whose fields stand among this one's, before its own.
    """

    type: Callable[..., T]
    fields: tuple[Field, ...]
    unknown: Unknown = Unknown.REFUSE
    carried: str = ""
    inlined: Mapping[str, Record[Any]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields that stand in the object, in their order."""
        inner = (name for record in self.inlined.values() for name in record.names)
        return (*inner, *(each.name for each in self.fields))

    @property
    def kind(self) -> Kind[T]:
        """The record as a field of another one."""
        return Kind(self.decode, self.encode)

    def encode(self, value: T) -> dict[str, Any]:
        """Return an object as JSON has it."""
        found: dict[str, Any] = {}
        for attribute, record in self.inlined.items():
            found |= record.encode(getattr(value, attribute))
        for each in self.fields:
            item = getattr(value, each.argument)
            found[each.name] = item if each.kind.encode is None else each.kind.encode(item)
        if self.carried and (more := getattr(value, self.carried)):
            found |= json.loads(more)
        return found

    def decode(self, given: Any, path: str = "") -> T:
        """Return the object that stands in JSON.

        Args:
            given: the parsed JSON.
            path: where it stands, for messages.

        Raises:
            MalformedRecord: it is no such record.
        """
        if not isinstance(given, dict):
            raise MalformedRecord(f"{path or 'it'} is no object")
        found: dict[str, Any] = {}
        known = 0
        for attribute, record in self.inlined.items():
            own = {name: given[name] for name in record.names if name in given}
            found[attribute] = record.decode(own, path)
            known += len(own)
        for each in self.fields:
            if each.name in given:
                known += 1
                found[each.argument] = each.kind.decode(given[each.name], f"{path}.{each.name}".lstrip("."))
            elif each.default is REQUIRED:
                raise MalformedRecord(f"{path}.{each.name} is absent".lstrip("."))
            else:
                found[each.argument] = each.default
        if known < len(given):
            self._take_unknown(given, path, found)
        return self.type(**found)

    def dumps(self, value: T) -> str:
        """Return an object as JSON text."""
        return json.dumps(self.encode(value), separators=(",", ":"), ensure_ascii=False)

    def loads(self, text: str | bytes) -> T:
        """Return the object that a JSON text has.

        Raises:
            MalformedRecord: it has no such record.
        """
        return self.decode(parse_json(text))

    def _take_unknown(self, given: Mapping[str, Any], path: str, found: dict[str, Any]) -> None:
        names = set(self.names)
        more = {name: value for name, value in given.items() if name not in names}
        lacks = self.unknown is Unknown.IGNORE and len(given) - len(more) < len(names)
        if self.unknown is Unknown.REFUSE or lacks:
            name = f"{path}.{min(more)[:_SHOWN]!r}".lstrip(".")
            raise MalformedRecord(f"{name} is a field that this version doesn't know")
        if self.unknown is Unknown.CARRY:
            found[self.carried] = json.dumps(more, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Document(Generic[T]):
    """How a record stands in a file of its own, with the version of its format.

    A field that an older sterna may leave out of account is added to the record. One that it must understand takes
    another version.

    Args:
        record: its fields.
        version: the value of `version`, which stands beside them; a file with another one is refused.
        spaced: a space follows each comma and colon.
        sorted: names stand in their order as text; else the version first, and fields as the record has them.
        line: the file ends with a line feed.
        later: says of an object whether an older sterna must not read it: its file is of the next version.
    """

    record: Record[T]
    version: int = 1
    spaced: bool = False
    sorted: bool = True
    line: bool = True
    later: Callable[[T], bool] | None = None

    def dumps(self, value: T) -> bytes:
        """Return a file's bytes: the same ones for the same object."""
        version = self.version + (self.later is not None and self.later(value))
        told = {"version": version, **self.record.encode(value)}
        separators = None if self.spaced else (",", ":")
        text = json.dumps(told, separators=separators, sort_keys=self.sorted) + ("\n" if self.line else "")
        return text.encode()

    def loads(self, text: bytes) -> T:
        """Return the object that a file has.

        Raises:
            MalformedRecord: it is of another version, or has no such record.
        """
        told = parse_json(text)
        if not isinstance(told, dict):
            raise MalformedRecord("it is no object")
        version = INTEGER.decode(told.pop("version", None), "version")
        if version not in (self.version, self.version + (self.later is not None)):
            raise MalformedRecord(f"it is another version's: {version}, and this sterna knows {self.version}")
        return self.record.decode(told)


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says.

    Raises:
        MalformedRecord: it is no JSON.
        DoubledName: a name stands twice in an object, at whatever depth.
    """
    try:
        return json.loads(text, object_pairs_hook=distinct, parse_constant=_refuse_constant)
    except MalformedRecord:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"it is no JSON: {error}") from None


def distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return names and their values as a mapping.

    Raises:
        DoubledName: a name stands twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DoubledName(next(name for at, name in enumerate(names) if name in names[:at]))
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedRecord(f"{name} is none of JSON's numbers")


def _scalar(kind: type[T], what: str, encode: Callable[[T], Any] | None = None) -> Kind[T]:
    def decode(given: Any, path: str) -> T:
        # True is an int in Python, and isn't in JSON.
        if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
            raise MalformedRecord(f"{path} is no {what}")
        return given

    return Kind(decode, encode)


def _decode_real(given: Any, path: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise MalformedRecord(f"{path} is no number")
    return float(given)


TEXT = _scalar(str, "text")
INTEGER = _scalar(int, "integer", int)  # a number of numpy's is none of JSON's
FLAG = _scalar(bool, "boolean")
REAL = Kind(_decode_real, lambda value: value if math.isfinite(value) else None)
"""A number; one without an end is written as null, which only `nullable(REAL)` takes."""


def _decode_time(given: Any, path: str) -> datetime:
    text = TEXT.decode(given, path)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedRecord(f"{path} is no time of ISO 8601") from None
    if found.tzinfo is None:
        raise MalformedRecord(f"{path} is no time with an offset from UTC")
    return found


TIME = Kind(_decode_time, datetime.isoformat)
"""A moment, as ISO 8601 has it, with its offset from UTC."""


def one_of(*texts: str) -> Kind[str]:
    """Return the kind of some texts and no others."""

    def decode(given: Any, path: str) -> str:
        if given not in texts:
            raise MalformedRecord(f"{path} is none of {', '.join(texts)}")
        return str(given)

    return Kind(decode)


def nullable(kind: Kind[T]) -> Kind[T | None]:
    """Return a kind that may be null, too."""
    encode = kind.encode
    return Kind(
        lambda given, path: None if given is None else kind.decode(given, path),
        None if encode is None else lambda value: None if value is None else encode(value),
    )


def many(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """Return the kind of lists; in Python they are tuples."""

    def decode(given: Any, path: str) -> tuple[T, ...]:
        if not isinstance(given, list):
            raise MalformedRecord(f"{path} is no list")
        return tuple(kind.decode(each, f"{path}[{number}]") for number, each in enumerate(given))

    encode = kind.encode
    return Kind(decode, list if encode is None else lambda value: [encode(each) for each in value])


def by_name(kind: Kind[T]) -> Kind[Mapping[str, T]]:
    """Return the kind of objects whose names are data, such as key names."""

    def decode(given: Any, path: str) -> dict[str, T]:
        if not isinstance(given, dict):
            raise MalformedRecord(f"{path} is no object")
        return {name: kind.decode(each, f"{path}[{name[:_SHOWN]!r}]") for name, each in given.items()}

    encode = kind.encode
    return Kind(decode, dict if encode is None else lambda value: {name: encode(each) for name, each in value.items()})


def row(type: Callable[..., T], **kinds: Kind[Any]) -> Kind[T]:
    """Return the kind of objects that are lists in JSON.

    Args:
        type: the class.
        kinds: by attribute, what stands at each place, in the list's order.
    """

    def decode(given: Any, path: str) -> T:
        if not isinstance(given, list) or len(given) != len(kinds):
            raise MalformedRecord(f"{path} is no list of {len(kinds)}")
        places = enumerate(zip(kinds.items(), given, strict=True))
        return type(**{name: kind.decode(each, f"{path}[{at}]") for at, ((name, kind), each) in places})

    def encode(value: T) -> list[Any]:
        items = ((kind, getattr(value, name)) for name, kind in kinds.items())
        return [item if kind.encode is None else kind.encode(item) for kind, item in items]

    return Kind(decode, encode)


def _whatever(given: Any, path: str) -> Any:
    return given


FOREIGN: Kind[Any] = Kind(_whatever)
"""JSON of others', which goes back to them as it came."""
