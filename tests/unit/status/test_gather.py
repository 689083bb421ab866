"""All that is known of a region comes in one answer."""

from __future__ import annotations

from dataclasses import replace

from sterna.operations.status.gather import gather_status
from sterna.operations.status.read import read_status
from tests.support.gc import strict
from tests.support.small_world import World, run


def test_the_store_adds_to_what_the_catalog_says(world: World):
    gone = f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json"
    world.commit(a=world.write("a"), secret=world.write("secret"), gone=gone)
    run(world)
    ruling = strict(world)
    run(ruling)
    read, gathered = read_status(ruling.context()), gather_status(ruling.context())
    (held,), (refused,) = gathered.held, gathered.refused
    assert (held.held.key, held.tries) == ("ns.gone", 2)
    assert (refused.key, refused.files is not None and refused.files > 0) == ("ns.secret", True)
    assert gathered.delays is not None and [table.key for table in gathered.delays.tables] == ["ns.gone"]
    unknown = replace(
        gathered,
        lag_seconds=None,
        held_lag_seconds=None,
        oldest_evidence="",
        delays=None,
        held=tuple(replace(item, tries=None, last_try="", lag_seconds=None) for item in gathered.held),
        refused=tuple(replace(item, files=None, bytes=None) for item in gathered.refused),
    )
    assert unknown == replace(
        read,
        lag_seconds=None,
        held_lag_seconds=None,
        held=tuple(replace(item, lag_seconds=None) for item in read.held),
    )


def test_tables_that_main_keeps_too_briefly_are_in_it(world: World):
    world.commit(a=world.write("a"))
    run(world)
    table = world.writer.load_table(("ns", "a"))
    with table.transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    world.commit(a=world.write("a"))
    status = gather_status(world.context())
    assert status.lag_seconds
    assert [item.key for item in status.short_retention] == ["ns.a"]
