"""A restore that brings old marks back stops ingestion's channels, until an operator says what is to become of each."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sterna.config.sections.topics import SourceTopic
from sterna.errors import UsageError
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.model import Destination, State
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.replay import replay_rewound
from sterna.servers.process import LOOPBACK
from tests.integration.ingest.test_topics import reading
from tests.integration.ingest.test_worker import WorkerFixture, create, room
from tests.support.ingest import destination
from tests.support.kafka_topics import put
from tests.support.receivers import KafkaReceiver, make_topic

__all__ = ["room"]


def waiting(room: WorkerFixture) -> dict[str, str]:
    """The first word of why each channel's batches wait."""
    batches = room.door.tracker.list_batches(state=State.CLOSED)
    return {batch.destination.channel: batch.reason.partition(":")[0] for batch in batches}


def decide(room: WorkerFixture, channel: Destination, last_kept: int, *, accept: bool = False) -> tuple[str, ...]:
    pool, catalog = room.door.pool, room.step_context.catalog
    return replay_rewound(pool, catalog, channel, last_kept, accept=accept, apply=True).batches


def reads_topic(room: WorkerFixture, broker: KafkaReceiver, monkeypatch: pytest.MonkeyPatch) -> RegionIngest:
    """Ingestion in eu that reads a topic of its own into the table."""
    login = {"conn_type": "kafka", "login": broker.credential.login, "password": broker.credential.password}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps(login))
    topic = SourceTopic.model_validate(
        {
            "servers": [f"{LOOPBACK}:{broker.broker.port}"],
            "tls": False,
            "name": room.namespace.replace("_", "-"),
            "region": "eu",
            "into": room.key(),
        }
    )
    make_topic(broker.admin, topic.topic_name, 1)
    return replace(room.ingest, settings=room.ingest.settings.model_copy(update={"topics": [topic]}))


def test_a_restored_table_stops_ingestion_and_a_topic_until_an_operator_decides(
    room: WorkerFixture, broker: KafkaReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(room)
    ingest = reads_topic(room, broker, monkeypatch)
    (topic,) = ingest.topics
    reader = reading(ingest)
    uploads, topic_channel = destination(room.key()), reader.positions.destination(0)

    def produced(id: int) -> None:
        put(broker, topic.topic_name, {"id": id})
        assert any(reader.poll(0.2) for _ in range(200)), reader.problems

    def sent(*ids: int) -> None:
        for id in ids:
            room.send({"id": id})
            room.close()

    sent(1, 2)
    room.work()
    had = room.commits()[0]
    sent(3)
    produced(10)
    room.close()
    room.work()
    assert room.rows("id") == [(1,), (2,), (3,), (10,)]
    report = room.world.restore(had, room.key(), over=True)
    assert report.tables[0].rewinds == (uploads.channel, topic_channel.channel)
    sent(4)
    produced(11)
    room.close()
    assert room.work() == []
    assert waiting(room) == {uploads.channel: "Rewound", topic_channel.channel: "Rewound"}
    assert room.rows("id") == [(1,), (2,)]
    # Again for the topic, of which the table has nothing any more; what was uploaded stays away.
    assert len(decide(room, topic_channel, 0)) == 1
    assert [outcome.number for outcome in room.work()] == [1, 2]
    assert waiting(room) == {uploads.channel: "Rewound"}
    assert len(decide(room, uploads, 2, accept=True)) == 1
    room.work()
    assert room.rows("id") == [(1,), (2,), (4,), (10,), (11,)]
    positions = AppliedPositions(room.context)
    assert [positions(room.key(), it.channel) for it in (uploads, topic_channel)] == [4, 2]
    # Once decided, there is nothing to decide, and nothing comes twice.
    with pytest.raises(UsageError):
        decide(room, topic_channel, 2)
    sent(5)
    produced(12)
    room.close()
    room.work()
    reader.close()
    assert room.rows("id") == [(1,), (2,), (4,), (5,), (10,), (11,), (12,)]
    assert waiting(room) == {}


def test_what_a_restore_took_away_comes_again_on_a_word(room: WorkerFixture) -> None:
    """The table was dropped, and comes back as it was before its last batches."""
    create(room)
    commits = []
    for id in (1, 2, 3):
        room.send({"id": id})
        room.close()
        room.work()
        commits.append(room.commits()[0])
    room.world.sql(f"DROP TABLE {room.name()}")
    channel = destination(room.key())
    report = room.world.restore(commits[0], room.key())
    assert (report.tables[0].rewinds, report.kept_on) == ((channel.channel,), "")
    room.send({"id": 4})
    room.close()
    assert room.work() == [] and waiting(room) == {channel.channel: "Rewound"}
    assert len(decide(room, channel, 1)) == 2
    assert [outcome.number for outcome in room.work()] == [2, 3, 4]
    assert room.rows("id") == [(1,), (2,), (3,), (4,)]
