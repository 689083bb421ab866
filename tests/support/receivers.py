"""What outlets send to, in earnest: a webhook's receiver, a Kafka and an AMQP 1.0 broker, each in processes of its own.

All of them can be held up, killed, come back with what they took, be told to take nothing, and to take nothing large.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from sterna.config.registry.connection import Credential
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready
from tests.support.emulators import installed
from tests.support.servers.artemis import make_artemis
from tests.support.servers.brokers import USER, Broker
from tests.support.servers.kafka import make_kafka

PROTON = "0.40.0"
_PROTON_SHA256 = "7680d607cf6e9684f97bf5b2ba16cda7d8512aab9e4ff78f98d44a4644fc819a"
_ROOT = Path(__file__).parents[2]
_SIGNING = Credential("out", password="whsec_" + base64.b64encode(b"k" * 24).decode())


@dataclass(frozen=True)
class ReceivedEvent:
    """One event that arrived."""

    id: str
    table: str
    data: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    """What came beside it: headers, properties, key."""


class Receiving(Protocol):
    """What an outlet sends to."""

    credential: Credential
    environ: dict[str, str]
    """Variables that senders need."""

    def make(self, topic: str) -> None:
        """Make a topic of a test's own."""
        ...

    def outlet(self, topic: str) -> dict[str, Any]:
        """Return the settings of an outlet that sends there."""
        ...

    def got(self, topic: str) -> list[ReceivedEvent]:
        """Return all that arrived, oldest first."""
        ...

    def most(self, topic: str, size: int | None) -> None:
        """Take nothing that is larger from now on."""
        ...

    def deny(self, topic: str) -> None:
        """Take nothing of the outlet from now on."""
        ...

    def allow(self, topic: str) -> None:
        """Take it again."""
        ...

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def freeze(self) -> None: ...
    def kill(self) -> None: ...


@dataclass
class SmallReceiver:
    """A small receiver of this suite's own, in a process that writes down what it takes."""

    work: Path
    module: ClassVar[str]
    port: int = field(default_factory=free_port)
    process: Process | None = None
    credential: Credential = _SIGNING
    environ: dict[str, str] = field(default_factory=dict)

    def make(self, topic: str) -> None:
        self.rules(topic)

    def outlet(self, topic: str) -> dict[str, Any]:
        raise NotImplementedError

    def got(self, topic: str) -> list[ReceivedEvent]:
        path = self.work / f"{topic}.lines"
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [ReceivedEvent(record["id"], record["subject"], record["data"], record) for record in records]

    def most(self, topic: str, size: int | None) -> None:
        self.rules(topic, most=size or 10**9)

    def deny(self, topic: str) -> None:
        self.rules(topic, denied=True)

    def allow(self, topic: str) -> None:
        self.rules(topic)

    def rules(self, topic: str, **settings: Any) -> None:
        """Say what is taken, instead of everything."""
        draft = self.work / f"{topic}.draft"
        draft.write_text(json.dumps({"most": 10**9, "denied": False, **settings}))
        draft.replace(self.work / f"{topic}.rules")

    def start(self) -> None:
        command = [sys.executable, "-m", self.module, self.port, self.work]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
        self.process = start_process(self.module, command, log=self.work / "log", cwd=_ROOT, env=environ)
        wait_until_ready(self.process, self._listens, timeout=30)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def _listens(self) -> bool:
        socket.create_connection((LOOPBACK, self.port), timeout=5).close()
        return True


class HookReceiver(SmallReceiver):
    """A receiver of webhooks."""

    module = "tests.support.hook"

    def outlet(self, topic: str) -> dict[str, Any]:
        url = f"http://{LOOPBACK}:{self.port}/{topic}"
        return {"target": {"webhook": {"url": url, "timeout": "30s"}}, "credential_id": "out"}


class AmqpPeer(SmallReceiver):
    """A receiver over AMQP 1.0, in the clear."""

    module = "tests.support.amqp_peer"

    def outlet(self, topic: str) -> dict[str, Any]:
        return {"target": {"amqp": {"host": LOOPBACK, "port": self.port, "topic": topic, "tls": False}}}


class _AtBroker:
    """A broker, started, ended and killed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.credential = Credential("out", login=USER, password=broker.password)
        self.environ = {"SSL_CERT_FILE": str(broker.certificate.authority)}
        self.start, self.stop = broker.start, broker.stop
        self.freeze, self.kill = broker.freeze, broker.kill


def make_topic(admin: Any, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Make a topic of Kafka's. A broker that stalled for a second has none to lead it for a moment."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    end = time.monotonic() + 30
    while True:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(30)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.monotonic() > end:
                raise
            time.sleep(0.2)


class KafkaReceiver(_AtBroker):
    """A Kafka."""

    def __init__(self, work: Path) -> None:
        super().__init__(make_kafka(work))

    def make(self, topic: str, partitions: int = 1) -> None:
        make_topic(self.admin, topic, partitions)
        self.allow(topic)

    def outlet(self, topic: str) -> dict[str, Any]:
        servers = [f"{LOOPBACK}:{self.broker.secure_port}"]
        return {"target": {"kafka": {"servers": servers, "topic": topic}}, "credential_id": "out"}

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self.broker.port}"})

    def got(self, topic: str) -> list[ReceivedEvent]:
        from confluent_kafka import KafkaException

        end = time.monotonic() + 30
        while True:
            try:
                return [_kafka_event(message) for message in self._messages(topic)]
            except KafkaException:  # it has just come back, and nobody leads yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def most(self, topic: str, size: int | None) -> None:
        from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

        entry = ConfigEntry("max.message.bytes", str(size or 10**8), incremental_operation=_set())
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def deny(self, topic: str) -> None:
        for future in self.admin.delete_acls([_rule(topic, any_host=True)]).values():
            future.result(30)

    def allow(self, topic: str) -> None:
        for future in self.admin.create_acls([_rule(topic)]).values():
            future.result(30)

    def give_scram_password(self) -> None:
        """Let the user log in by SCRAM, too."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(USER, info, self.broker.password.encode())
        self.admin.alter_user_scram_credentials([wanted])[USER].result(30)

    def _messages(self, topic: str) -> Iterator[Any]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        settings = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": False}
        consumer = Consumer({"bootstrap.servers": f"{LOOPBACK}:{self.broker.port}", **settings})
        try:
            partitions = consumer.list_topics(topic, 30).topics[topic].partitions
            for partition in partitions:
                place = TopicPartition(topic, partition, 0)
                _, end = consumer.get_watermark_offsets(place, 30)
                consumer.assign([place])
                at = 0
                while at < end:
                    message = consumer.poll(30)
                    if message is None or message.error():
                        raise KafkaException(message and message.error())
                    at = message.offset() + 1
                    yield message
        finally:
            consumer.close()


def _kafka_event(message: Any) -> ReceivedEvent:
    about = {name: value.decode() for name, value in message.headers()}
    about |= {"key": message.key().decode(), "partition": message.partition()}
    return ReceivedEvent(about["ce_id"], about["ce_subject"], json.loads(message.value()), about)


def _set() -> Any:
    from confluent_kafka.admin import AlterConfigOpType

    return AlterConfigOpType.SET


def _rule(topic: str, *, any_host: bool = False) -> Any:
    from confluent_kafka import admin

    kind = admin.AclBindingFilter if any_host else admin.AclBinding
    return kind(
        admin.ResourceType.TOPIC,
        topic,
        admin.ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        admin.AclOperation.WRITE,
        admin.AclPermissionType.ALLOW,
    )


class AmqpReceiver(_AtBroker):
    """An Artemis."""

    def __init__(self, work: Path) -> None:
        super().__init__(make_artemis(work))
        self._taken: dict[str, list[ReceivedEvent]] = {}

    def make(self, topic: str) -> None:
        self.allow(topic)

    def outlet(self, topic: str) -> dict[str, Any]:
        place = {"host": "localhost", "port": self.broker.secure_port, "topic": topic}
        return {"target": {"amqp": place}, "credential_id": "out"}

    def got(self, topic: str, at_least: int = 0) -> list[ReceivedEvent]:
        """Return all that arrived; where so many have to come, wait for them."""
        taken, end = self._taken.setdefault(topic, []), time.monotonic() + 30
        while True:
            taken += [_amqp_event(message) for message in self._messages(topic)]
            if len({event.id for event in taken}) >= at_least or time.monotonic() > end:
                return list(taken)

    def most(self, topic: str, size: int | None) -> None:
        raise NotImplementedError("Artemis takes messages of any size")

    def deny(self, topic: str) -> None:
        self._give_role("nobodies")

    def allow(self, topic: str) -> None:
        self._give_role("senders")

    def _give_role(self, role: str) -> None:
        draft = self.broker.work / "roles.draft"
        draft.write_text(f"{role}={USER}\n")
        draft.replace(self.broker.work / "roles.properties")  # what it reads half written it never reads again

    def _messages(self, topic: str) -> Iterator[Any]:
        from proton import Timeout
        from proton.utils import BlockingConnection

        connection = BlockingConnection(f"amqp://{LOOPBACK}:{self.broker.port}", timeout=30)
        try:
            receiver = connection.create_receiver(topic, credit=1000)
            while True:
                try:
                    message = receiver.receive(timeout=0.3)
                except Timeout:
                    return
                receiver.accept()
                yield message
        finally:
            connection.close()


def _amqp_event(message: Any) -> ReceivedEvent:
    about = {**message.properties, "content_type": message.content_type, "durable": message.durable}
    properties = message.properties
    body = bytes(message.body)
    return ReceivedEvent(str(message.id), properties["cloudEvents:subject"], json.loads(body), about)


def proton_at_hand() -> None:
    """See that Qpid Proton can be imported. It has no wheel: it is built, or the test is skipped."""
    if importlib.util.find_spec("proton") is None:
        headers = "/usr/include/openssl/ssl.h"
        if not (shutil.which("cc") and shutil.which("pkg-config") and Path(headers).exists()):
            pytest.skip("Qpid Proton is built with a C compiler, pkg-config and OpenSSL's headers: one is missing")
        python = "".join(str(part) for part in sys.version_info[:2])
        sys.path.append(str(installed(f"proton-{PROTON}-{python}", _build_proton)))
        importlib.invalidate_caches()
    import proton

    if not proton.SSL.present():
        pytest.skip("Qpid Proton was built without OpenSSL")


def _build_proton(folder: Path) -> list[str]:
    wanted = folder.with_name(f"{folder.name}.txt")
    wanted.write_text(f"python-qpid-proton=={PROTON} --hash=sha256:{_PROTON_SHA256}\n")
    install = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, "--target", str(folder)]
    return [*install, "--no-deps", "--require-hashes", "--requirements", str(wanted)]
