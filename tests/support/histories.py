"""Random histories of tables over real servers, with syncs at random moments.

Does the replica always answer like main?
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from types import MappingProxyType

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Put, key_name, parse_key
from sterna.config.sections.maintenance import Maintenance
from sterna.maintenance.tables.run import run_maintenance
from tests.support.answers import ask
from tests.support.history_addresses import (
    Operations,
    is_at_once,
    run_at_once,
    taken_by_address,
    view_rows,
    with_addresses,
)
from tests.support.history_changes import check_some
from tests.support.history_refs import REFS, WAP
from tests.support.history_rows import ROWS, append
from tests.support.history_shape import SHAPE, create
from tests.support.history_state import FEATURES, Turn, load_state
from tests.support.world import World

_CATALOGS = ("main_us", "main_eu")
_SYNC_CHANCE = 0.25
_MAX_ERROR_CHARACTERS = 1500  # characters of an error: Spark's go on for pages of stack trace

NO_ADDRESSES: Mapping[str, str] = MappingProxyType({})


class Unequal(AssertionError):
    """A history after which a replica is not what main is; it tells how to get there again."""


@dataclass
class History:
    """One run: what was done so far, as the SQL statements that the engine was given.

    Args:
        seed: from which everything else follows.
        namespace: where its tables live, nobody else's.
        addresses: catalogs of Spark's that are regions' REST addresses, and which region's each is.
        lines: each operation with its statements, each sync.
        operations: how many operations were done.
        syncs: how many syncs were done and checked.
        changes: how many pairs of snapshots had their changes checked.
        compared: what was found equal: (region, table) → the metadata locations on main and on the replica.
        seconds: how long it took.
    """

    seed: int
    namespace: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    operations: int = 0
    syncs: int = 0
    changes: int = 0
    compared: dict[tuple[str, str], tuple[str | None, str | None]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        return (
            f"history {self.seed}: {self.operations} operations, {self.syncs} syncs, {self.changes} pairs of "
            f"snapshots, {self.seconds:.1f} s"
        )

    @property
    def replay(self) -> str:
        folder = "rest_catalog" if self.addresses else "sync"
        return f"python3 run.py test tests/integration/{folder}/test_histories.py --history-seed {self.seed} --long"


def run_history(
    world: World, seed: int, features: Collection[str] = FEATURES, addresses: Mapping[str, str] = NO_ADDRESSES
) -> History:
    """Play one history from its seed, and compare main and replica after every sync.

    Args:
        world: the servers; other histories may use it before and after.
        seed: replays the same operations.
        features: those of FEATURES that may be used.
        addresses: catalogs of Spark's that are regions' REST addresses, and which region's each is.

    Raises:
        Unequal: a replica differs, a table is held, or the engine refused a statement; the message lists the whole
            history.
    """
    history = History(seed, f"h{seed}", addresses)
    rng = Random(seed)
    began = time.monotonic()
    # Small as these tables are, every second history of natives is localized on Spark.
    where = "spark" if seed % 2 and not addresses else "auto"
    with _namespaces(world, history.namespace) as namespaces, world.localizing(where):
        try:
            _play(world, history, rng, namespaces, frozenset(features))
        except Exception as error:
            listed = "\n".join(f"  {line}" for line in history.lines)
            message = (
                f"{type(error).__name__}: {str(error)[:_MAX_ERROR_CHARACTERS]}\nthe history of seed "
                f"{seed}:\n{listed}\nagain: {history.replay}"
            )
            raise Unequal(message) from error
        finally:
            history.seconds = time.monotonic() - began
    return history


def _play(world: World, history: History, rng: Random, namespaces: list[str], features: frozenset[str]) -> None:
    warehouses = {region: world.stage.warehouse(region) for region in world.stage.regions}
    for number in range(rng.choice([1, 1, 2])):
        created = create(rng, rng.choice(_CATALOGS), f"{rng.choice(namespaces)}.t{number}", warehouses, features)
        _do(world, history, "create", created)
    operations: Operations = {**ROWS, **REFS, **SHAPE, **(WAP if "wap" in features else {})}
    catalogs = (*_CATALOGS, *history.addresses)
    if history.addresses:
        for address in history.addresses:
            world.sql(f"SHOW NAMESPACES IN {address}")  # `load_state` knows no catalog that no query has named
        operations = with_addresses(operations, catalogs, lambda: list(_names(world, history, "main", ICEBERG_VIEW)))
    for number in range(10, 10 + rng.randrange(8, 16)):
        states = {table: load_state(world.spark, f"main_us.{table}") for table in _tables(world, history, "main")}
        table, catalog = rng.choice(list(states)), rng.choice(catalogs)
        others = {name: state for name, state in states.items() if name != table}
        state, taken, places = states[table], operations, warehouses
        if region := history.addresses.get(catalog):
            _sync(world, history, world.stage.regions, compare=False)
            state, taken = load_state(world.spark, f"{catalog}.{table}"), taken_by_address(operations, state.version)
            places = {region: warehouses[region]}
        turn = Turn(rng, state, catalog, table, others, namespaces, number, places, features)
        empty = turn.state.current is None and turn.maybe(0.8) and "append" in taken
        name, statements = ("append", append(turn)) if empty else _choose(turn, taken)
        _do(world, history, name, statements)
        if rng.random() < _SYNC_CHANCE:
            _sync(world, history, [rng.choice(world.stage.regions)])
    _sync(world, history, world.stage.regions, last=True)
    for table in _tables(world, history, "main"):
        history.changes += check_some(world, rng, table)


def _choose(turn: Turn, operations: Operations) -> tuple[str, list[str]]:
    """The next operation by chance; one that does not apply now is passed over."""
    weights = [weight for weight, _ in operations.values()]
    while True:
        (name,) = turn.rng.choices(list(operations), weights)
        if statements := operations[name][1](turn):
            return name, statements


def _do(world: World, history: History, name: str, statements: list[str]) -> None:
    history.operations += 1
    for statement in statements:
        history.lines.append(f"{name}: {statement}")
        if statement.startswith("@branch"):
            world.catalog.create_branch(statement.split()[1], world.catalog.reference("main").hash)
        elif statement.startswith("@commit"):
            _commit(world, *statement.split()[1:])
        elif statement.startswith("@upkeep"):
            _upkeep(world, *statement.split()[1:])
        elif is_at_once(statement):
            _sync(world, history, world.stage.regions, compare=False)
            run_at_once(world, statement, history.lines.append)
        else:
            world.sql(statement)


def _commit(world: World, branch: str, *tables: str) -> None:
    """Take tables from a branch of the catalog to main, all in one commit."""
    keys = [parse_key(table) for table in tables]
    contents = world.catalog.contents(branch, world.catalog.reference(branch).hash, keys)
    world.catalog.commit(
        "main", world.catalog.reference("main").hash, [Put(key, contents[key]) for key in keys], "together"
    )


def _upkeep(world: World, region: str, target: str, table: str) -> None:
    """Compact one region's files of a table, which has the same rows afterwards, with the same ids."""
    before = ask(world.spark, f"main_us.{table}").rows["now"]
    rule = {"match": [table], "target": target, "min_age": "1s"}
    settings = Maintenance.model_validate({"tables": [rule], "spark": "local[2]"})
    with world.context(region) as context:
        done = run_maintenance(
            context, settings, [table], world.lines.append, dry_run=False, now=datetime.now(UTC) + timedelta(hours=1)
        )
    assert not done.failed, done.tables
    for table_report in done.tables:
        # Of tables as small as these Iceberg may make fewer files than it expects.
        assert not table_report.conflicts and table_report.written.files <= table_report.planned.files, table_report
    assert ask(world.spark, f"main_us.{table}").rows["now"] == before, done.tables


def _sync(
    world: World, history: History, regions: Collection[str], *, last: bool = False, compare: bool = True
) -> None:
    """Sync regions and compare what changed since a region was compared before; in the end everything."""
    for region in regions:
        history.lines.append(f"sync {region}")
        report = world.sync(region)
        mine = [item.line for item in report.held if item.key.startswith(f"{history.namespace}.")]
        assert not mine, mine
        if compare:
            _compare(world, history, region, last=last)


def _compare(world: World, history: History, region: str, *, last: bool) -> None:
    address = next((catalog for catalog, home in history.addresses.items() if home == region), "")
    main, replica = _tables(world, history, "main"), _tables(world, history, f"main_replica_{region}")
    assert set(replica) == set(main)
    compared = {(region, table): (main[table], replica[table]) for table in main}
    wanted = [key[1] for key, locations in compared.items() if last or history.compared.get(key) != locations]
    world.assert_equal(*wanted, region=region, address=address)
    history.compared |= compared
    history.syncs += 1
    views = _names(world, history, "main", ICEBERG_VIEW)
    assert set(_names(world, history, f"main_replica_{region}", ICEBERG_VIEW)) == set(views)
    for view in views if last else ():
        rows = view_rows(world, f"main_us.{view}")
        for catalog in filter(None, (f"replica_{region}", address)):
            assert view_rows(world, f"{catalog}.{view}") == rows, (catalog, view)


def _tables(world: World, history: History, branch: str) -> dict[str, str | None]:
    """The history's tables on a branch of the catalog, with their metadata locations."""
    return _names(world, history, branch, ICEBERG_TABLE)


def _names(world: World, history: History, branch: str, kind: str) -> dict[str, str | None]:
    entries = world.catalog.entries(branch, world.catalog.reference(branch).hash)
    locations = {key_name(key): content.metadata_location for key, content in entries if content.kind == kind}
    return {name: locations[name] for name in sorted(locations) if name.startswith(f"{history.namespace}.")}


@contextmanager
def _namespaces(world: World, name: str) -> Iterator[list[str]]:
    """A namespace and one inside it, dropped at the end with all that they hold.

    And the session's settings as they were.
    """
    names = [name, f"{name}.inner"]
    for namespace in names:
        world.sql(f"CREATE NAMESPACE main_us.{namespace}")
    try:
        yield names
    finally:
        for setting in ("spark.wap.id", "spark.wap.branch", "spark.sql.sources.partitionOverwriteMode"):
            world.spark.conf.unset(setting)
        world.sql("USE spark_catalog")
        for namespace in reversed(names):
            for view in [row[1] for row in world.sql(f"SHOW VIEWS IN main_us.{namespace}") if row[0] == namespace]:
                world.sql(f"DROP VIEW main_us.{namespace}.{view}")
            for row in world.sql(f"SHOW TABLES IN main_us.{namespace}"):
                world.sql(f"DROP TABLE main_us.{namespace}.{row[1]}")
            world.sql(f"DROP NAMESPACE main_us.{namespace}")
