"""Dates and times by a word in a flow's SQL: refused wherever Spark would take them, and nowhere else.

What switches the check off falls under it: quotes and `--` in a comment, a comment that ends elsewhere than Spark says
(at a carriage return, behind a backslash, at a hint's `*/`), one that never ends, and blanks beyond ASCII. A time
without a date is one of today.
"""

from __future__ import annotations

import pytest

from sterna.pipelines.transforms.sql_plan import has_time_literal


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT TIMESTAMP'now'",
        "SELECT date 'today'",
        'SELECT TIMESTAMP_NTZ\n\t"tomorrow"',
        "SELECT DATE --c\n'now'",
        "SELECT DATE /* a */ /* b /* c */ d */ 'yesterday'",
        "SELECT DATE r'now'",
        "SELECT DATE ' now'",
        r"SELECT DATE '\u006eow'",
        "SELECT 'it''s', DATE 'now'",
        "/* yesterday's rows */ SELECT id FROM changes WHERE at < TIMESTAMP'now'",
        "/* clicks -- raw */ SELECT id, TIMESTAMP'now' t FROM changes",
        "/* 5\" wide ` */ SELECT DATE 'now'",
        "/* a /*+ b */ SELECT DATE 'now'",
        "SELECT /*+ BROADCAST(a) */ DATE 'now'",
        "SELECT 1 -- a\rWHERE at < DATE 'now'",
        "SELECT DATE -- a \\\n b\n 'now'",
        "SELECT DATE\u00a0'now'",
        "SELECT DATE\u200b'now'",
        "SELECT id a://b--c, DATE 'now'",
        "SELECT TIMESTAMP'12:00:00'",
        "SELECT TIMESTAMP_LTZ ' 8:00'",
        "SELECT TIMESTAMP'T12:00'",
        "SELECT TIMESTAMP'1200:00'",
        "SELECT 1 /* never /* closed */",
    ],
)
def test_a_moment_by_a_word(sql: str) -> None:
    assert has_time_literal(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM changes WHERE kind = 'date'",
        "SELECT payload['timestamp'], get_json_object(x, '$.date') FROM changes",
        "SELECT CASE WHEN k = 'ship date' THEN 1 END, 'now' FROM changes",
        "SELECT 1 -- the 'date'\n, 'x'",
        "SELECT 1 /* DATE 'now' */, \"timestamp\", 'x'",
        "SELECT TIMESTAMP'2026', TIMESTAMP '2026-01-01 12:00'",
        "SELECT DATE '2020-01-01', DATE ' 2020-01-01', DATE 'epoch', TIMESTAMP '+10000-01-01'",
        "SELECT CAST(x AS DATE), date('now'), `date`, 'now' FROM changes",
        "SELECT CAST(x AS DATE" + " /* a */" * 60 + ")",
        "/* yesterday's rows -- raw */ SELECT id FROM changes",
        "SELECT 1 -- a \\\n DATE 'now'",
    ],
)
def test_other_words_in_strings_names_and_comments(sql: str) -> None:
    assert not has_time_literal(sql)
