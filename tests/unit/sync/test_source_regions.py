"""From which regions files are copied: by price, by what a region shows, and never from one that may not have them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Location, Registry
from sterna.replication.execution import source_regions
from sterna.replication.execution.source_regions import SourceOrder, SourceRegions, TableReplica, first_turn
from tests.unit.config import samples

REGIONS = ("ap", "eu", "sa", "us", "za")
HERE, TABLE = "ap", "ns.t"
PRICES = (0.0, 0.02, 0.09)
SEEDS = range(150)
TURNS = 12


@dataclass(frozen=True)
class Case:
    """What one of five regions copies of another one's lake, by random prices, rules and heads."""

    registry: Registry
    origin: Location
    replicas: tuple[TableReplica, ...]

    @property
    def sources(self) -> SourceRegions:
        return SourceRegions(Mapping(self.registry, self.registry.region(HERE)))

    def order(self, turn: int = 0) -> SourceOrder:
        return self.sources.order(self.origin, self.replicas, turn=turn)


def build_registry(prices: dict[str, dict[str, float]], residency: tuple[dict[str, Any], ...] = ()) -> Registry:
    """Return a registry of the five regions, each of which has a lake and a bucket for its replica."""
    return Registry.model_validate(
        {
            "regions": [samples.region(name, f"s3://{name}-replica") for name in REGIONS],
            "locations": [
                samples.location(f"{name}-{part}", f"s3://{name}-{part}", name, egress_per_gb=prices.get(name, {}))
                for name in REGIONS
                for part in ("lake", "replica")
            ],
            "residency": list(residency),
        }
    )


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    home = rng.choice([name for name in REGIONS if name != HERE])
    prices = {
        name: {reader: rng.choice(PRICES) for reader in (HERE, "za", "*") if rng.random() < 0.5} for name in REGIONS
    }
    excluded = [name for name in REGIONS if name not in (HERE, home) and rng.random() < 0.2]
    rules: list[dict[str, Any]] = [
        {"tables": ["ns.**"]},
        {"locations": [f"{home}-lake"]},
        {"prefixes": [f"s3a://{home}-lake"]},
    ]
    residency = ({**rng.choice(rules), "never": excluded},) if excluded else ()
    registry = build_registry(prices, residency)
    replicas = tuple(TableReplica(name, TABLE, rng.random() < 0.6) for name in REGIONS if rng.random() < 0.8)
    return Case(registry, next(place for place in registry.locations if place.id == f"{home}-lake"), replicas)


def permitted(case: Case, name: str) -> bool:
    """Whether no rule keeps the files out of a region, read from the rules themselves."""
    return all(name not in rule.never for rule in case.registry.residency)


def price(case: Case, name: str) -> float:
    """What a GB from a region costs, read from the registry itself."""
    prices = next(place.egress_per_gb for place in case.registry.locations if place.id == f"{name}-replica")
    return next((prices[reader] for reader in (HERE, "*") if reader in prices), 0.0)


def check(case: Case) -> None:
    """Raise AssertionError where a case is ordered otherwise than is promised."""
    current = {replica.region: replica.is_current for replica in case.replicas}
    firsts: Counter[str] = Counter()
    for turn in range(TURNS):
        order = case.order(turn)
        names = (*order.preferred, case.origin.region, *order.fallbacks)
        expected = {name for name in current if permitted(case, name)} - {HERE} | {case.origin.region}
        assert sorted(names) == sorted(expected)
        ranks = [(price(case, name), 1 if name == case.origin.region else 0 if current[name] else 2) for name in names]
        assert all(first <= second for first, second in pairwise(ranks))
        firsts[names[0]] += 1
        equals = {name for name, rank in zip(names, ranks, strict=True) if rank == ranks[0]}
    assert firsts == dict.fromkeys(equals, TURNS // len(equals))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cheapest_region_that_may_have_the_files_is_first(seed: int) -> None:
    check(random_case(seed))


def without_star(self: Location, region: str) -> float:
    return self.egress_per_gb.get(region, 0.0)


def without_rules(self: SourceRegions, replica: TableReplica, origin: Location) -> bool:
    return True


def price_of_the_lake(self: SourceRegions, region: str) -> Location:
    return next(place for place in self.mapping.registry.locations if place.region == HERE)


def without_turns(real: Callable[..., tuple[str, ...]]) -> Callable[..., tuple[str, ...]]:
    return lambda ranks, turn: real(ranks, 0)


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (Location, "egress_price", without_star),
        (SourceRegions, "may_have", without_rules),
        (SourceRegions, "replica_location", price_of_the_lake),
        (source_regions, "take_turns", without_turns(source_regions.take_turns)),
    ],
)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            check(random_case(seed))


def test_without_other_replicas_there_is_the_origin_alone() -> None:
    registry = build_registry({"us": {"*": 9.0}})
    sources = SourceRegions(Mapping(registry, registry.region(HERE)))
    origin = next(place for place in registry.locations if place.id == "us-lake")
    own = [TableReplica(name, TABLE, is_current=True) for name in (HERE, "us")]
    assert sources.order(origin, []) == sources.order(origin, own) == SourceOrder()


def test_a_region_that_is_current_for_one_of_several_tables_counts_as_current() -> None:
    registry = build_registry({})
    sources = SourceRegions(Mapping(registry, registry.region(HERE)))
    origin = next(place for place in registry.locations if place.id == "us-lake")
    older, current = TableReplica("eu", "ns.a", is_current=False), TableReplica("eu", "ns.b", is_current=True)
    assert sources.order(origin, [older]) == SourceOrder((), ("eu",))
    assert sources.order(origin, [older, current]) == sources.order(origin, [current, older]) == SourceOrder(("eu",))


def test_a_copy_lies_where_the_region_has_it_and_nowhere_where_it_may_have_none() -> None:
    by_place = {"prefixes": ["s3://us-lake/secret"], "never": ["eu"]}
    registry = build_registry({}, (by_place, {"tables": ["ns.secret"], "never": ["eu"]}))
    sources = SourceRegions(Mapping(registry, registry.region(HERE)))
    assert sources.copy_uri("eu", TABLE, "s3://us-lake/t/x") == "s3://eu-replica/us-lake/t/x"
    assert sources.copy_uri("eu", TABLE, "s3a://us-lake/t/x") == "s3://eu-replica/us-lake~s3a/t/x"
    assert sources.copy_uri("us", TABLE, "s3://us-lake/t/x") == ""
    assert sources.copy_uri("eu", TABLE, "s3://za-replica/us-lake/t/x") == "s3://eu-replica/us-lake/t/x", (
        "after a promotion"
    )
    assert sources.copy_uri("eu", TABLE, "s3://us-lake/secret/x") == ""
    assert sources.copy_uri("za", TABLE, "s3://us-lake/secret/x") != ""
    assert sources.copy_uri("eu", "ns.secret", "s3://us-lake/t/x") == ""
    assert sources.copy_uri("eu", TABLE, "s3://elsewhere/x") == sources.copy_uri("eu", TABLE, "s3://us-lake/../x") == ""


def test_regions_begin_with_turns_of_their_own_and_the_same_ones_each_time() -> None:
    turns = {name: first_turn(name, [TABLE]) for name in REGIONS}
    assert turns == {name: first_turn(name, [TABLE]) for name in REGIONS}
    assert len(set(turns.values())) == len(REGIONS)
    assert first_turn(HERE, ["ns.a", "ns.b"]) != first_turn(HERE, ["ns.a"])
