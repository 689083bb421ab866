"""What becomes of an upload in eu: an event, that snapshot's figure, a user's features, and the page of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from sterna.demo.uploads import FILES, ROWS, TABLE, VIEW, Uploads, user_of
from sterna.embedded.airflow import Airflow
from sterna.errors import SternaError
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
USER = 123
_PATIENCE = 60.0


@dataclass(frozen=True)
class Story:
    """What eu told of the uploads, each link checked against the one before.

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
        gateway: its address.
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
            threading.Thread(target=self._read, args=(stream,), name="sterna-demo-events", daemon=True).start()
            yield self

    def _read(self, stream: httpx.Response) -> None:
        try:
            for line in stream.iter_lines():
                if line.startswith("data:") and '"specversion"' in line:
                    self.events.append(json.loads(line.removeprefix("data:")))
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            self.problem = type(error).__name__

    def event_of(self, snapshot: str) -> dict[str, Any]:
        """Wait for the event that tells of a snapshot, and return it.

        Raises:
            SternaError: it didn't come.
        """
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            for event in list(self.events):
                if event.get("snapshotid") == snapshot:
                    return event
            time.sleep(0.1)
        seen = [event.get("snapshotid") for event in self.events]
        raise SternaError(f"eu told no event of {TABLE}'s snapshot {snapshot}; of {seen} {self.problem}", table=TABLE)


def follow_story(
    context: RegionContext, spark: SparkSession, uploads: Uploads, listener: Listener, airflow: Airflow, say: Say
) -> Story:
    """Go from the event to the page, in eu.

    Args:
        context: eu.
        spark: a session in which changes can be planned.
        uploads: its gateway and services file.
        listener: listened to the gateway from the beginning on.
        airflow: eu's.
        say: called with each line of the story.

    Raises:
        SternaError: a link is missing, or doesn't say what the one before does.
    """
    gateway = uploads.urls[context.region.name]
    snapshot = _shown(context)
    event = listener.event_of(snapshot)
    say(f"eu's gateway told an event of {TABLE}: snapshot {snapshot}")
    figure = _asked(f"{gateway}/kpi", name="uploads", snapshotId=snapshot).json()
    users = len(uploads.urls) * FILES * ROWS
    _same("the figure", figure["kpi"], {"users": str(users), "first": "0", "last": str(users - 1)})
    say(f"the query 'uploads' at exactly that snapshot: {json.dumps(figure['kpi'])}")
    feature = _feature(context, spark, uploads, gateway, snapshot)
    say(f"eu serves user {USER} from its store, as of that snapshot: {json.dumps(feature)}")
    page = _page(airflow, event["id"], snapshot, figure["kpi"], feature)
    say(f"eu's Airflow shows the table, the figure and the user: {page}")
    return Story(event["id"], snapshot, figure["kpi"], feature, page)


def _shown(context: RegionContext) -> str:
    from sterna.catalog.model import parse_key
    from sterna.replica.news import snapshot_of

    branch, key = context.region.replica_branch, parse_key(TABLE)
    found = context.catalog.contents(branch, context.catalog.reference(branch).hash, [key])
    return str(snapshot_of(found.get(key)))


def _feature(
    context: RegionContext, spark: SparkSession, uploads: Uploads, gateway: str, snapshot: str
) -> dict[str, Any]:
    from sterna.edges.services_file import read_services
    from sterna.features.materialize import materialize
    from sterna.features.region import features_of, opened_store

    features = features_of(read_services(uploads.services), context.region.name)
    with opened_store(context, features) as store:
        made = materialize(context, spark, store, features, features.by_name[VIEW])
    end = time.monotonic() + _PATIENCE
    answer = _asked(f"{gateway}/features/{VIEW}/{USER}")
    while answer.headers.get("x-sterna-cache") == "bypass" and time.monotonic() < end:
        time.sleep(1.0)  # a store that was slow, as on a busy machine, is left alone for so long
        answer = _asked(answer.url)
    told = (str(made.snapshot), answer.headers.get("x-sterna-snapshot"), answer.headers.get("x-sterna-cache"))
    _same("the features' snapshot, and where they are from", told, (snapshot, snapshot, "hit"))
    found: dict[str, Any] = answer.json()
    # Rows that were posted as JSON have longs, which are told as text.
    _same("the features", found, {name: str(value) for name, value in user_of(USER).items()})
    return found


def _page(airflow: Airflow, event: str, snapshot: str, figure: dict[str, Any], feature: dict[str, Any]) -> str:
    """Ask the page's own routes what it shows, as its scripts do."""
    token = _asked(f"{airflow.url}/auth/token").json()["access_token"]
    base, seen = f"{airflow.url}/sterna", {"Authorization": f"Bearer {token}"}
    _same("the page", "<html" in _asked(f"{base}/", headers=seen).text.lower(), True)
    (row,) = _asked(f"{base}/api/tables/eu", search=TABLE, headers=seen).json()["rows"]
    _same("the page's table", (row["state"], row["snapshot"]), ("served", snapshot))
    _same("the page's figure", _asked(f"{base}/api/kpi", at=event, headers=seen).json()["kpi"], figure)
    _same("the page's user", _asked(f"{base}/api/features/{USER}", headers=seen).json(), feature)
    return f"{airflow.url}/plugin/sterna"


def _asked(url: str | httpx.URL, *, headers: dict[str, str] | None = None, **params: str) -> httpx.Response:
    """GET; one that says "later" is asked again for a while."""
    end = time.monotonic() + _PATIENCE
    while True:
        with suppress(httpx.TransportError):
            answer = httpx.get(url, params=params or None, headers=headers, timeout=60, trust_env=False)
            if answer.status_code != 503 or time.monotonic() > end:
                break
        if time.monotonic() > end:
            raise SternaError(f"{url} doesn't answer")
        time.sleep(0.5)
    if answer.status_code not in (200, 201):
        raise SternaError(f"{url} answers {answer.status_code}: {answer.text[:200]}")
    return answer


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise SternaError(f"{what}: {found}, expected {expected}")
