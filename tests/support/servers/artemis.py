"""An ActiveMQ Artemis of one node, which speaks AMQP 1.0."""

from __future__ import annotations

import secrets
from pathlib import Path

from sterna.servers.process import LOOPBACK, free_port
from tests.support.servers.brokers import USER, Broker, create_certificate, java_command
from tests.support.servers.certificate import ServerCertificate

_JAR_LIST = "artemis.jars"
_MAIN_CLASS = "org.apache.activemq.artemis.core.server.embedded.Main"
_JAAS = "org.apache.activemq.artemis.spi.core.security.jaas"


def make_artemis(work: Path) -> Broker:
    """Return an Artemis that is not started yet.

    Without TLS all clients may do everything. `USER` connects with TLS, logs in by SASL PLAIN, with its roles' rights
    (`roles.properties`). Addresses whose names begin with `full.` hold three messages at most. It takes messages
    also where more than 90 % of the disk is in use, as Artemis's default does not.

    Raises:
        EngineError: Java or the jars are missing.
    """
    password = secrets.token_urlsafe(16)
    certificate = create_certificate(work, password)
    port, secure_port = free_port(), free_port()
    (work / "etc").mkdir()
    (work / "etc" / "broker.xml").write_text(_settings(work, port, secure_port, certificate))
    (work / "login.config").write_text(_LOGIN)
    (work / "users.properties").write_text(f"{USER}={password}\n")
    (work / "roles.properties").write_text(f"senders={USER}\n")
    for name in ("etc/broker.xml", "users.properties"):
        (work / name).chmod(0o600)
    options = [f"-Djava.security.auth.login.config={work / 'login.config'}"]
    command = java_command(_JAR_LIST, _MAIN_CLASS, work, memory="256m", options=options)
    return Broker("Artemis", command, work, port, secure_port, password, certificate)


_LOGIN = f"""\
everybody {{
  {_JAAS}.GuestLoginModule required
    org.apache.activemq.jaas.guest.user="somebody" org.apache.activemq.jaas.guest.role="operators";
}};
users {{
  {_JAAS}.PropertiesLoginModule required
    reload=true
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
}};
"""
_PERMISSIONS = ("send", "consume", "browse", "createAddress", "createNonDurableQueue", "createDurableQueue")


def _settings(work: Path, port: int, secure_port: int, certificate: ServerCertificate) -> str:
    keys = f"keyStoreType=PKCS12;keyStorePath={certificate.keystore};keyStorePassword={certificate.password}"
    secure = f"protocols=AMQP;sslEnabled=true;{keys};saslMechanisms=PLAIN;securityDomain=users"
    allowed = "".join(f'<permission type="{permission}" roles="operators,senders"/>' for permission in _PERMISSIONS)
    return f"""\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <journal-type>NIO</journal-type>
    <journal-directory>{work}/data/journal</journal-directory>
    <bindings-directory>{work}/data/bindings</bindings-directory>
    <paging-directory>{work}/data/paging</paging-directory>
    <large-messages-directory>{work}/data/large</large-messages-directory>
    <journal-file-size>1M</journal-file-size>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>2</journal-pool-files>
    <max-disk-usage>-1</max-disk-usage>
    <security-invalidation-interval>0</security-invalidation-interval>
    <authentication-cache-size>0</authentication-cache-size>
    <authorization-cache-size>0</authorization-cache-size>
    <acceptors>
      <acceptor name="open">tcp://{LOOPBACK}:{port}?protocols=AMQP;saslMechanisms=ANONYMOUS;securityDomain=everybody</acceptor>
      <acceptor name="secure">tcp://{LOOPBACK}:{secure_port}?{secure}</acceptor>
    </acceptors>
    <security-settings><security-setting match="#">{allowed}</security-setting></security-settings>
    <address-settings>
      <address-setting match="#">
        <default-address-routing-type>ANYCAST</default-address-routing-type>
        <default-queue-routing-type>ANYCAST</default-queue-routing-type>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
      <address-setting match="full.#">
        <max-size-messages>3</max-size-messages>
        <address-full-policy>FAIL</address-full-policy>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""
