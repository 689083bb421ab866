"""What a MariaDB or MySQL doesn't tell of its log is never taken for good.

The kind: an answer without a row. Which databases the log leaves out: all may be followed, or none. For how long it is
kept: no alarm would come before it is purged. And when somebody has read it last: a source that nobody ever began to
read has no such time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.config.sections.cdc import CdcSource
from sterna.errors import DatabaseRefused, NotRead, UnfitSource
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.mysql import MysqlDatabase
from sterna.pipelines.cdc.run import validate_read_age

SOURCE = CdcSource.model_validate(
    {
        "name": "shop",
        "region": "eu",
        "kind": "mysql",
        "hosts": ["localhost:3306"],
        "credential_id": "shop",
        "tables": ["shop.*"],
        "into": "acme",
    }
)


class Server:
    """Answers questions as it is told to, in the order of `answers`."""

    server = "the source shop at localhost:3306"

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def query(self, statement: str) -> Any:
        answer = next(rows for start, rows in self.answers.items() if statement.strip().startswith(start))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def binlog_start_time(self, name: str) -> int:
        return 1_000


def binlog(**answers: Any) -> Any:
    server = Server({name.replace("_", " "): rows for name, rows in answers.items()})
    return MysqlDatabase(SOURCE, lambda id: SimpleNamespace(), server)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("newer", [False, True], ids=["SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"])
@pytest.mark.parametrize(
    ("rows", "fit"),
    [
        ([("b.1", 4, "", "")], True),
        ([("b.1", 4, None, None)], True),
        ([("b.1", 4, "shop,other", "")], True),
        ([("b.1", 4, "other", "")], False),
        ([("b.1", 4, "", "shop")], False),
        ([], False),
    ],
)
def test_a_log_that_may_leave_a_database_out_is_refused(rows: list[Any], fit: bool, newer: bool) -> None:
    asked = {"SHOW_MASTER": DatabaseRefused("no such statement") if newer else rows, "SHOW_BINARY_LOG_STATUS": rows}
    mysql = binlog(**asked)
    if fit:
        assert mysql.filtered_databases({"shop"}) == set()
    elif rows:
        assert mysql.filtered_databases({"shop"}) == {"shop"}
    else:
        with pytest.raises(UnfitSource, match="doesn't report which databases"):
            mysql.filtered_databases({"shop"})


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ({"binlog_expire_logs_seconds": "3600"}, 1_000 + 3_600 - 2_000),
        ({"expire_logs_days": "1"}, 1_000 + 86_400 - 2_000),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}, None),
        ({}, UnfitSource),
    ],
)
def test_a_log_of_which_nobody_tells_how_long_it_stays_has_an_alarm(told: dict[str, str], left: Any) -> None:
    mysql = binlog(
        SHOW_BINARY_LOGS=[("b.1", 100), ("b.2", 50)],
        SHOW_GLOBAL=[*told.items(), ("server_id", "7")],
        SELECT_unix=[(2_000,)],
    )
    last = Segment(1, 1, offset={"file": "b.1", "pos": 40})
    if left is UnfitSource:
        with pytest.raises(UnfitSource, match="doesn't report how long"):
            mysql.log_retention(last)
    else:
        assert (mysql.log_retention(last).retained_bytes, mysql.log_retention(last).seconds_left) == (110, left)


@pytest.mark.parametrize("read", [None, datetime.now(UTC) - timedelta(days=1)], ids=["never", "yesterday"])
def test_a_source_that_nobody_reads_is_an_alarm_also_before_the_first_time(read: datetime | None) -> None:
    with pytest.raises(NotRead, match=r"(no reader has begun to read the source|not read since)"):
        validate_read_age(SOURCE, read)
    validate_read_age(SOURCE, datetime.now(UTC))
