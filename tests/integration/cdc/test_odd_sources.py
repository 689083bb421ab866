"""A real Postgres with tables of odd names and values, and a journal that is lost."""

from __future__ import annotations

import pytest

from sterna.pipelines.cdc.status import read_sources, resync
from tests.integration.cdc.test_cdc import CaptureTestbed, shop

__all__ = ["shop"]


def test_tables_of_odd_names_and_values_that_are_not_told_come_as_they_are(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE transaction (id int PRIMARY KEY, n int)")
    shop.sql('CREATE TABLE "a$b" (id int PRIMARY KEY, n int)')
    shop.sql("CREATE TABLE long (id int PRIMARY KEY, n int, u numeric, j json, ba bytea)")
    for column in ("u", "j", "ba"):
        shop.sql(f"ALTER TABLE long ALTER {column} SET STORAGE EXTERNAL")
    shop.sql("CREATE TABLE bits (id int PRIMARY KEY, n int, v bit varying)")
    shop.sql("ALTER TABLE bits ALTER v SET STORAGE EXTERNAL; ALTER TABLE bits REPLICA IDENTITY FULL")
    shop.sql("INSERT INTO bits SELECT 1, 1, repeat('01', 40000)::bit varying")
    shop.sql("CREATE TABLE void (id int PRIMARY KEY, n int)")
    shop.sql('INSERT INTO transaction VALUES (1, 1); INSERT INTO "a$b" VALUES (1, 1)')
    values = "repeat('9', 20000)::numeric, to_json(repeat('x', 9000)), decode(repeat('ff', 9000), 'hex')"
    shop.sql(f"INSERT INTO long SELECT 1, 1, {values}")
    shop.settled("transaction")
    shop.sql("INSERT INTO transaction VALUES (2, 2); UPDATE transaction SET n = 7 WHERE id = 1")
    shop.sql('INSERT INTO "a$b" VALUES (2, 2); UPDATE "a$b" SET n = 7 WHERE id = 1')
    shop.sql("UPDATE long SET n = 2; UPDATE bits SET n = 2; INSERT INTO void VALUES (1, 1)")
    shop.settled("void")  # what was changed last: the others are there with it
    assert [tuple(row) for row in shop.rows("transaction", "id, n")] == [(1, 7), (2, 2)]
    odd = f"main_eu.{shop.namespace}.`a$b`"
    odd_rows = shop.world.sql(f"SELECT id, n FROM {odd} ORDER BY id")
    shop.world.sql(f"DROP TABLE {odd}")  # what cleans up behind a test quotes no names
    assert [tuple(row) for row in odd_rows] == [(1, 7), (2, 2)]
    lengths = shop.rows("long", "n, length(u), length(j), length(ba)")
    assert [tuple(row) for row in lengths] == [(2, 20000, 9002, 9000)]
    assert [tuple(row) for row in shop.rows("bits", "n, length(v)")] == [(2, 80000)]


def test_what_was_read_into_a_journal_that_is_lost_is_read_again(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a SELECT g, g FROM generate_series(1, 9) g")
    shop.settled("a")
    shop.sql("DELETE FROM a WHERE id < 3; UPDATE a SET n = 100 WHERE id = 5")
    ingest = shop.services.ingest
    assert ingest is not None
    region = ingest.regions["eu"]
    empty_region = region.model_copy(update={"inbox": f"{region.inbox}-anew"})  # as one whose store came back empty
    changed_ingest = ingest.model_copy(update={"regions": {"eu": empty_region}})
    shop.services = shop.services.model_copy(update={"ingest": changed_ingest})
    shop.settled("a")


def test_a_table_that_is_made_anew_is_told(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    shop.settled("a")
    shop.sql("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (2)")
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("NeedsResync: the table was dropped, or recreated")
    status, _ = read_sources(shop.followed())
    assert status.blocked is not None
    assert status.blocked.reason == "NeedsResync"
    resync(shop.followed()[0], act=True)
    shop.settled("a")


@pytest.mark.rare
def test_a_source_is_read_again_beside_its_reader(shop: CaptureTestbed) -> None:
    """Asked for while somebody follows it; and one that somebody else reads through its slot is left to him."""
    shop.sql("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)")
    capture_ids: list[int] = []

    def is_read_again() -> bool:
        if shop.rows("a", "id") == [(1,)] and not capture_ids:
            capture_ids.append(resync(shop.followed()[0], act=True).capture_id)
            shop.sql("INSERT INTO a VALUES (2)")
        return (
            bool(capture_ids)
            and shop.followed()[0].journal.latest_capture_id() == 2
            and shop.rows("a", "id") == [(1,), (2,)]
        )

    ran = shop.until(is_read_again)
    assert ran.exit_code == 0
    assert capture_ids == [2]
