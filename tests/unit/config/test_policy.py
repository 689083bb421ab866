"""Policies and residency rules: what they match, and how they are spelled."""

import pytest

from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import Registry
from sterna.config.registry.policy import History, Policy, Residency, enclosing_names
from sterna.errors import RegistryError
from tests.unit.config.samples import content


def registry(**changes: object) -> Registry:
    return Registry.model_validate({**content(), **changes})


@pytest.mark.parametrize(
    ("spelled", "latest", "since_ms"),
    [
        ("full", None, None),
        ({"latest": 3}, 3, None),
        ({"since": "90s"}, None, 90_000),
        ({"since": "2m"}, None, 120_000),
        ({"since": "7d"}, None, 7 * 86_400_000),
        ({"since": "2w"}, None, 14 * 86_400_000),
    ],
)
def test_history_is_spelled_in_three_ways(spelled: object, latest: int | None, since_ms: int | None) -> None:
    policy = Policy.model_validate({"tables": ["**"], "history": spelled})
    assert (policy.history.latest, policy.history.since_ms) == (latest, since_ms)
    assert Policy.model_validate_json(policy.model_dump_json()) == policy, "workers get the registry as JSON"


@pytest.mark.parametrize(
    "spelled",
    [
        "newest",
        {"latest": 0},
        {"latest": 2, "since": "7d"},
        {"since": "7"},
        {"since": "0d"},
        {"since": 7},
        {"keep": 3},
        5,
        None,
    ],
)
def test_any_other_history_is_refused(spelled: object) -> None:
    with pytest.raises(ValueError, match="history"):
        Policy.model_validate({"tables": ["**"], "history": spelled})


@pytest.mark.parametrize("spelled", ["", "30", "0d", "5300w", "999999999w"])
def test_dropped_files_are_kept_for_a_duration_of_at_most_a_century(spelled: str) -> None:
    with pytest.raises(ValueError, match="keep_dropped: "):
        Policy.model_validate({"tables": ["**"], "keep_dropped": spelled})
    assert Policy(tables=["**"], keep_dropped="5200w").keep_dropped_seconds == 5200 * 7 * 86_400


def test_full_is_the_default() -> None:
    assert Policy(tables=["**"]).history == History()


@pytest.mark.parametrize(
    ("rule", "name", "region", "refused"),
    [
        ({"tables": ["hr.**"], "only": ["eu"]}, "hr.people", "us", True),
        ({"tables": ["hr.**"], "only": ["eu"]}, "hr.people", "eu", False),
        ({"tables": ["hr.**"], "only": ["eu"]}, "hr", "us", False),
        ({"tables": ["hr"], "only": ["eu"]}, "hr", "us", True),
        ({"tables": ["hr"], "only": ["eu"]}, "hr.deep.people", "us", True),
        ({"tables": ["hr"], "only": ["eu"]}, "hrx.people", "us", False),
        ({"tables": ["hr"], "only": []}, "hr.people", "eu", True),
        ({"tables": ["*.secret_*"], "never": ["us"]}, "a.secret_b", "us", True),
        ({"tables": ["*.secret_*"], "never": ["us"]}, "a.secret_ns.t", "us", True),
        ({"tables": ["*.secret_*"], "never": ["us"]}, "a.secret_b", "eu", False),
        ({"tables": ["*.t"], "never": ["us"]}, "a\\.b.t", "us", True),
        ({"tables": ["a.*"], "never": ["us"]}, "a\\.b", "us", False),
    ],
)
def test_a_rule_refuses_what_it_matches(rule: dict[str, object], name: str, region: str, refused: bool) -> None:
    assert bool(Residency.model_validate(rule).exclusion_reason(name, region)) is refused


@pytest.mark.parametrize(
    "rule", [{"tables": ["a"]}, {"tables": ["a"], "only": ["eu"], "never": ["us"]}, {"tables": [], "never": ["us"]}]
)
def test_a_rule_must_say_one_thing(rule: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="residency"):
        registry(residency=[rule])


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"locations": ["mars"], "never": ["eu"]}, "location 'mars' is not among"),
        ({"locations": ["us"], "never": ["us"]}, "location 'us' is in region 'us', which the rule refuses"),
        ({"locations": ["us"], "only": []}, "which the rule refuses"),
        ({"prefixes": ["s3://us-bucket/x"], "only": ["eu"]}, "is in region 'us', which the rule refuses"),
        ({"prefixes": ["s3://nowhere/x"], "never": ["eu"]}, "is in no location"),
        ({"never": ["eu"]}, "expected tables, locations or prefixes"),
    ],
)
def test_a_rule_for_places_that_would_protect_nothing_is_refused(rule: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        registry(residency=[rule])


def test_a_rule_for_places_refuses_no_key() -> None:
    parsed = registry(residency=[{"locations": ["us"], "never": ["eu"]}])
    assert parsed.exclusion_reason("a.b", "eu") == ""
    assert not parsed.has_exclusions


def test_a_rule_that_names_an_unknown_region_is_refused() -> None:
    text = registry().model_dump_json()
    wrong = text.replace('"residency":[]', '"residency":[{"tables":["a"],"never":["mars"]}]')
    with pytest.raises(RegistryError, match=r"residency\[0\]\.never\[0\]: region 'mars'"):
        parse_registry(wrong, "r.json")


def test_every_matching_rule_counts_and_the_reason_names_it() -> None:
    rules = [{"tables": ["a.*"], "never": ["us"]}, {"tables": ["a.b"], "only": ["us"]}]
    parsed = registry(residency=rules, policies=[{"tables": ["tmp.*"], "replicate": False}])
    assert parsed.exclusion_reason("a.b", "us") == "residency 'a.*': never in us"
    assert parsed.exclusion_reason("a.b", "eu") == "residency 'a.b': only in us"
    assert parsed.exclusion_reason("tmp.x", "eu") == "policy 'tmp.*': replicate is false"
    assert parsed.exclusion_reason("tmp.x", "eu", namespace=True) == ""
    assert parsed.exclusion_reason("c.d", "eu") == ""
    assert parsed.has_exclusions
    assert not registry().has_exclusions


def test_enclosing_namespaces_are_cut_at_dots_that_separate() -> None:
    assert enclosing_names("a.b\\.c.d") == ["a", "a.b\\.c", "a.b\\.c.d"]
