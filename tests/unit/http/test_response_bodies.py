"""What a producer is told of its drops, and OpenAPI's examples, which are bodies as they are sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload
from sterna.pipelines.ingest.tracker import ChannelState
from sterna.serving.http import events_responses, features_responses, ingest_responses
from sterna.serving.http.features_responses import features_error
from sterna.serving.http.ingest_responses import AcceptedBody, BatchesBody, ChannelBody, UploadStatus, UploadStatusBody

TIME = datetime(2026, 11, 22, 10, 0, 0, 120_000, UTC)
DESTINATION = Destination("acme", "acme.events", "eu.acme.default")
UPLOAD = Upload("5d", DESTINATION, "key", "", Format.JSON_LINES, 42, 2, "digest", "s3://b/o", TIME)
BATCH = Batch("7d", DESTINATION, 17, State.CLOSED, 500, 21_000, 1000, TIME, "files", TIME, 8744736658442914487)
UPLOAD_JSON = {
    "id": "5d",
    "table": "acme.events",
    "channel": "eu.acme.default",
    "partition": None,
    "offset": None,
    "format": "json",
    "rows": 2,
    "bytes": 42,
    "accepted": "2026-11-22T10:00:00.120000Z",
    "state": "buffered",
    "batch": None,
    "served": {},
}
BATCH_JSON = {
    "id": "7d",
    "tenant": "acme",
    "table": "acme.events",
    "channel": "eu.acme.default",
    "partition": None,
    "number": 17,
    "state": "closed",
    "files": 500,
    "rows": 1000,
    "bytes": 21_000,
    "oldest": "2026-11-22T10:00:00.120000Z",
    "closed": "2026-11-22T10:00:00.120000Z",
    "closed_by": "files",
    "settled": None,
    "snapshotid": "8744736658442914487",
    "commit": None,
    "reason": None,
    "attempts": 0,
}
RESPONSES = [
    pytest.param(response, id=f"{module.__name__.rpartition('.')[2]}.{name}.{status}")
    for module in (events_responses, features_responses, ingest_responses)
    for name, responses in vars(module).items()
    if name.endswith("_RESPONSES")
    for status, response in responses.items()
    if "model" in response
]


def test_drops_batches_and_channels_keep_their_fields_and_the_order_of_these() -> None:
    waiting = AcceptedBody.model_validate(UploadStatus(UPLOAD, repeated=True)).model_dump_json()
    assert list(json.loads(waiting).items()) == [*UPLOAD_JSON.items(), ("repeated", True)]
    status = UploadStatus(UPLOAD, BATCH, {"eu": TIME, "us": None})
    published = json.loads(UploadStatusBody.model_validate(status).model_dump_json())
    assert list(published.items()) == list(
        (UPLOAD_JSON | {"batch": BATCH_JSON, "served": {"eu": "2026-11-22T10:00:00.120000Z", "us": None}}).items()
    )
    assert list(published["batch"]) == list(BATCH_JSON)
    batches = BatchesBody.model_validate({"region": "eu", "batches": [BATCH]})
    assert json.loads(batches.model_dump_json()) == {"region": "eu", "batches": [BATCH_JSON]}
    states = [ChannelState("acme.events", "1042", "", 3, 2)]
    assert json.loads(ChannelBody.model_validate({"channel": "c", "tables": states}).model_dump_json()) == {
        "channel": "c",
        "tables": [{"table": "acme.events", "accepted_offset": "1042", "settled_offset": None, "drops": 3}],
    }


@pytest.mark.parametrize("response", RESPONSES)
def test_an_example_is_a_body_as_its_schema_has_it(response: dict[str, Any]) -> None:
    schema = TypeAdapter(response["model"]).json_schema(mode="serialization")
    Draft202012Validator(schema).validate(response["content"]["application/json"]["example"])


def test_an_error_s_example_is_what_the_error_answers() -> None:
    example = features_responses.ENTITY_RESPONSES[404]["content"]["application/json"]["example"]
    answer = features_error(404, "User 123 not found.").response(example["request_id"])
    assert example == json.loads(bytes(answer.body)) and example["detail"] == "User 123 not found."
