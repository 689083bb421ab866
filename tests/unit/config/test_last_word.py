"""Whatever a registry says twice is refused, and never taken by the last word.

Of this kind are keys that stand twice (`test_strict_yaml.py`), options (`test_remote_options.py`), and here: sections
of the file, one place in two spellings, names that are folded where they are used, and a connection's fields. What is
documented as an order stays one: the first policy that matches decides, and of residency rules all count.
"""

from __future__ import annotations

import json
import traceback
from typing import Any
from urllib.parse import quote

import pytest

from sterna.config.registry.credential import Credential, parse_credential, rclone_environment, store_options
from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import Location
from sterna.errors import CredentialError, RegistryError
from tests.unit.config import samples

SECRET = "wJalrXUtnFEMIsecret"
KEYFILE = {"type": "service_account", "private_key": SECRET}
STAYS = "residency:\n- tables: [hr]\n  only: [us]\n"
GOES = "residency:\n- tables: [tmp]\n  never: [eu]\n"


def text(**more: Any) -> str:
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in {**samples.content(), **more}.items())


def refused(content: str | dict[str, Any]) -> list[str]:
    with pytest.raises(RegistryError) as raised:
        parse_registry(content if isinstance(content, str) else json.dumps(content), "r.yaml")
    return [line.partition(": ")[2] for line in str(raised.value).splitlines()]


def test_two_sections_that_keep_data_at_home() -> None:
    for both in (STAYS + GOES, GOES + STAYS):
        assert refused(text() + both) == ["residency: appears twice, first in line 3: keep one"]
    twice = json.dumps(samples.content())[:-1] + ', "residency": [], "residency": [{"tables": ["hr"], "only": ["us"]}]}'
    assert refused(twice) == ["residency: appears twice, first in line 1: keep one"]


def test_keys_within_a_rule_a_location_and_its_options() -> None:
    assert refused(text() + STAYS + "  only: [us, eu]\n")[0].startswith("residency[0].only: appears twice")
    lake = '{id: l, prefix: "s3://l", region: us, remote: {type: s3, options: {region: a, region: b}}}'
    lines = refused(text(locations=[]).replace("[]", f"[{lake}]"))
    assert "locations[0].remote.options.region: appears twice, first in line 2: keep one" in lines
    priced = text().replace('"region": "us",', '"region": "us", "egress_per_gb": {"eu": 0, "eu": 1},', 1)
    assert "locations[0].egress_per_gb.eu: appears twice, first in line 2: keep one" in refused(priced)


def test_rules_of_one_match_all_count_and_policies_have_an_order() -> None:
    rules = [{"tables": ["hr"], "only": ["us"]}, {"tables": ["hr"], "never": ["us"]}]
    policies = [{"tables": ["a"], "replicate": False}, {"tables": ["a"]}]
    registry = parse_registry(text(residency=rules, policies=policies), "r.yaml")
    assert registry.exclusion_reason("hr.x", "us") and registry.exclusion_reason("hr.x", "eu")
    assert registry.exclusion_reason("a", "us")


class TestTwins:
    """One place in two spellings: whoever names a file chooses the spelling."""

    def content(self, other: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {**samples.content([samples.location("one", "s3://twin"), other]), **more}

    def test_agreeing_ones_are_fine(self) -> None:
        rule = {"locations": ["one", "two"], "only": ["us"]}
        parse_registry(json.dumps(self.content(samples.location("two", "s3a://twin"), residency=[rule])), "r.yaml")

    @pytest.mark.parametrize(
        ("prefix", "more", "said"),
        [
            ("s3a://twin/", {"region": "eu"}, "locations[3].region: {}: both have the same region"),
            ("s3n://twin", {"sweep": True}, "locations[3].sweep: {}: both have the same sweep"),
        ],
    )
    def test_what_one_says_and_the_other_does_not(self, prefix: str, more: dict[str, Any], said: str) -> None:
        place = "location 'two' is the place of 'one' in another spelling"
        assert refused(self.content(samples.location("two", prefix, **more))) == [said.format(place)]

    def test_a_rule_is_for_both(self) -> None:
        rule = {"locations": ["one"], "only": ["us"]}
        lines = refused(self.content(samples.location("two", "s3a://twin"), residency=[rule]))
        assert lines == ["residency[0].locations: location 'two' is the place of 'one' in another spelling: name both"]

    @pytest.mark.parametrize("prefixes", [("abfs://c@a", "abfss://c@a"), ("wasb://c@a", "wasbs://c@a")])
    def test_other_schemes(self, prefixes: tuple[str, str]) -> None:
        one, two = (samples.location(id, prefix) for id, prefix in zip(("one", "two"), prefixes, strict=True))
        assert "both have the same region" in refused(samples.content([one, {**two, "region": "eu"}]))[0]

    def test_one_spelling_with_and_without_a_slash(self) -> None:
        lines = refused(self.content(samples.location("two", "s3://twin/")))
        assert lines == ["locations[3].prefix: location prefix 's3://twin' appears twice: each has its own"]


def test_a_price_for_a_region_that_is_not_there() -> None:
    lake = samples.location("lake", "s3://lake", egress_per_gb={"*": 1, "europe": 2})
    assert refused(samples.content([lake])) == [
        "locations[2].egress_per_gb.europe: region 'europe' is not among the regions ['eu', 'us']"
    ]


def test_credential_ids_that_are_one_variable() -> None:
    locations = [
        samples.location("a", "s3://a", credential_id="lake"),
        samples.location("b", "s3://b", credential_id="lake"),
        samples.location("c", "s3://c", sweep_credential_id="Lake"),
    ]
    assert refused(samples.content(locations)) == [
        "locations[4].sweep_credential_id: 'Lake' and 'lake' are one variable, AIRFLOW_CONN_LAKE: rename one"
    ]


@pytest.mark.parametrize(
    ("connection", "name"),
    [
        ('{"password": "x", "password": "%s"}', "password"),
        ('{"password": "x", "p\\u0061ssword": "%s"}', "password"),
        ('{"login": "a", "login": "%s", "password": "p"}', "login"),
        ('{"conn_type": "aws", "conn_type": "%s"}', "conn_type"),
        ('{"extra": {"token": "x"}, "extra": {"token": "%s"}}', "extra"),
        ('{"extra": {"token": "x", "token": "%s"}}', "token"),
        ('{"extra": {"keyfile_dict": {"private_key": "x", "private_key": "%s"}}}', "private_key"),
        (json.dumps({"extra": '{"token": "x", "token": "%s"}'}), "token"),
        (json.dumps({"extra": {"keyfile_dict": '{"private_key": "x", "private_key": "%s"}'}}), "private_key"),
        (json.dumps({"extra": json.dumps({"keyfile_dict": '{"a": 1, "a": "%s"}'})}), "a"),
        (json.dumps({"extra": {"service_account_key": '{"a": 1, "a": "%s"}'}}), "a"),
        ("aws://a:b@/?token=x&token=%s", "token"),
        ("aws://a:b@/?__extra__={}&__extra__=%s", "__extra__"),
        ("aws://a:b@/?__extra__=" + quote('{"token": "x", "token": "') + "%s" + quote('"}'), "token"),
        ('{"extra": {"a\\nb": 1, "a\\nb": "%s"}}', "a\\nb"),
    ],
)
def test_a_field_of_a_connection_that_stands_twice_is_named_alone(connection: str, name: str) -> None:
    with pytest.raises(CredentialError) as raised:
        parse_credential("lake", connection.replace("%s", SECRET))
    assert raised.value.message == f"connection 'lake': '{name}' appears twice: keep one of them"
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_all_of_extra_and_more_beside_it() -> None:
    with pytest.raises(CredentialError, match="'lake': __extra__ is all of extra"):
        parse_credential("lake", f"aws://a:b@/?__extra__=%7B%7D&token={SECRET}")


@pytest.mark.parametrize(
    ("prefix", "credential", "fields"),
    [
        ("s3://b", Credential("c", "A", SECRET, {"aws_access_key_id": "B"}), "login and extra.aws_access_key_id"),
        (
            "s3://b",
            Credential("c", "A", SECRET, {"aws_secret_access_key": "x"}),
            "password and extra.aws_secret_access_key",
        ),
        (
            "s3://b",
            Credential("c", "A", SECRET, {"session_token": "x", "aws_session_token": "y"}),
            "extra.session_token and extra.aws_session_token",
        ),
        (
            "gs://b",
            Credential("c", extra={"keyfile_dict": KEYFILE, "service_account_key": {"type": "x"}}),
            "extra.keyfile_dict and extra.service_account_key",
        ),
        ("gs://b", Credential("c", extra={"token": "x", "access_token": SECRET}), "extra.token and extra.access_token"),
        (
            "gs://b",
            Credential("c", extra={"keyfile_dict": KEYFILE, "token": "x"}),
            "extra.keyfile_dict and extra.token",
        ),
        (
            "abfss://c@a.dfs.core.windows.net",
            Credential("c", "A", SECRET, {"tenant_id": "x", "tenantId": "y"}),
            "extra.tenant_id and extra.tenantId",
        ),
    ],
)
def test_fields_of_one_meaning_that_differ(prefix: str, credential: Credential, fields: str) -> None:
    location = Location.model_validate(samples.location("lake", prefix))
    for read in (lambda: store_options(location, credential), lambda: rclone_environment("x", location, credential)):
        with pytest.raises(CredentialError) as raised:
            read()
        assert raised.value.message == f"connection 'c' has different values in {fields}: keep one of them"


def test_fields_of_one_meaning_that_agree() -> None:
    same = Credential("c", "A", SECRET, {"aws_access_key_id": "A", "aws_secret_access_key": SECRET})
    location = Location.model_validate(samples.location("lake", "s3://b"))
    assert rclone_environment("x", location, same)["RCLONE_CONFIG_X_ACCESS_KEY_ID"] == "A"
