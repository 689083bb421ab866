"""Makes such a state as stands in `world`, with this version, for the old version to go on with: tests/backward.py.

README.md says how `world` itself was made, with the code of commit b5071db.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import yaml

from sterna.brokers.message import SendOutcome
from sterna.catalog.model import ICEBERG_TABLE, Content, Put
from sterna.config.environment import temporary_environment
from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.errors import EventRefused, ReceiverUnreachable
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.pin import pin
from sterna.maintenance.gc.run import run_gc
from sterna.maintenance.tables.orphan_files import sweep
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.sinks.dead_letters import read_dead_letters
from sterna.notifications.sinks.service import SinkService
from sterna.notifications.sinks.status import read_sinks
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.run import CaptureRunner
from sterna.pipelines.cdc.sources import open_sources
from sterna.pipelines.features.materialize import materialize_view
from sterna.pipelines.features.region import open_feature_store
from sterna.pipelines.ingest.batch_publisher import StepContext
from sterna.pipelines.ingest.region import open_ingest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.work_queue import PostgresQueue
from sterna.pipelines.ingest.worker import Worker
from sterna.pipelines.transforms.step import TransformReconciler
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import load_held_list, read_head
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.runtime.reconciler import reconcile
from sterna.servers.postgres import Database, Postgres, find_binaries, start_postgres
from sterna.servers.registry_file import bucket_name
from sterna.servers.spark import spark_environment, start_session
from sterna.servers.stack import deployment
from sterna.servers.valkey import ValkeyServer, start_valkey
from tests.support.ingest import TrackedInbox, destination
from tests.support.sinks import FAST_DELIVERY, Receiver, wait_until
from tests.support.world import World, merge_on_read, world_of

COMMIT = "b5071db"
LARGE_COPY = 200_000  # bytes
LOST = [f"shop.no_longer_there_though_main_names_it_{number:02}" for number in range(60)]
SERVICES = """
version: 1
sinks:
  hook: {target: {webhook: {url: "http://127.0.0.1:1/hook"}}, credential_id: hook}
  behind: {target: {webhook: {url: "http://127.0.0.1:1/behind"}}, credential_id: hook, tables: ["shop.*"]}
  picky: {target: {webhook: {url: "http://127.0.0.1:1/picky"}}, credential_id: hook}
features:
  online: {eu: {url: "@VALKEY@", credential_id: valkey_eu}}
  entities: [{name: user, key: {user_id: long}}]
  views:
  - {name: user, entity: user, table: shop.users, features: [age, city, balance, last_updated_ts], unique: true,
     event_time: last_updated_ts}
  - {name: seen, entity: user, table: shop.clicks, features: [page], event_time: at, max_age: 2h}
  services: [{name: pricing, features: [user.age, user.balance, seen.page]}]
ingest:
  regions:
    eu:
      inbox: s3://eu-lake/inbox
      spark: local[2]
      database: {credential_id: ingest_eu, hosts: ["@POSTGRES@"], name: ingest, timeout: 60}
  tenants: {acme: {namespaces: [web]}}
  tables:
  - {match: web.strict, create: auto, audit: [min(id) >= 0]}
  - {match: "web.*", create: auto, evolve: widen, max_bad: 2, rules: {files: 100000, age: 3650d}}
cdc:
  sources:
  - {name: crm, region: eu, hosts: ["@SOURCE@"], database: crm, credential_id: crm, tables: ["public.*"], into: crm,
     every: 1s, read_alarm: 36500d}
transforms:
- {name: pages, from: shop.clicks, into: shop.pages, mode: append, spark: "local[2]",
   sql: "SELECT user_id, upper(page) AS page FROM changes"}
maintenance:
  tables: [{match: ["shop.**"], min_age: 1s}]
  spark: local[2]
"""


@dataclass
class Making:
    """All that runs while the state is made."""

    world: World
    source: Database
    tracker: Database
    valkey: ValkeyServer
    folder: Path
    answers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text = SERVICES.replace("@VALKEY@", self.valkey.url)
        for name, database in (("@POSTGRES@", self.tracker), ("@SOURCE@", self.source)):
            text = text.replace(name, f"{database.host}:{database.port}")
        self.services: Services = parse_services(text, "services")

    def context(self, region: str = "eu") -> RegionContext:
        return self.world.context(region)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.world.sql(text)

    def rows(self, table: str) -> list[list[str | None]]:
        found = [[None if cell is None else str(cell) for cell in row] for row in self.sql(f"SELECT * FROM {table}")]
        return sorted(found, key=lambda row: [(cell is not None, cell or "") for cell in row])

    def on_source(self, text: str) -> None:
        with psycopg.connect(self.source.url(), autocommit=True) as connection:
            connection.execute(text)


def main(output: Path) -> None:
    """Make everything in a temporary folder, and pack it."""
    with TemporaryDirectory(prefix="sterna-fixture-") as name, ExitStack() as stack:
        work = Path(name)
        work.chmod(0o755)
        spark = start_session(spark_environment(work / "spark"), settings={"spark.ui.enabled": "false"})
        settings = {
            "wal_level": "logical",
            "max_replication_slots": "4",
            "max_wal_senders": "4",
            "max_connections": "20",
        }
        source = start_postgres(work / "source", settings)
        stack.callback(source.stop)
        valkey = start_valkey(work / "valkey", memory="64mb")
        stack.callback(valkey.stop)
        with deployment(work / "stage", postgres=True) as stage:
            assert stage.postgres is not None
            registry = yaml.safe_load(stage.registry.read_text())
            for region in registry["regions"]:
                region |= {"bulk_copy_threshold": LARGE_COPY}
            registry["locations"][1]["sweep"] = True
            stage.registry.write_text(yaml.safe_dump(registry, sort_keys=False))
            database, tracker = source.create_database("crm"), stage.postgres.create_database("ingest")
            with psycopg.connect(source.admin.url(), autocommit=True) as admin:
                admin.execute("ALTER ROLE crm REPLICATION")
            with temporary_environment(logins(database, tracker, valkey)), world_of(stage, spark) as world:
                making = Making(world, database, tracker, valkey, work)
                made = write_all(making)
                dump_valkey(valkey, output)
                made["addresses"] = {name: each.url for name, each in stage.endpoints.items()}
                made["addresses"]["nessie"] = stage.nessie.uri
                text = stage.registry.read_text().replace(stage.nessie.uri, "@NESSIE@")
                for name, each in stage.endpoints.items():
                    text = text.replace(each.url, f"@{name.upper()}_ENDPOINT@")
                (output / "storage_registry.yaml").write_text(text)
            nessie = replace(stage.postgres.admin, name="nessie")
            for each in (nessie, replace(stage.postgres.admin, name="ingest")):
                dump(each, output / f"{each.name}.sql.gz")
            folders = {name: each.folder / bucket_name(name) for name, each in stage.endpoints.items()}
            for each in stage.endpoints.values():
                each.stop()
            for name, folder in folders.items():
                pack(folder, output / f"{bucket_name(name)}.tar.xz", bucket_name(name))
        keep_cluster(source, output / "source.tar.xz")
    (output / "sterna_services.yaml").write_text(SERVICES.lstrip())
    (output / "answers.json").write_text(json.dumps(made, indent=1, default=str) + "\n")


def logins(source: Database, tracker: Database, valkey: ValkeyServer) -> dict[str, str]:
    def login(user: str, password: str) -> str:
        return json.dumps({"conn_type": "postgres", "login": user, "password": password})

    return {
        "AIRFLOW_CONN_CRM": login(source.user, source.password),
        "AIRFLOW_CONN_INGEST_EU": login(tracker.user, tracker.password),
        "AIRFLOW_CONN_VALKEY_EU": json.dumps({"conn_type": "redis", "password": valkey.password}),
    }


def write_all(making: Making) -> dict[str, Any]:
    """Write everything, in the order in which one thing needs the other."""
    world, answers = making.world, making.answers
    answers |= {"commit": COMMIT, "lost": LOST}
    tables_of_us(making)
    world.sync("eu")
    world.sync("us")
    uploads(making)
    source_begun(making)
    features(making)
    with making.context() as context:
        flow = making.services.transforms[0]
        answers["flow"] = asdict(
            reconcile(TransformReconciler(lambda: context, flow, lambda: flow.sql, TransformSpark()))
        )
    world.sync("eu")
    world.sync("us")
    outlets(making)
    cleaning(making)
    waiting_for_the_next(making)
    world.sync("us")
    left_behind(making)
    print("sync us:", world.sync("us"))
    sent_at_last(making)
    for table in ("shop.orders", "shop.users", "shop.clicks", "shop.docs", "shop.pages", "shop.pair_a", "shop.pair_b"):
        answers.setdefault("rows", {})[table] = making.rows(f"replica_eu.{table}")
    answers["big"] = checksum(making.rows("main_us.shop.big"))
    for table in ("web.events", "crm.customers", "crm.accounts"):
        answers["rows"][table] = making.rows(f"main_eu.{table}")
    return answers


def checksum(rows: list[list[str | None]]) -> dict[str, Any]:
    return {"rows": len(rows), "sha256": hashlib.sha256(json.dumps(rows).encode()).hexdigest()}


def tables_of_us(making: Making) -> None:
    sql = making.sql
    sql("CREATE NAMESPACE main_us.shop")
    sql(f"CREATE TABLE main_us.shop.orders (id BIGINT, item STRING) USING iceberg {merge_on_read(2)}")
    sql("INSERT INTO main_us.shop.orders SELECT id, concat('item-', id % 4) FROM range(0, 12, 1, 1)")
    sql("DELETE FROM main_us.shop.orders WHERE id = 3")
    sql("ALTER TABLE main_us.shop.orders CREATE TAG opening")
    sql(
        "CREATE TABLE main_us.shop.users (user_id BIGINT, age INT, city STRING, balance DECIMAL(20,2), "
        f"last_updated_ts TIMESTAMP_NTZ) USING iceberg {merge_on_read(2)}"
    )
    moment = "TIMESTAMP_NTZ'2026-11-26 10:00:00'"
    sql(f"INSERT INTO main_us.shop.users VALUES (1, 10, 'é', 1.10, {moment}), (2, 20, 'b', 2.20, {moment})")
    sql("CREATE TABLE main_us.shop.clicks (user_id BIGINT, page STRING, at TIMESTAMP) USING iceberg")
    sql("INSERT INTO main_us.shop.clicks VALUES (1, 'a', TIMESTAMP'2026-11-26 10:00:00')")
    wap = "TBLPROPERTIES ('write.wap.enabled'='true')"
    sql(f"CREATE TABLE main_us.shop.pages (user_id BIGINT, page STRING) USING iceberg {wap}")
    for name in ("docs", "pair_a", "pair_b"):
        sql(f"CREATE TABLE main_us.shop.{name} (id BIGINT) USING iceberg")
        sql(f"INSERT INTO main_us.shop.{name} VALUES (1)")


@contextmanager
def door(making: Making) -> Iterator[tuple[TrackedInbox, StepContext, RegionContext]]:
    with making.context() as context:
        ingest = open_ingest(context, making.services)
        ingest.prepare()
        made = TrackedInbox(ingest.objects, ingest.region_settings.inbox, making.tracker, making.folder, 60.0)
        near = RegionalIcebergCatalog(making.world.spark.newSession(), context)
        settings = making.services.ingest
        assert settings is not None
        yield (
            made,
            StepContext(context.mapping, settings, made.inbox, ingest.table, ingest.objects, made.queue, near),
            context,
        )
        made.pool.close()
        ingest.close()


def send(made: TrackedInbox, table: str, *rows: Any, key: str = "") -> None:
    made.drop(b"".join(json.dumps(row).encode() + b"\n" for row in rows), key, to=destination(table))


def uploads(making: Making) -> None:
    """Batches that are published, one with dead rows, and one that is rejected."""
    with door(making) as (made, bench, _):
        send(made, "web.events", {"id": 1, "page": "a"}, {"id": 2, "page": "b"}, key="first")
        made.close(asked=True)
        made.drop(b'{"id": 3, "page": "c"}\n{broken\n', "with a dead row", to=destination("web.events"))
        made.close(asked=True)
        send(made, "web.strict", {"id": -1})
        made.close(asked=True)
        print(Worker(bench, print, print).run(once=True))


def waiting_uploads(making: Making) -> None:
    """A batch that is on `main` though the tracker doesn't know it, one that is closed, and drops in none."""
    with door(making) as (made, bench, _):
        send(made, "web.events", {"id": 4, "page": "landed"}, key="landed")
        made.close(asked=True)
        real = PostgresQueue.mark_published
        PostgresQueue.mark_published = dies  # type: ignore[method-assign]
        with suppress(KeyboardInterrupt):
            Worker(bench, print, print).run(once=True)
        PostgresQueue.mark_published = real  # type: ignore[method-assign]
        send(made, "web.events", {"id": 5, "page": "closed"}, key="closed")
        made.close(asked=True)
        send(made, "web.events", {"id": 6, "page": "open"}, key="open")
        send(made, "web.events", {"id": 7, "page": "open"}, key="open too")
        making.answers["batches"] = [asdict(each) for each in made.tracker.list_batches()]


def dies(*_: Any) -> None:
    raise KeyboardInterrupt


def source_begun(making: Making) -> None:
    """A source that is followed: its first rows, and one change, are in the tables."""
    making.on_source(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, n numeric(12,3));"
        "CREATE TABLE accounts (id int PRIMARY KEY, customer int);"
        "INSERT INTO customers SELECT g, 'name ' || g, g / 4.0 FROM generate_series(1, 9) g;"
        "INSERT INTO accounts VALUES (1, 1), (2, 2)"
    )
    followed(making, lambda: len(making.rows("main_eu.crm.customers")) == 9)
    making.on_source("UPDATE customers SET name = 'other' WHERE id = 2; DELETE FROM customers WHERE id = 3")
    followed(making, lambda: len(making.rows("main_eu.crm.customers")) == 8)


def followed(making: Making, done: Callable[[], bool]) -> None:
    for turn in range(6):  # a machine that has much to do takes longer than some seconds to start a reader
        with making.context() as context:
            ran = CaptureRunner(open_sources(context, making.services), print).run(8.0 * 2**turn)
        print(ran)
        with suppress(Exception):
            if done():
                return
    raise TimeoutError("the source isn't followed")


def source_goes_on(making: Making) -> None:
    """Changes that are in the journal and in no table; and later ones, which the source's slot keeps."""
    making.on_source("INSERT INTO customers VALUES (20, 'in the journal', 1); DELETE FROM customers WHERE id = 4")
    with making.context() as context:
        (each,) = open_sources(context, making.services)
        database = each.database()
        capture = Capture(each.source, database, each.journal)
        end = time.monotonic() + 120
        while not capture.step(1.0):
            assert time.monotonic() < end
        capture.close()
        database.close()
        making.answers["journal"] = asdict(each.journal.last_segment(each.journal.latest_capture_id()))
    making.on_source(
        "INSERT INTO customers VALUES (21, 'in the slot', 2); UPDATE accounts SET customer = 20 WHERE id = 1"
    )
    with psycopg.connect(making.source.url()) as connection:
        for name in ("customers", "accounts"):
            found = connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            making.answers.setdefault("source", {})[name] = [[str(cell) for cell in row] for row in found]


def features(making: Making) -> None:
    assert making.services.features is not None
    with making.context() as context, open_feature_store(context, making.services.features) as store:
        for view in making.services.features.views:
            made = materialize_view(context, making.world.spark, store, making.services.features, view)
            making.answers.setdefault("features", {})[view.name] = asdict(made)


def outlets(making: Making) -> None:
    """One outlet that has sent everything, one that is behind, one with a dead letter."""
    world, refused = making.world, EventRefused("the receiver answered 413")
    got = {name: Receiver() for name in making.services.sinks}
    got["picky"].answer = lambda message: SendOutcome(0, refused) if message.table == "shop.docs" else SendOutcome(1)
    with making.context() as context:
        rooms = SinkService(
            context,
            making.services,
            timedelta(days=7),
            FAST_DELIVERY,
            lambda outlet, _: got[str(outlet.target.webhook.url).rpartition("/")[2]],
        )
        rooms.start()
        wait_until(lambda: all(each.status.state != "starting" for each in rooms.deliverers), "begin", 60)
        world.sql("INSERT INTO main_us.shop.docs VALUES (2)")
        world.sync("eu")
        wait_until(lambda: all(got[name].tables for name in ("hook", "behind")), "send", 60)
        wait_until(lambda: rooms.deliverers[2].status.dead_letters == 1, "bury", 60)
        got["behind"].answer = lambda message: SendOutcome(0, ReceiverUnreachable("dark"))
        world.sql(
            "CALL main_us.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
        )
        world.sync("eu")
        world.sql("INSERT INTO main_us.shop.orders VALUES (90, 'axe')")
        world.sync("eu")
        wait_until(lambda: got["hook"].tables.count("shop.orders") == 2, "send", 60)
        wait_until(lambda: got["picky"].tables.count("shop.orders") == 2, "send", 60)
        time.sleep(2.0)
        rooms.stop()
        making.answers["sent"] = {name: [each.id for each in receiver.got] for name, receiver in got.items()}


def cleaning(making: Making) -> None:
    """Records of a clean-up and of a sweep, and holds."""
    world = making.world
    world.sql("ALTER TABLE main_us.shop.orders SET TBLPROPERTIES ('gc.enabled'='true')")
    with making.context() as context:
        cursor = context.catalog.reference(context.region.replica_branch).hash
        long = pin(context, cursor, timedelta(days=36_500))
        short = pin(context, cursor, timedelta(hours=1))
        making.answers["holds"] = {"cursor": cursor, "long": long.tag, "short": short.tag}
    world.sql("CALL main_us.system.expire_snapshots(table => 'shop.orders', older_than => now(), retain_last => 1)")
    world.sql("INSERT INTO main_us.shop.orders VALUES (91, 'bow')")
    world.sql("CALL main_us.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))")
    world.sql("CALL main_us.system.expire_snapshots(table => 'shop.orders', older_than => now(), retain_last => 1)")
    world.sync("eu")
    world.sync("us")
    with making.context() as context:
        orphan = "s3://eu-lake/tables/web/events/data/nobody-needs-it.parquet"
        context.objects.write_new(orphan, b"PAR1")
        ghost = f"{context.region.replica_root}/us-lake/nobody-needs-it.parquet"
        context.objects.write_new(ghost, b"PAR1")
        options = GcOptions(keep=timedelta(0))
        making.answers["collect"] = asdict(run_gc(context, options, print)) | {"ghost": ghost}
        assert making.services.maintenance is not None
        swept = sweep(
            context,
            making.services.maintenance,
            delete=False,
            excluded_prefixes=("s3://eu-lake/inbox",),
            progress=print,
        )
        making.answers["sweep"] = asdict(swept) | {"orphan": orphan}


def waiting_for_the_next(making: Making) -> None:
    waiting_uploads(making)
    source_goes_on(making)
    making.sql("INSERT INTO main_us.shop.clicks VALUES (2, 'b', TIMESTAMP'2026-11-26 11:00:00')")


def left_behind(making: Making) -> None:
    """Keys that are held, more than a commit names; a table of which a large lane that died brought a part."""
    world, catalog = making.world, making.world.catalog
    catalog.commit("main", catalog.reference("main").hash, [Put(tuple(n.split(".")), gone(n)) for n in LOST], "lost")
    world.sql("INSERT INTO main_us.shop.pair_b VALUES (2)")
    both = catalog.contents("main", catalog.reference("main").hash, [("shop", "pair_a"), ("shop", "pair_b")])
    lost = Content.of({**both["shop", "pair_a"].payload, "metadataLocation": location("shop.pair_a")})
    operations = [Put(("shop", "pair_a"), lost), Put(("shop", "pair_b"), both["shop", "pair_b"])]
    catalog.commit("main", catalog.reference("main").hash, operations, "two at once")
    world.sql("CREATE TABLE main_us.shop.big (id BIGINT, noise STRING) USING iceberg")
    noise = "concat(" + ", ".join(f"sha2(concat('{k}-', id), 512)" for k in range(4)) + ")"
    for number in range(3):
        world.sql(
            f"INSERT INTO main_us.shop.big SELECT id, {noise} FROM range({number * 550}, {number * 550 + 550}, 1, 1)"
        )
    report = world.sync("eu", lane="small")
    assert [item.key for item in report.transit] == ["shop.big"], report
    with making.context() as context:
        lines: list[str] = []
        planned = stages.plan(context, SyncOptions(lane="large", bytes_per_batch=300_000), lines.append)
        print(planned.batches)
        assert len(planned.batches) > 1
        copied = stages.copy(context, planned.run, planned.batches[-1].number, lines.append)
        assert copied.files and not copied.failed, copied
        head = read_head(context.catalog, context.region.replica_branch)
        held = load_held_list(context.objects, head).held_list.entries or ()
        making.answers["eu"] = {
            "hash": head.hash,
            "watermark": head.watermark,
            "held": [asdict(item) for item in held],
            "in_flight": planned.run,
            "brought": asdict(copied),
            "batches": [asdict(batch) for batch in planned.batches],
        }
        making.answers["main"] = catalog.reference("main").hash
        making.answers["digest"] = context.registry.digest()


def sent_at_last(making: Making) -> None:
    """Let one outlet come up to the head, and say what is left for the others."""
    receiver, services = Receiver(), making.services
    only = services.model_copy(update={"sinks": {"hook": services.sinks["hook"]}})
    with making.context() as context:
        head = context.catalog.reference(context.region.replica_branch).hash
        rooms = SinkService(context, only, timedelta(days=7), FAST_DELIVERY, lambda outlet, _: receiver)
        rooms.start()
        wait_until(lambda: making.world.catalog.reference("sterna-outlet-eu-hook").hash == head, "come up", 60)
        rooms.stop()
    making.answers["sent"]["hook"] += [each.id for each in receiver.got]
    with making.context() as context:
        making.answers["outlets"] = asdict(read_sinks(context, services, timedelta(days=36_500)))
        making.answers["letters"] = [asdict(each) for each in read_dead_letters(context, "picky")]
        log = EventLog(context, timedelta(days=36_500), 1_000)
        for name in ("behind", "picky"):
            position = making.world.catalog.reference(f"sterna-outlet-eu-{name}").hash
            commits = log.read_first_since(position, head, 1_000).commits
            found = [event.id for commit in commits for event in commit.events if event.table.startswith("shop.")]
            making.answers.setdefault("waiting", {})[name] = found
    making.answers["references"] = {each.name: each.hash for each in making.world.catalog.references()}


def location(name: str) -> str:
    return f"s3://us-lake/warehouse/{name.replace('.', '/')}/metadata/00001-gone.metadata.json"


def gone(name: str) -> Content:
    ids = {"snapshotId": 1, "schemaId": 0, "specId": 0, "sortOrderId": 0}
    return Content.of({"type": ICEBERG_TABLE, "metadataLocation": location(name), **ids})


def dump_valkey(server: ValkeyServer, output: Path) -> None:
    """Write what the store holds, as commands that put it there again."""
    import valkey

    found = []
    with valkey.Valkey(port=server.port, password=server.password) as client:
        client.ping()
        mark = f"{client.info()['run_id']}/{client.info()['evicted_keys']}"
        for key in sorted(client.scan_iter()):
            kind, life = client.type(key).decode(), client.pttl(key)
            value = client.hgetall(key) if kind == "hash" else client.get(key)
            found.append({"key": key.decode(), "ttl": life, "value": texts(value)})
    (output / "valkey.json").write_text(json.dumps({"mark": mark, "keys": found}, indent=1) + "\n")


def texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name.decode(): texts(each) for name, each in value.items()}
    return value.decode()


def dump(database: Database, path: Path) -> None:
    command = [find_binaries() / "pg_dump", "--inserts", "--no-owner", "--no-acl", "--dbname", database.url()]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [
        line
        for line in text.splitlines()
        if line and not line.startswith(("\\", "--", "SET ", "SELECT pg_catalog.set"))
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def keep_cluster(source: Postgres, path: Path) -> None:
    """Pack the source's whole cluster: a slot outlives no dump. Whoever reaches the loopback is let in."""
    with psycopg.connect(source.admin.url(), autocommit=True) as admin:
        admin.execute("CHECKPOINT")
    source.process.stop()
    hosts = source.folder / "pg_hba.conf"
    hosts.write_text("host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n")
    pack(source.folder, path, "data")


def pack(folder: Path, path: Path, name: str) -> None:
    def plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
        item.uid = item.gid = 0
        item.uname = item.gname = ""
        return item

    with tarfile.open(path, "w:xz", preset=9) as archive:
        archive.add(folder, name, filter=plain)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
