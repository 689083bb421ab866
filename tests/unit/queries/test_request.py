"""What requests are understood as, and which are refused before anything is looked up."""

from __future__ import annotations

import pytest

from sterna.config.sections.queries import NamedQueries
from sterna.errors import BadRequest, NoSuchQuery
from sterna.serving.queries.request import CommitPin, Question, SnapshotPin, parse_request

SQL = "SELECT sum(price) AS total FROM db.fact_events"
QUERIES = NamedQueries.model_validate(
    {
        "revenue": {"sql": SQL, "default": True},
        "since": {
            "sql": f"{SQL} WHERE day >= $since AND n < $n",
            "params": {"since": "date", "n": {"type": "int", "default": 3}},
        },
        "joined": {"sql": "SELECT count(*) AS n FROM a.b JOIN a.c USING (id)"},
    }
)
HASH = "ab" * 32


def asked(**params: str):
    return parse_request(QUERIES, {name: [text] for name, text in params.items()})


def test_a_request_without_a_name_means_the_default() -> None:
    request = asked(snapshotId="8744736658442914487")
    assert (request.name, request.tables) == ("revenue", (("db", "fact_events"),))
    assert request.pin == SnapshotPin(8744736658442914487) and request.params == {}


def test_parameters_are_read_by_their_types_and_defaults_stand_in() -> None:
    request = asked(name="since", since="2026-01-31", at=HASH)
    assert request.params == {"since": ("date", "2026-01-31"), "n": ("int", "3")}
    assert request.pin == CommitPin(HASH)
    assert asked(name="since", since="2026-01-31", at=f"{HASH}-7").pin == CommitPin(HASH)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Missing snapshotId parameter"),
        ({"name": "joined"}, "Missing at parameter"),
        ({"snapshotId": "1", "at": HASH}, "snapshotId and at don't go together"),
        ({"name": "joined", "snapshotId": "1"}, "the query reads several tables"),
        *(
            ({"snapshotId": text}, "is no whole number of 64 bits")
            for text in (
                "",
                "x",
                "1.0",
                "1e3",
                " 1",
                "+1",
                "٣",
                "1_0",
                "0x1",
                str(1 << 63),
                str(-(1 << 63) - 1),
                "9" * 999,
            )
        ),
        *(
            ({"at": text}, "is no cursor")
            for text in ("", "main", "AB" * 32, "ab" * 33, f"{HASH}@x", f"{HASH}/..", "٣" * 64)
        ),
        ({"snapshotId": "1", "sql": "SELECT 1"}, "unknown parameter 'sql'"),
        ({"snapshotId": "1", "Name": "revenue"}, "unknown parameter 'Name'"),
        ({"name": "since", "snapshotId": "1"}, "Missing since parameter"),
        ({"name": "since", "snapshotId": "1", "since": "x' OR 1=1"}, "since 'x' OR 1=1': expected a date"),
        ({"snapshotId": "1", "\x1b[2J" + "x" * 500: "1"}, r"unknown parameter '\x1b"),
    ],
)
def test_bad_input_is_answered(given: dict[str, str], says: str) -> None:
    with pytest.raises(BadRequest) as raised:
        asked(**given)
    assert says in raised.value.message and len(raised.value.message) < 200
    assert raised.value.message.isprintable()


def test_a_parameter_stands_there_once() -> None:
    for values in ([], ["1", "1"]):
        with pytest.raises(BadRequest, match="times"):
            parse_request(QUERIES, {"snapshotId": values})


def test_an_unknown_query_isn_t_there() -> None:
    with pytest.raises(NoSuchQuery, match="there is no query 'nope'"):
        asked(name="nope", snapshotId="1")


def test_the_digest_is_over_what_an_answer_depends_on() -> None:
    first = asked(name="since", since="2026-01-31", at=HASH)
    assert first.digest == asked(name="since", since="20260131", n="3", at=f"{HASH}-1").digest
    others = [
        asked(name="since", since="2026-01-30", at=HASH),
        asked(name="since", since="2026-01-31", n="4", at=HASH),
        asked(name="since", since="2026-01-31", at="cd" * 32),
        asked(name="since", since="2026-01-31", snapshotId="1"),
        asked(name="joined", at=HASH),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("pin", "digest"),
    [
        (CommitPin(HASH), "acbf8f8d966f5add68cd229c69c34dd937c21635"),
        (SnapshotPin(7), "5cfce731f22f09ff95d28928483712e18d9bfb63"),
    ],
)
def test_what_clients_keep_as_an_etag_stays(pin: CommitPin | SnapshotPin, digest: str) -> None:
    """Commit b5071db answered so; another digest has each client fetch all once more."""
    query = NamedQueries.model_validate({"one": {"sql": "SELECT 1", "answer": "rows"}}).by_name["one"]
    assert Question("one", query, (), {"a": ("int", "1")}, pin).digest == digest
