"""What becomes of an upload in eu: an event, that snapshot's figure, a user's features, and the page of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from sterna.demo.uploads import FILES, ROWS, TABLE, VIEW, Uploads, user_row
from sterna.errors import SternaError
from sterna.replication.replica.region import Progress, RegionContext
from sterna.servers.airflow import Airflow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER = 123
_MAX_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Story:
    """What eu served of the uploads, each link checked against the one before.

    Args:
        event: id of the event of the last upload's snapshot.
        snapshot: that snapshot, as text.
        figure: the named query's figure at exactly that snapshot.
        feature: the features of one user, served from the online store as of that snapshot.
        page: the address of the page that shows all of it.
    """

    event: str
    snapshot: str
    figure: dict[str, Any]
    feature: dict[str, Any]
    page: str


@dataclass
class Listener:
    """Follows the events of the uploads' table at a gateway, from before anything is posted.

    Args:
        events: what came so far.
        problem: why nothing more comes.
    """

    gateway: str
    events: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Listen in a thread, until the end of the block or the gateway's.

        Raises:
            SternaError: the gateway doesn't open a stream.
        """
        with httpx.Client(timeout=httpx.Timeout(30, read=None), trust_env=False) as client:
            request = client.build_request("GET", f"{self.gateway}/v1/events", params={"tables": TABLE})
            stream = client.send(request, stream=True)
            if stream.status_code != 200:
                raise SternaError(f"eu's gateway opens no stream of events: {stream.status_code}")
            threading.Thread(target=self._read_events, args=(stream,), name="sterna-demo-events", daemon=True).start()
            yield self

    def _read_events(self, stream: httpx.Response) -> None:
        try:
            for line in stream.iter_lines():
                if line.startswith("data:") and '"specversion"' in line:
                    self.events.append(json.loads(line.removeprefix("data:")))
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            self.problem = type(error).__name__

    def wait_for_event(self, snapshot: str) -> dict[str, Any]:
        """Wait for the event of a snapshot, and return it.

        Raises:
            SternaError: it didn't come.
        """
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while time.monotonic() < deadline:
            for event in list(self.events):
                if event.get("snapshotid") == snapshot:
                    return event
            time.sleep(0.1)
        seen = [event.get("snapshotid") for event in self.events]
        raise SternaError(f"eu sent no event of {TABLE}'s snapshot {snapshot}; of {seen} {self.problem}", table=TABLE)


def trace_upload(
    context: RegionContext,
    spark: SparkSession,
    uploads: Uploads,
    listener: Listener,
    airflow: Airflow,
    progress: Progress,
) -> Story:
    """Go from the event to the page, in eu.

    Args:
        spark: a session in which changes can be planned.
        uploads: its gateway and services file.
        listener: listened to the gateway from the beginning on.
        airflow: eu's.
        progress: called with each line of the story.

    Raises:
        SternaError: a link is missing, or differs from the one before.
    """
    gateway = uploads.urls[context.region.name]
    snapshot = _current_snapshot(context)
    event = listener.wait_for_event(snapshot)
    progress(f"eu's gateway sent an event of {TABLE}: snapshot {snapshot}")
    figure = _get_with_retry(f"{gateway}/kpi", name="uploads", snapshotId=snapshot).json()
    users = len(uploads.urls) * FILES * ROWS
    _require_equal("the figure", figure["kpi"], {"users": str(users), "first": "0", "last": str(users - 1)})
    progress(f"the query 'uploads' at exactly that snapshot: {json.dumps(figure['kpi'])}")
    feature = _read_feature(context, spark, uploads, gateway, snapshot)
    progress(f"eu serves user {USER} from its store, as of that snapshot: {json.dumps(feature)}")
    page = _check_page(airflow, event["id"], snapshot, figure["kpi"], feature)
    progress(f"eu's Airflow shows the table, the figure and the user: {page}")
    return Story(event["id"], snapshot, figure["kpi"], feature, page)


def _current_snapshot(context: RegionContext) -> str:
    from sterna.catalog.model import parse_key
    from sterna.catalog.tables import content_snapshot_id

    branch, key = context.region.replica_branch, parse_key(TABLE)
    contents = context.catalog.contents(branch, context.catalog.reference(branch).hash, [key])
    return str(content_snapshot_id(contents.get(key)))


def _read_feature(
    context: RegionContext, spark: SparkSession, uploads: Uploads, gateway: str, snapshot: str
) -> dict[str, Any]:
    from sterna.config.services_file import read_services
    from sterna.pipelines.features.materialize import materialize_view
    from sterna.pipelines.features.region import open_feature_store, require_features

    features = require_features(read_services(uploads.services), context.region.name)
    with open_feature_store(context, features) as store:
        materialized = materialize_view(context, spark, store, features, features.views_by_name[VIEW])
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    answer = _get_with_retry(f"{gateway}/features/{VIEW}/{USER}")
    while answer.headers.get("x-sterna-cache") == "bypass" and time.monotonic() < deadline:
        time.sleep(1.0)  # a store that was slow, as on a busy machine, is left alone for so long
        answer = _get_with_retry(answer.url)
    headers = (
        str(materialized.snapshot),
        answer.headers.get("x-sterna-snapshot"),
        answer.headers.get("x-sterna-cache"),
    )
    _require_equal("the features' snapshot, and where they are from", headers, (snapshot, snapshot, "hit"))
    feature: dict[str, Any] = answer.json()
    # Rows that were posted as JSON have longs, which are served as text.
    _require_equal("the features", feature, {name: str(value) for name, value in user_row(USER).items()})
    return feature


def _check_page(airflow: Airflow, event: str, snapshot: str, figure: dict[str, Any], feature: dict[str, Any]) -> str:
    """Request the page's own routes, as its scripts do."""
    token = _get_with_retry(f"{airflow.url}/auth/token").json()["access_token"]
    base, auth_headers = f"{airflow.url}/sterna", {"Authorization": f"Bearer {token}"}
    _require_equal("the page", "<html" in _get_with_retry(f"{base}/", headers=auth_headers).text.lower(), True)
    (row,) = _get_with_retry(f"{base}/api/tables/eu", search=TABLE, headers=auth_headers).json()["rows"]
    _require_equal("the page's table", (row["state"], row["snapshot"]), ("served", snapshot))
    _require_equal(
        "the page's figure", _get_with_retry(f"{base}/api/kpi", at=event, headers=auth_headers).json()["kpi"], figure
    )
    _require_equal(
        "the page's user", _get_with_retry(f"{base}/api/features/{USER}", headers=auth_headers).json(), feature
    )
    return f"{airflow.url}/plugin/sterna"


def _get_with_retry(url: str | httpx.URL, *, headers: dict[str, str] | None = None, **params: str) -> httpx.Response:
    """GET; one answered with "later" is retried for a while."""
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        with suppress(httpx.TransportError):
            response = httpx.get(url, params=params or None, headers=headers, timeout=60, trust_env=False)
            if response.status_code != 503 or time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            raise SternaError(f"{url} doesn't answer")
        time.sleep(0.5)
    if response.status_code not in (200, 201):
        raise SternaError(f"{url} answers {response.status_code}: {response.text[:200]}")
    return response


def _require_equal(subject: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise SternaError(f"{subject}: {actual}, expected {expected}")
