"""The section `transforms` of the services file: what is right, and what is refused with its place."""

from __future__ import annotations

import pytest

from sterna.config.sections.load import parse_services
from sterna.config.sections.transforms import WriteMode
from sterna.errors import ServicesError

WHOLE = """\
transforms:
  - {name: dwd, from: acme.ods, into: acme.dwd, mode: append, sql: dwd.sql}
  - {name: users, from: acme.dwd, into: acme.users, mode: "merge(tenant, user)", sql: SELECT * FROM changes, every: 5m}
  - name: dws
    from: acme.dwd
    into: acme.dws
    mode: replace(day)
    partition: to_date(at)
    sql: SELECT 1
    spark: local[2]
    credential_id: writer
maintenance: {tables: [{match: ["**"]}]}
"""


def test_what_may_be_said() -> None:
    read = parse_services(WHOLE, "s.yaml")
    assert read.configured_sections == ["transforms", "maintenance"]
    dwd, users, dws = read.transforms
    assert (dwd.source, dwd.into, dwd.mode, dwd.every, dwd.file) == (
        "acme.ods",
        "acme.dwd",
        WriteMode("append"),
        30,
        "dwd.sql",
    )
    assert (users.mode, users.every, users.file, str(users.mode)) == (
        WriteMode("merge", ("tenant", "user")),
        300,
        "",
        "merge(tenant, user)",
    )
    assert (dws.mode, dws.partition, dws.spark, dws.credential_id) == (
        WriteMode("replace", ("day",)),
        "to_date(at)",
        "local[2]",
        "writer",
    )
    # Whoever lets snapshots go knows who follows them.
    assert read.maintenance is not None
    assert read.maintenance.transforms == read.transforms


def flow(**more: str) -> str:
    settings = {"name": "dwd", "from": "acme.ods", "into": "acme.dwd", "mode": "append", "sql": "dwd.sql", **more}
    return "{" + ", ".join(f'{name}: "{value}"' for name, value in settings.items() if value != "-") + "}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("daily", "transforms: "),
        ("{dwd: x}", "transforms: "),
        ("[1]", "transforms[0]: "),
        (f"[{flow(name='-')}]", "transforms[0].name: "),
        (f"[{flow(name='D w')}]", "transforms[0].name: expected small letters"),
        (f"[{flow(**{'from': 'ods'})}]", "transforms[0].from: expected a table with its namespace"),
        (f"[{flow(**{'from': 'a.b@main'})}]", "transforms[0].from: "),
        (f"[{flow(into='a..b')}]", "transforms[0].into: "),
        (f"[{flow(into='acme.ods')}]", "transforms[0]: a table can't follow itself"),
        (f"[{flow(source='acme.ods')}]", "transforms[0].source: "),
        (f"[{flow(mode='merge')}]", "transforms[0].mode: expected append, merge(key) or replace(partition)"),
        (f"[{flow(mode='merge()')}]", "transforms[0].mode: "),
        (f"[{flow(mode='merge(a, a)')}]", "transforms[0].mode: a column appears twice"),
        (f"[{flow(mode='merge(a; DROP)')}]", "transforms[0].mode: "),
        (f"[{flow(mode='replace(a, b)')}]", "transforms[0].mode: replace takes the one column"),
        (f"[{flow(sql=' ')}]", "transforms[0].sql: "),
        (f"[{flow(every='0s')}]", "transforms[0].every: expected a duration"),
        (f"[{flow(partition='to_date(at)')}]", "transforms[0]: partition is for mode replace alone"),
        (f"[{flow()}, {flow(into='acme.x')}]", "transforms: name dwd appears twice"),
        (f"[{flow()}, {flow(name='b')}]", "transforms: into acme.dwd appears twice"),
        (
            f"[{flow()}, {flow(name='b', **{'from': 'acme.dwd', 'into': 'acme.ods'})}]",
            "transforms: the transforms go in a circle",
        ),
    ],
)
def test_what_is_refused(text: str, place: str) -> None:
    with pytest.raises(ServicesError) as raised:
        parse_services(f"version: 1\ntransforms: {text}\n", "s.yaml")
    assert any(line.startswith(f"s.yaml:2: {place}") for line in str(raised.value).splitlines()), raised.value
