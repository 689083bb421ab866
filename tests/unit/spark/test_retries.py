"""Requests to a Spark Connect server are retried from a job's first one on, whatever became of the job before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from sterna.errors import EngineError
from sterna.spark.session import Session, map_items


class Unavailable(PySparkException):  # type: ignore[misc, unused-ignore]
    """What Spark Connect's client raises once its retries are used up."""

    def getGrpcStatusCode(self) -> Any:
        return SimpleNamespace(name="UNAVAILABLE")


class GoneServer:
    """A session at a server that is gone: counts the policies by which each kind of request is retried."""

    def __init__(self) -> None:
        self.policies: list[Any] = []
        self.requests: list[tuple[str, int]] = []
        self.client = SimpleNamespace(set_retry_policies=self._set_policies)
        self.conf = SimpleNamespace(get=self._get, set=lambda *_: None, unset=self._unset)

    def _set_policies(self, policies: list[Any]) -> None:
        self.policies = policies

    def _get(self, name: str, default: Any = None) -> Any:
        self.requests.append(("set-up", len(self.policies)))
        return default

    def _unset(self, name: str) -> None:
        self.requests.append(("clean-up", len(self.policies)))

    def addTag(self, tag: str) -> None:
        pass

    removeTag = interruptTag = addTag

    def createDataFrame(self, table: Any) -> Any:
        self.requests.append(("job", len(self.policies)))
        raise Unavailable("failed to connect to all addresses")


def test_the_job_after_one_whose_server_was_gone_is_retried_from_its_set_up_on() -> None:
    server: Any = GoneServer()
    session = Session(server, "sc://spark", connect=True, owned=False, slots=1, environment={})
    for _ in range(2):
        server.requests.clear()
        with pytest.raises(EngineError):
            map_items(session, str, ["a"])
        assert set(server.requests) == {("set-up", 1), ("job", 1), ("clean-up", 0)}
