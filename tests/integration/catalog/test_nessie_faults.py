"""What a failing Nessie, or a failing network before it, becomes: one error of ours each, and no change sent twice."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sterna.catalog.model import Unchanged
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import Deadlines, NessieAuth
from sterna.errors import (
    BranchChanged,
    CatalogConflict,
    CatalogDenied,
    CatalogError,
    CatalogRefused,
    CatalogStateUnknown,
    CatalogUnreachable,
    CredentialError,
    ReferenceNotFound,
    RegistryError,
)
from tests.support.doubles.http_server import (
    Behaviour,
    ScriptedServer,
    answer,
    drip,
    half_answer,
    hang,
    reset,
    scripted_server,
)

HASH, NEXT, OTHER = "11" * 32, "22" * 32, "33" * 32
SECRET = "canary-9f2c"
CONFIG = {"defaultBranch": "main", "noAncestorHash": "00" * 32}
REFERENCE = {"reference": {"type": "BRANCH", "name": "main", "hash": HASH}}
COMMITTED = {"targetBranch": {"type": "BRANCH", "name": "main", "hash": NEXT}}
DEADLINES = Deadlines(attempts=3, backoff=0.01)
SHORT_DEADLINES = {
    hang: Deadlines(read=1.5, total=30.0, attempts=3, backoff=0.01),
    drip: Deadlines(read=0.5, total=1.5, attempts=3, backoff=0.01),
}


def problem(status: int, code: str, message: str = "why") -> Behaviour:
    return answer(status, {"status": status, "reason": "Some", "message": message, "errorCode": code})


def log(hash: str, parent: str) -> Behaviour:
    meta = {"hash": hash, "message": "m", "authors": ["sterna"], "commitTime": "2026-01-02T03:04:05Z"}
    return answer(200, {"logEntries": [{"commitMeta": meta, "parentCommitHash": parent}], "hasMore": False})


@contextmanager
def scripted_catalog(
    *behaviours: Behaviour, auth: NessieAuth | None = None
) -> Iterator[tuple[NessieCatalog, ScriptedServer]]:
    deadlines = next(
        (SHORT_DEADLINES[behaviour] for behaviour in behaviours if behaviour in SHORT_DEADLINES), DEADLINES
    )
    with (
        scripted_server(*behaviours) as server,
        NessieCatalog(f"{server.uri}/api/v2", auth, deadlines=deadlines) as catalog,
    ):
        yield catalog, server


def read(catalog: NessieCatalog) -> object:
    return catalog.reference("main")


def commit(catalog: NessieCatalog) -> str:
    return catalog.commit("main", HASH, [Unchanged(("a",))], "a test")


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


TRANSIENT = [
    pytest.param(answer(503, "busy", "text/plain"), id="503"),
    pytest.param(answer(502, "<html>", "text/html"), id="502"),
    pytest.param(answer(504, ""), id="504"),
    pytest.param(problem(429, "TOO_MANY_REQUESTS"), id="429"),
    pytest.param(reset, id="reset"),
    pytest.param(half_answer(200, REFERENCE), id="half an answer"),
    pytest.param(hang, id="no answer"),
    pytest.param(drip, id="an answer without end"),
]
CLEAR = [
    pytest.param(problem(400, "BAD_REQUEST"), CatalogRefused, id="400"),
    pytest.param(problem(422, "UNKNOWN"), CatalogRefused, id="422"),
    pytest.param(answer(401, ""), CatalogDenied, id="401"),
    pytest.param(answer(403, "no", "text/plain"), CatalogDenied, id="403"),
    pytest.param(problem(403, "FORBIDDEN"), CatalogDenied, id="403 of Nessie"),
    pytest.param(answer(404, "<html>not here", "text/html"), CatalogRefused, id="404 of a proxy"),
    pytest.param(problem(404, "CONTENT_NOT_FOUND"), CatalogRefused, id="content not found"),
    pytest.param(problem(404, "NAMESPACE_NOT_FOUND"), CatalogRefused, id="namespace not found"),
    pytest.param(problem(415, "UNSUPPORTED_MEDIA_TYPE"), CatalogRefused, id="415"),
    pytest.param(answer(302, ""), CatalogRefused, id="a redirect, which is not followed"),
]


# Reading


# Without the last one: an answer without end uses up the time for all attempts.
@pytest.mark.parametrize("fault", TRANSIENT[:-1])
def test_a_read_is_repeated_until_it_succeeds(fault):
    with scripted_catalog(fault, answer(200, REFERENCE)) as (catalog, server):
        assert catalog.reference("main").hash == HASH
        assert len(server.requests) == 2


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_read_is_not_repeated_for_ever(fault):
    with scripted_catalog(fault) as (catalog, server):
        with pytest.raises(CatalogUnreachable, match=server.uri):
            read(catalog)
        assert 1 <= len(server.requests) <= DEADLINES.attempts


def test_a_read_of_a_server_that_is_not_there():
    with (
        NessieCatalog(f"http://127.0.0.1:{closed_port()}/api/v2", deadlines=DEADLINES) as catalog,
        pytest.raises(CatalogUnreachable),
    ):
        read(catalog)


def test_an_error_of_the_server_itself_is_for_a_later_run():
    with scripted_catalog(problem(500, "UNKNOWN")) as (catalog, server):
        with pytest.raises(CatalogUnreachable, match="UNKNOWN why"):
            read(catalog)
        assert len(server.requests) == DEADLINES.attempts
    with scripted_catalog(problem(500, "UNKNOWN"), answer(200, REFERENCE)) as (catalog, server):
        assert catalog.reference("main").hash == HASH


@pytest.mark.parametrize(("fault", "error"), CLEAR)
@pytest.mark.parametrize("call", [read, commit])
def test_a_clear_no_is_not_repeated(
    fault: Behaviour, error: type[CatalogError], call: Callable[[NessieCatalog], object]
):
    with scripted_catalog(fault) as (catalog, server):
        with pytest.raises(CatalogError) as caught:
            call(catalog)
        assert type(caught.value) is error
        assert len(server.requests) == 1


def test_an_unknown_reference():
    listed = answer(200, {"references": [REFERENCE["reference"]], "hasMore": False})
    with (
        scripted_catalog(problem(404, "REFERENCE_NOT_FOUND"), listed) as (catalog, _),
        pytest.raises(ReferenceNotFound, match="there are: main"),
    ):
        catalog.reference("mian")


@pytest.mark.parametrize(
    "body", ["<html>log in here", "", "[1]", '{"reference":', "null", '{"reference": {"type": "X"}}', "{}"]
)
def test_an_answer_that_is_not_nessies(body):
    with scripted_catalog(answer(200, body)) as (catalog, _), pytest.raises(CatalogRefused, match="API v2"):
        read(catalog)


# Committing


def test_a_commit_is_sent_once_and_read_back():
    with scripted_catalog(answer(200, COMMITTED), log(NEXT, HASH)) as (catalog, server):
        assert commit(catalog) == NEXT
        assert [method for method, _, _ in server.requests] == ["POST", "GET"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset, id="reset"),
        pytest.param(half_answer(200, COMMITTED), id="half an answer"),
        pytest.param(hang, id="no answer"),
        pytest.param(drip, id="an answer without end"),
        pytest.param(problem(500, "UNKNOWN"), id="500"),
        pytest.param(answer(502, "<html>", "text/html"), id="502"),
        pytest.param(problem(503, "UNKNOWN"), id="503"),
        pytest.param(answer(504, ""), id="504"),
        pytest.param(answer(200, "<html>log in here", "text/html"), id="not JSON"),
    ],
)
def test_a_commit_without_a_clear_answer_is_unknown_and_not_repeated(fault):
    with scripted_catalog(fault) as (catalog, server):
        with pytest.raises(CatalogStateUnknown, match="may have happened"):
            commit(catalog)
        assert len(server.requests) == 1


@pytest.mark.parametrize("readback", [answer(500, ""), reset, answer(200, {"logEntries": [], "hasMore": False})])
def test_a_commit_that_cant_be_read_back_is_unknown(readback):
    with scripted_catalog(answer(200, COMMITTED), readback) as (catalog, _), pytest.raises(CatalogStateUnknown):
        commit(catalog)


def test_a_commit_that_was_never_sent():
    with (
        NessieCatalog(f"http://127.0.0.1:{closed_port()}/api/v2", deadlines=DEADLINES) as catalog,
        pytest.raises(CatalogUnreachable),
    ):
        commit(catalog)


def test_a_commit_that_the_server_is_too_busy_for():
    with scripted_catalog(problem(429, "TOO_MANY_REQUESTS")) as (catalog, server):
        with pytest.raises(CatalogUnreachable):
            commit(catalog)
        assert len(server.requests) == 1


def test_a_conflict_names_the_head_that_came_first():
    moved = answer(200, {"reference": {**REFERENCE["reference"], "hash": OTHER}})
    with (
        scripted_catalog(problem(409, "REFERENCE_CONFLICT"), moved) as (catalog, _),
        pytest.raises(CatalogConflict, match=OTHER),
    ):
        commit(catalog)


def test_a_conflict_on_an_unmoved_head_is_a_refusal():
    with (
        scripted_catalog(problem(409, "REFERENCE_CONFLICT", "Namespace 'x' must exist."), answer(200, REFERENCE)) as (
            catalog,
            _,
        ),
        pytest.raises(CatalogRefused, match="must exist"),
    ):
        commit(catalog)


def test_a_conflict_stays_one_when_the_head_cant_be_read():
    with scripted_catalog(problem(409, "REFERENCE_CONFLICT"), reset) as (catalog, _), pytest.raises(CatalogConflict):
        commit(catalog)


def test_a_commit_to_a_branch_that_is_gone():
    with scripted_catalog(problem(404, "REFERENCE_NOT_FOUND")) as (catalog, _), pytest.raises(ReferenceNotFound):
        commit(catalog)


def test_a_server_that_does_not_compare_and_swap_is_found_out():
    with (
        scripted_catalog(answer(200, COMMITTED), log(NEXT, OTHER)) as (catalog, _),
        pytest.raises(BranchChanged, match=OTHER),
    ):
        commit(catalog)


def test_a_commit_that_depends_on_its_keys_alone_is_not_read_back():
    with scripted_catalog(answer(200, COMMITTED)) as (catalog, server):
        assert catalog.commit("main", HASH, [Unchanged(("a",))], "a test", existing={("a",): None}) == NEXT
        assert len(server.requests) == 1


def test_an_accepted_commit_whose_answer_is_none_may_have_happened():
    with scripted_catalog(answer(200, {"targetBranch": None})) as (catalog, _), pytest.raises(CatalogStateUnknown):
        catalog.commit("main", HASH, [Unchanged(("a",))], "a test", existing={("a",): None})


def test_creating_a_branch_is_not_repeated():
    with scripted_catalog(answer(200, CONFIG), reset) as (catalog, server):
        with pytest.raises(CatalogStateUnknown):
            catalog.create_branch("b")
        assert len(server.requests) == 2


# Secrets and addresses


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (NessieAuth(), None),
        (NessieAuth("bearer", secret=SECRET), f"Bearer {SECRET}"),
        (NessieAuth("basic", "ünal", f"{SECRET}:☃"), "Basic " + base64.b64encode(f"ünal:{SECRET}:☃".encode()).decode()),
    ],
)
def test_every_request_is_authenticated(auth, header):
    with scripted_catalog(answer(200, REFERENCE), auth=auth) as (catalog, server):
        read(catalog)
        assert server.requests[0][2].get("authorization") == header


@pytest.mark.parametrize("auth", [NessieAuth("bearer", secret=SECRET), NessieAuth("basic", "user", SECRET)])
@pytest.mark.parametrize(
    "fault", [answer(401, SECRET), answer(500, f"<p>{SECRET}"), reset, problem(400, "BAD_REQUEST")]
)
def test_no_error_shows_a_secret(auth, fault):
    assert SECRET not in repr(auth)
    with scripted_catalog(fault, auth=auth) as (catalog, _):
        with pytest.raises(CatalogError) as caught:
            commit(catalog)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "user", "secret"),
    [
        ("bearer", "", ""),
        ("bearer", "", f"{SECRET}\n"),
        ("bearer", "", f"{SECRET}é"),
        ("basic", "", SECRET),
        ("basic", "a:b", SECRET),
    ],
)
def test_a_credential_that_cant_be_sent_is_refused_unseen(kind, user, secret):
    with pytest.raises(CredentialError) as caught:
        NessieAuth(kind, user, secret)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        f"http://user:{SECRET}@host/api/v2",
        f"https://host/api/v2?token={SECRET}",
        f"https://host/#{SECRET}",
        "ftp://host/x",
        "host:1",
        "",
    ],
)
def test_an_address_that_is_none_is_refused(uri):
    with pytest.raises(RegistryError) as caught:
        NessieCatalog(uri)
    assert SECRET not in str(caught.value)
