"""What of a registry its digest covers: all that decides a replica, and nothing else.

A region whose head has another digest compares every key, so a setting that decides nothing must not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, get_args

import pytest
from pydantic import create_model

from sterna.config.limits import Limits
from sterna.config.mapping import Mapping
from sterna.config.registry.model import (
    FIRST_SETTINGS,
    CatalogAddress,
    CatalogDatabase,
    Location,
    Region,
    Registry,
    Remote,
)
from sterna.config.registry.policy import (
    AdmissionPolicy,
    History,
    Objective,
    Policy,
    Residency,
    StrictModel,
    ViewCatalogs,
)
from tests.unit.config import samples

Content = dict[str, Any]
Change = Callable[[Content], Any]


def _database(name: str) -> Content:
    return {"read": f"http://{name}:19120/api/v2", "database": {"hosts": [f"{name}:5432"], "credential_id": "catalog"}}


CONTENT: Content = {
    "regions": [
        samples.region("us", "s3://us-bucket/replica", catalog=_database("us")),
        samples.region("eu", "s3://eu-bucket/replica", catalog=_database("eu")),
    ],
    "locations": [
        samples.location("us", "s3://us-bucket"),
        samples.location("eu", "s3://eu-bucket", "eu"),
        samples.location("lake", "oss://lake"),
    ],
    "policies": [
        {"tables": ["a.*", "b.*"], "history": {"latest": 3}},
        {"tables": ["b.*", "c.*"], "replicate": False},
    ],
    "residency": [{"tables": ["hr.*"], "only": ["us"]}, {"tables": ["x.*"], "never": ["eu"]}],
}


def digest(*changes: Change, content: Content = CONTENT) -> str:
    changed = deepcopy(content)
    for change in changes:
        change(changed)
    return Registry.model_validate(changed).digest()


def put(*path: str | int, value: Any) -> Change:
    """Put a value in the place that keys and indexes lead to."""

    def change(content: Content) -> None:
        at: Any = content
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return change


def add_region(content: Content) -> None:
    content["regions"].append(samples.region("ap", "s3://ap-bucket/replica", catalog=_database("ap")))
    content["locations"].append(samples.location("ap", "s3://ap-bucket", "ap"))


def rename_region(content: Content) -> None:
    content["regions"][1] |= {"name": "ap", "replica_branch": "main_replica_eu"}
    content["locations"][1]["region"] = "ap"
    content["residency"][1]["never"] = ["ap"]


def one_catalog(content: Content) -> None:
    for region in content["regions"]:
        del region["catalog"]["database"]


EU = ("regions", 1)
CATALOG = (*EU, "catalog")
DATABASE = (*CATALOG, "database")
LAKE = ("locations", 2)

COUNTS: dict[tuple[type[StrictModel], str], Change] = {
    (Registry, "regions"): add_region,
    (Registry, "locations"): lambda content: content["locations"].append(samples.location("more", "s3://more")),
    (Registry, "policies"): put("policies", value=[]),
    (Registry, "residency"): put("residency", value=[]),
    (Registry, "views"): put("views", value={"own_catalogs": ["lake"]}),
    (ViewCatalogs, "own_catalogs"): put("views", value={"own_catalogs": ["lake", "main"], "other_catalogs": ["pg"]}),
    (Region, "name"): rename_region,
    (Region, "replica_root"): put(*EU, "replica_root", value="s3://eu-bucket/elsewhere"),
    (Region, "replica_branch"): put(*EU, "replica_branch", value="europe"),
    (Region, "verbatim_copies"): put(*EU, "verbatim_copies", value=True),
    (Location, "id"): put(*LAKE, "id", value="pond"),
    (Location, "prefix"): put(*LAKE, "prefix", value="oss://pond"),
    (Location, "region"): put(*LAKE, "region", value="eu"),
    (Policy, "tables"): put("policies", 1, "tables", value=["c.*"]),
    (Policy, "replicate"): put("policies", 0, "replicate", value=False),
    (Policy, "history"): put("policies", 0, "history", value="full"),
    (History, "latest"): put("policies", 0, "history", value={"latest": 4}),
    (History, "since"): put("policies", 0, "history", value={"since": "7d"}),
    (Residency, "tables"): put("residency", 0, "tables", value=["hr.**"]),
    (Residency, "locations"): put("residency", 1, "locations", value=["us"]),
    (Residency, "prefixes"): put("residency", 1, "prefixes", value=["s3://us-bucket/secret"]),
    (Residency, "only"): put("residency", 0, "only", value=[]),
    (Residency, "never"): put("residency", 1, "never", value=["us"]),
}
DOES_NOT: dict[tuple[type[StrictModel], str], Change] = {
    (Region, "catalog"): put(*CATALOG, value=_database("elsewhere")),
    (Region, "spark"): put(*EU, "spark", value="sc://spark:15002"),
    (Region, "localize"): put(*EU, "localize", value="here"),
    (CatalogAddress, "read"): put(*CATALOG, "read", value="http://elsewhere/api/v2"),
    (CatalogAddress, "write"): put(*CATALOG, "write", value="http://elsewhere/api/v2"),
    (CatalogAddress, "credential_id"): put(*CATALOG, "credential_id", value="nessie"),
    (CatalogAddress, "database"): one_catalog,
    (CatalogDatabase, "hosts"): put(*DATABASE, "hosts", value=["one:5432", "two:5432"]),
    (CatalogDatabase, "name"): put(*DATABASE, "name", value="other"),
    (CatalogDatabase, "role"): put(*DATABASE, "role", value="other"),
    (CatalogDatabase, "credential_id"): put(*DATABASE, "credential_id", value="other"),
    (CatalogDatabase, "replication_hosts"): put(*DATABASE, "replication_hosts", value=["other:5432"]),
    (CatalogDatabase, "replication_credential_id"): put(*DATABASE, "replication_credential_id", value="other"),
    (CatalogDatabase, "sslmode"): put(*DATABASE, "sslmode", value="require"),
    (CatalogDatabase, "look_timeout"): put(*DATABASE, "look_timeout", value=3),
    (CatalogDatabase, "work_timeout"): put(*DATABASE, "work_timeout", value=30),
    (Location, "remote"): put(*LAKE, "remote", value={"type": "azureblob"}),
    (Location, "credential_id"): put(*LAKE, "credential_id", value="store"),
    (Location, "egress_per_gb"): put(*LAKE, "egress_per_gb", value={"*": 0.09}),
    (Location, "bandwidth"): put(*LAKE, "bandwidth", value="08:00,20M 19:00,off UTC"),
    (Location, "transfers"): put(*LAKE, "transfers", value=4),
    (Location, "checkers"): put(*LAKE, "checkers", value=4),
    (Location, "sweep"): put(*LAKE, "sweep", value=True),
    (Location, "sweep_credential_id"): put(*LAKE, "sweep_credential_id", value="sweeper"),
    (Remote, "type"): put(*LAKE, "remote", "type", value="azureblob"),
    (Remote, "options"): put(*LAKE, "remote", "options", value={"endpoint": "http://127.0.0.1:9000"}),
    (Remote, "name"): put(*LAKE, "remote", "name", value="lake"),
    (Remote, "config"): put(*LAKE, "remote", value={"type": "s3", "name": "lake", "config": "/etc/rclone.conf"}),
    (ViewCatalogs, "other_catalogs"): put("views", value={"other_catalogs": ["pg"]}),
    (Policy, "atomic"): put("policies", 0, "atomic", value="relaxed"),
    (AdmissionPolicy, "after"): put("policies", 0, "ship", value={"after": "2h"}),
    (Policy, "ship"): put("policies", 0, "ship", value={"after": "15m"}),
    (Policy, "objective"): put("policies", 0, "objective", value={"lag": "60s", "share": 0.99}),
    (Objective, "lag"): put("policies", 0, "objective", value={"lag": "15m", "share": 0.999}),
    (Objective, "share"): put("policies", 0, "objective", value={"lag": "60s", "share": 0.5}),
    (Policy, "keep_dropped"): put("policies", 0, "keep_dropped", value="30d"),
    (Region, "limits"): put(*EU, "limits", value={}),
    (Region, "bulk_copy_threshold"): put(*EU, "bulk_copy_threshold", value=7),
    **{(Limits, name): put(*EU, "limits", value={name: 7}) for name in Limits.model_fields},
}


def _named(cases: dict[tuple[type[StrictModel], str], Change]) -> list[Any]:
    return [pytest.param(change, id=f"{model.__name__}.{name}") for (model, name), change in cases.items()]


@pytest.mark.parametrize("change", _named(COUNTS))
def test_what_decides_a_replica_changes_the_digest(change: Change) -> None:
    assert digest(change) != digest()


@pytest.mark.parametrize("change", _named(DOES_NOT))
def test_what_decides_nothing_leaves_the_digest_as_it_is(change: Change) -> None:
    assert digest(change) == digest()


def test_another_version_of_the_file_changes_the_digest() -> None:
    registry = Registry.model_validate(CONTENT)
    assert registry.model_copy(update={"version": 2}).digest() != registry.digest()


def _models(kind: Any) -> Iterator[type[StrictModel]]:
    """Yield the registry's models that an annotation leads to."""
    if isinstance(kind, type) and issubclass(kind, StrictModel):
        yield kind
        for item in kind.model_fields.values():
            yield from _models(item.annotation)
    for part in get_args(kind):
        yield from _models(part)


def test_of_every_field_it_is_decided_whether_it_counts() -> None:
    fields = {(model, name) for model in _models(Registry) for name in model.model_fields}
    undecided = {f"{model.__name__}.{name}" for model, name in fields - {*COUNTS, *DOES_NOT, (Registry, "version")}}
    assert not undecided, (
        f"{sorted(undecided)}: does it change where a URI is mapped to, which keys are replicated, or how much of "
        "them? Then Registry.digest has to cover it (left out at its default, so that registries without it keep their "
        "digest) and COUNTS a change of it; else DOES_NOT"
    )
    assert {*COUNTS, *DOES_NOT} <= fields


def test_the_digest_of_a_registry_stays_what_it_is() -> None:
    """A change here means that after an upgrade every region compares every key once more: was that wanted?"""
    assert digest() == "7e7df7c4cdca2207"
    assert digest(content=samples.content()) == "ef3640ba53a25e2f"


def test_a_field_that_comes_later_changes_no_digest_before_it_is_set() -> None:
    later: Any = {"later": (str | None, None)}
    policy = create_model("LaterPolicy", __base__=Policy, **later)
    location = create_model("LaterLocation", __base__=Location, **later)
    fields: Any = {"policies": (list[policy], []), "locations": (list[location], ...), **later}
    assert create_model("LaterRegistry", __base__=Registry, **fields).model_validate(CONTENT).digest() == digest()


def test_what_is_the_default_may_be_written_out() -> None:
    assert digest(put("version", value=1)) == digest()
    assert digest(put(*EU, "replica_branch", value="main_replica_eu")) == digest()
    assert digest(put("policies", 0, "replicate", value=True)) == digest()
    assert digest(put("policies", 1, "history", value="full")) == digest()
    assert digest(put("residency", 1, "only", value=None)) == digest()


def _turned(name: str) -> Change:
    return lambda content: content[name].reverse()


@pytest.mark.parametrize("name", ["regions", "locations", "residency"])
def test_their_order_does_not_count(name: str) -> None:
    assert digest(_turned(name)) == digest()


def test_the_order_of_patterns_and_names_of_one_rule_does_not_count() -> None:
    assert digest(put("policies", 0, "tables", value=["b.*", "a.*", "b.*"])) == digest()
    both = put("residency", 1, "never", value=["us", "eu"])
    assert digest(both) == digest(put("residency", 1, "never", value=["eu", "us"]))


def test_the_order_of_policies_counts() -> None:
    assert digest(_turned("policies")) != digest()


def test_a_last_policy_that_says_what_the_default_says_does_not_count() -> None:
    assert digest(lambda content: content["policies"].append({"tables": ["z.*"], "atomic": "relaxed"})) == digest()
    # In front of another it takes tables away from it.
    assert digest(lambda content: content["policies"].insert(0, {"tables": ["a.*"], "atomic": "relaxed"})) != digest()


def test_order_counts_among_locations_that_are_one_place_in_two_spellings() -> None:
    twins = samples.content([samples.location("one", "s3://twin"), samples.location("other", "s3a://twin")])
    turned = deepcopy(twins)
    turned["locations"].reverse()
    places = [
        Mapping(registry, registry.region("eu")).replica_uri("s3n://twin/x")
        for registry in map(Registry.model_validate, (twins, turned))
    ]
    assert places == ["s3://eu-bucket/replica/one~s3n/x", "s3://eu-bucket/replica/other~s3n/x"]
    assert digest(content=twins) != digest(content=turned)


def test_the_names_of_localized_metadata_stay_what_they_are() -> None:
    """A change here gives each metadata.json of every region another name: every table is localized anew."""
    registry = Registry.model_validate(samples.content())
    mapping = Mapping(registry, registry.region("eu"))
    histories: dict[str, Any] = {"full": "full", "latest": {"latest": 5}, "since": {"since": "7d"}}
    policies = {
        name: Policy.model_validate({"tables": ["**"], "history": history}) for name, history in histories.items()
    }
    assert {name: mapping.digest(policy, 3) for name, policy in policies.items()} == {
        "full": "d9d9db977cb42d3b",
        "latest": "f83cb118775d3209",
        "since": "be2a516cace0ec36",
    }


SMALL: Content = {
    "regions": [{"name": "us", "replica_root": "s3://us/replica", "catalog": {"read": "http://nessie/api/v2"}}],
    "locations": [{"id": "us", "prefix": "s3://us", "region": "us", "remote": {"type": "s3"}}],
}
FULL: Content = {
    "version": 1,
    "regions": [
        {
            "name": "us",
            "replica_branch": "copy_us",
            "replica_root": "s3://us/replica",
            "catalog": {
                "read": "http://us/api/v2",
                "write": "http://us:1/api/v2",
                "credential_id": "nessie",
                "database": {
                    "hosts": ["us:5432"],
                    "name": "other",
                    "role": "writer",
                    "credential_id": "pg",
                    "replication_hosts": ["wide:5432"],
                    "replication_credential_id": "copy",
                    "sslmode": "require",
                    "look_timeout": 3,
                    "work_timeout": 30,
                },
            },
            "spark": "local[2]",
            "localize": "here",
            "limits": {"file_bytes": 1000000, "manifests": 7},
            "bulk_copy_threshold": 5,
        },
        {
            "name": "eu",
            "replica_root": "s3://eu/replica",
            "catalog": {"read": "http://eu/api/v2", "database": {"hosts": ["eu:5432"], "credential_id": "pg"}},
        },
    ],
    "locations": [
        {
            "id": "us",
            "prefix": "s3://us",
            "region": "us",
            "remote": {
                "type": "s3",
                "options": {"provider": "Minio"},
                "name": "lake",
                "config": "/etc/rclone.conf",
            },
            "credential_id": "store",
            "egress_per_gb": {"*": 0.09},
            "bandwidth": "20M",
            "transfers": 4,
            "checkers": 5,
            "sweep": True,
            "sweep_credential_id": "sweeper",
        },
        {"id": "eu", "prefix": "s3://eu", "region": "eu", "remote": {"type": "s3"}},
    ],
    "policies": [
        {
            "tables": ["a.*"],
            "replicate": False,
            "history": {"latest": 3},
            "atomic": "relaxed",
            "ship": {"after": "15m"},
        },
        {"tables": ["b.*"], "history": {"since": "7d"}},
    ],
    "residency": [
        {"tables": ["hr.*"], "locations": ["us"], "prefixes": ["s3://us/x"], "only": ["us"]},
        {"tables": ["x.*"], "never": ["eu"]},
    ],
}


@pytest.mark.parametrize(("content", "fingerprint"), [(SMALL, "8e8e449ec0ad2f51"), (FULL, "1a2a87cd0c18af34")])
def test_a_fingerprint_stays(content: Content, fingerprint: str) -> None:
    """Commit b5071db wrote it into plans and rounds; with another one they are begun anew."""
    assert Registry.model_validate(content).fingerprint() == fingerprint


def test_a_setting_that_came_later_counts_where_it_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(**more: Any) -> str:
        return Registry.model_validate({**SMALL, "regions": [{**SMALL["regions"][0], **more}]}).fingerprint()

    default, other = fingerprint(), fingerprint(bulk_copy_threshold=5)
    monkeypatch.setitem(FIRST_SETTINGS, Region, FIRST_SETTINGS[Region] - {"large_copy"})
    assert fingerprint() == fingerprint(bulk_copy_threshold=1 << 30) != default
    assert fingerprint(bulk_copy_threshold=5) == other
