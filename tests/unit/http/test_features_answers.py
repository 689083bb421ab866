"""What a gateway says of features, over a replica whose rows stand here.

Of this kind is all that a client can't tell apart, or can't ask for: an id that a path cuts, a past that isn't over.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sterna.concurrency.cancellation import Stop
from sterna.config.sections.features import FeatureView
from sterna.config.sections.load import parse_services
from sterna.pipelines.features.online import SourceRows
from sterna.serving.http.features_source import ReplicaRows
from tests.support.http_server import Branch, Running, gateway

FEATURES = {
    "entities": [
        {"name": "page", "key": {"path": "string"}},
        {"name": "user", "key": {"user_id": "long"}},
        {"name": "visit", "key": {"user_id": "long", "path": "string", "n": "int"}},
    ],
    "views": [
        {"name": "page", "entity": "page", "table": "ns.a", "features": ["hits", "title"], "unique": True},
        {
            "name": "seen",
            "entity": "page",
            "table": "ns.a",
            "features": ["score"],
            "event_time": "at",
            "max_age": "1h",
        },
        {"name": "visit", "entity": "visit", "table": "ns.a", "features": ["seconds"], "unique": True},
        {"name": "user", "entity": "user", "table": "ns.a", "features": ["age"], "unique": True},
    ],
    "services": [{"name": "all", "features": ["page.hits", "seen.score", "page.title"]}],
}
IDS = ["a", "/a/b", "a/b/", "a//b", "é/1?x=1&y#z%2F", "/"]


@functools.cache
def now() -> datetime:
    """When the first of these tests began: a module is imported long before, in a long run."""
    return datetime.now(UTC)


def at(hours: float) -> str:
    return (now() - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def rows() -> dict[str, dict[str, list[Any]]]:
    return {
        "page": {**{id: [number, id] for number, id in enumerate(IDS)}, "bare": [None, None], "old": [7, "o"]},
        "seen": {"a": [0.5, at(0.5)], "bare": [None, at(0.1)], "old": [1.5, at(3)], "/": [2.5, None]},
        "user": {"1": [30]},
        "visit": {'["1","/a/b","2"]': [5]},
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    def read(
        replica: ReplicaRows, view: FeatureView, ids: Sequence[str], table_snapshot: object, stop: Stop
    ) -> SourceRows:
        present = rows()[view.name]
        return SourceRows(7, 1, {id: present[id] for id in ids if id in present})

    branch = Branch(tmp_path_factory.mktemp("features"))
    branch.update("a")
    services = parse_services(json.dumps({"version": 1, "features": FEATURES}), "s.yaml")
    with pytest.MonkeyPatch.context() as patch, gateway(branch, services, only=["features"]) as running:
        patch.setattr(ReplicaRows, ReplicaRows.find_snapshot.__name__, lambda *_: "found")
        patch.setattr(ReplicaRows, ReplicaRows.read_rows.__name__, read)
        yield running


def asked(running: Running, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{running.url}/v1/features", json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("id", IDS)
def test_an_id_may_have_any_letters(told: Running, id: str) -> None:
    answer = httpx.get(f"{told.url}/features/page/{quote(id, safe='')}")
    assert answer.json() == {"path": id, "hits": IDS.index(id), "title": id}
    (row,) = asked(told, service="all", entities=[{"path": id}])["rows"]
    assert row["page.title"] == id


@pytest.mark.parametrize("query", ["as_of=", "as_of=1&as_of=2", "as_of=1&as_of="])
def test_a_past_is_asked_for_once_and_by_a_value(told: Running, query: str) -> None:
    """A variable of a client that is empty would ask for today's rows, and put the future into training data."""
    for answer in (
        httpx.get(f"{told.url}/features/page/a?{query}"),
        httpx.post(f"{told.url}/v1/features?{query}", json={"service": "all", "entities": [{"path": "a"}]}),
    ):
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("as_of: expected once")


def test_a_time_that_is_still_to_come_has_no_answer_that_stays(told: Running) -> None:
    soon = quote((now() + timedelta(hours=1)).isoformat())
    for answer in (
        httpx.get(f"{told.url}/features/page/a?as_of={soon}"),
        httpx.post(f"{told.url}/v1/features?as_of={soon}", json={"service": "all", "entities": [{"path": "a"}]}),
    ):
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("as_of: that time is still to come: here it is 2")
    assert httpx.get(f"{told.url}/features/page/a?as_of={quote(now().isoformat())}").status_code == 200


def test_a_null_tells_why_and_since_when(told: Running) -> None:
    ids = ["a", "bare", "old", "/", "none"]
    answer = asked(told, service="all", entities=[{"path": id} for id in ids], statuses=True)
    names = ("page.hits", "seen.score", "page.title")
    expected = {
        "a": ("present", "present", "present"),
        "bare": ("null", "null", "null"),
        "old": ("present", "too_old", "present"),
        "/": ("present", "too_old", "present"),
        "none": ("not_found", "not_found", "not_found"),
    }
    assert answer["statuses"] == [dict(zip(names, expected[id], strict=True)) for id in ids]
    times = {"a": at(0.5), "bare": at(0.1), "old": at(3), "/": None, "none": None}
    assert [timestamps["seen.score"] for timestamps in answer["event_timestamps"]] == [times[id] for id in ids]
    assert {timestamps["page.hits"] for timestamps in answer["event_timestamps"]} == {None}, (
        "the view has no event time"
    )
    for row, statuses in zip(answer["rows"], answer["statuses"], strict=True):
        assert all((row[name] is not None) == (statuses[name] == "present") for name in names)
    plain = asked(told, service="all", entities=[{"path": id} for id in ids])
    assert plain == {name: answer[name] for name in ("rows", "found", "snapshots")}, "as it was before"


def test_features_are_asked_for_without_a_service(told: Running) -> None:
    answer = asked(told, features=["seen.score", "page.hits"], entities=[{"path": "a"}])
    assert answer["rows"] == [{"path": "a", "seen.score": 0.5, "page.hits": 0}]
    entities = [{"path": "a"}]
    for status, detail, body in (
        (400, "expected one of", {"features": ["page.hits"], "service": "all"}),
        (400, "features: expected a list", {"features": []}),
        (400, "features: expected a list", {"features": "page.hits"}),
        (400, "features: expected a list", {"features": ["page.hits", "page.hits"]}),
        (400, "features: expected a list", {"features": ["page.hits"] * 201}),
        (400, "features: expected those of one entity", {"features": ["page.hits", "user.age"]}),
        (400, "statuses: expected", {"features": ["page.hits"], "statuses": "yes"}),
        (400, "expected service or features", {"features": ["page.hits"], "x": 1}),
        (404, "There is no such feature.", {"features": ["page.hits", "page.at"]}),
        (404, "There is no such feature.", {"features": ["seen.at"]}),
        (404, "There is no such feature.", {"features": [7]}),
        (404, "There is no such feature.", {"features": [["page.hits"]]}),
        (404, "There is no such feature.", {"features": ["page"]}),
        (404, "There is no such service.", {}),
    ):
        assert asked(told, status, **body, entities=entities)["detail"].startswith(detail), body


def test_a_key_of_several_columns_is_a_segment_each_or_an_object(told: Running) -> None:
    row = {"user_id": "1", "path": "/a/b", "n": 2}
    answer = httpx.get(f"{told.url}/features/visit/1/%2Fa%2Fb/2")
    assert (answer.status_code, answer.json()) == (200, {**row, "seconds": 5})
    body = asked(told, features=["visit.seconds"], entities=[{"n": 2, "path": "/a/b", "user_id": 1}, {**row, "n": 3}])
    assert body["rows"] == [{**row, "visit.seconds": 5}, {**row, "n": 3, "visit.seconds": None}]
    as_pages_ask = asked(told, features=["visit.seconds"], entities=[{"user_id": "1", "path": "..", "n": "2"}])
    assert as_pages_ask["rows"] == [{"user_id": "1", "path": "..", "n": 2, "visit.seconds": None}]
    for path, status, detail in (
        ("1/%2Fa%2Fb/3", 404, "Visit 1, /a/b, 3 not found."),
        ("1/%2Fa%2Fb/two", 400, "n: expected a whole number of 32 bits"),
        ("1//a/b/2", 400, "expected user_id/path/n behind the view"),
        ("1/2", 400, "expected user_id/path/n behind the view"),
        ("7", 400, "expected user_id/path/n behind the view"),
    ):
        answer = httpx.get(f"{told.url}/features/visit/{path}")
        assert (answer.status_code, answer.json()["detail"]) == (status, detail), path
    detail = "entities: expected objects with user_id and path and n alone"
    assert asked(told, 400, features=["visit.seconds"], entities=[{"user_id": 1, "n": 2}])["detail"] == detail
