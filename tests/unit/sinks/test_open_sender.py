"""Opening senders: each kind by its settings, and what is said where its library is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sterna import brokers
from sterna.brokers.message import Message
from sterna.brokers.senders import open_sender
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import Sink, Target
from sterna.errors import CredentialError, UsageError

KAFKA = {"kafka": {"servers": ["127.0.0.1:1"]}}
AMQP = {"amqp": {"host": "localhost", "port": 1}}


def outlet(target: dict[str, Any], credential_id: str | None = None) -> Sink:
    return Sink.model_validate({"target": target, "credential_id": credential_id})


def no_secret(id: str) -> Credential:
    raise CredentialError(f"credential {id!r} is missing")


@pytest.mark.parametrize("kind", Target.model_fields)
def test_every_kind_has_a_module_with_its_sender(kind: str) -> None:
    module = (Path(brokers.__file__).parent / f"{kind}.py").read_text()
    assert re.search(r"^def open_sender\(settings: \w+, credential: .*\) -> (\w+):$", module, re.M)


@pytest.mark.parametrize(("target", "library"), [(KAFKA, "confluent_kafka"), (AMQP, "proton")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    target: dict[str, Any], library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kind,) = target
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"sterna.brokers.{kind}", raising=False)
    with pytest.raises(UsageError, match=rf"{library} is missing.*sterna\[{kind}\]"):
        open_sender(outlet(target), no_secret)


@pytest.mark.parametrize("target", [KAFKA, AMQP])
def test_a_credential_that_is_missing_is_said_before_anything_is_sent(target: dict[str, Any]) -> None:
    with pytest.raises(CredentialError, match="broker"):
        open_sender(outlet(target, "broker"), no_secret)


def test_a_kafka_is_opened_without_a_word_to_it() -> None:
    sender = open_sender(outlet(KAFKA), no_secret)
    assert type(sender).__name__ == "KafkaSender"
    sender.close()


def test_a_message_for_brokers_has_its_attributes_beside_its_data() -> None:
    about = '"specversion":"1.0","id":"a-1","datacontenttype":"application/json"'
    text = f'{{{about},"data":{{"n":"\\ud800ü","i":9007199254740993}}}}'
    attributes, body = Message("a-1", "ns.t", text.encode()).binary()
    assert attributes == {"specversion": "1.0", "id": "a-1"}
    assert body == b'{"n":"\\ud800\\u00fc","i":9007199254740993}'
