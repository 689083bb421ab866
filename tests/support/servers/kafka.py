"""A Kafka of one node, its own controller (KRaft)."""

from __future__ import annotations

import secrets
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from sterna.servers.process import LOOPBACK, free_port
from tests.support.servers.brokers import USER, Broker, create_certificate, java_command
from tests.support.servers.certificate import ServerCertificate

_JAR_LIST = "kafka.jars"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


def make_kafka(work: Path) -> Broker:
    """Return a Kafka that is not started yet.

    In the clear everybody may do everything. `USER` speaks TLS, logs in by SASL (PLAIN; SCRAM-SHA-512 once it has such
    a password), and may do what its ACLs allow.

    Raises:
        EngineError: Java or the jars are missing.
    """
    password = secrets.token_urlsafe(16)
    certificate = create_certificate(work, password)
    port, secure_port = free_port(), free_port()
    settings = work / "server.properties"
    settings.write_text(_settings(work, port, secure_port, free_port(), certificate))
    settings.chmod(0o600)
    _format_storage(work / "data")
    command = java_command(_JAR_LIST, "kafka.Kafka", settings, memory="384m")
    return Broker("Kafka", command, work, port, secure_port, password, certificate)


def _format_storage(folder: Path) -> None:
    """Write what `kafka-storage format` does, without a JVM: which cluster and node a folder belongs to."""
    folder.mkdir()
    cluster, directory = (urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in range(2))
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={directory}\n")


def _settings(work: Path, port: int, secure_port: int, controller_port: int, certificate: ServerCertificate) -> str:
    addresses = f"OPEN://{LOOPBACK}:{port},SECURE://{LOOPBACK}:{secure_port}"
    password = certificate.password
    login = f'username="{USER}" password="{password}" user_{USER}="{password}"'
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{LOOPBACK}:{controller_port}
controller.listener.names=CONTROLLER
listeners={addresses},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners={addresses}
listener.security.protocol.map=OPEN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=OPEN
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=250
log.dirs={work / "data"}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secure.plain.sasl.jaas.config={_PLAIN_LOGIN} required {login};
listener.name.secure.scram-sha-512.sasl.jaas.config={_SCRAM_LOGIN} required;
ssl.keystore.type=PKCS12
ssl.keystore.location={certificate.keystore}
ssl.keystore.password={password}
ssl.key.password={password}
"""
