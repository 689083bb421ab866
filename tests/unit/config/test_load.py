"""Errors of the registry's text name file, line and field, and never repeat a secret."""

import json
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sterna.config.registry.load import parse_registry
from sterna.errors import RegistryError
from tests.unit.config import samples

TEXT = """\
regions:
  - name: us
    replica_root: s3://us-bucket/replica
    catalog: {read: "http://127.0.0.1:19120/api/v2"}
locations:
  - id: us
    prefix: s3://us-bucket
    region: us
    credential_id: us_store
    remote:
      type: s3
      options:
        endpoint: http://127.0.0.1:9000
"""
SECRET = "wJalrXUtnFEMIsecret"


def refused(text: str) -> str:
    with pytest.raises(RegistryError) as raised:
        parse_registry(text, "reg.yaml")
    # What a log shows is the whole traceback.
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    return str(raised.value)


def test_yaml_and_json_of_the_same_content_are_the_same_registry() -> None:
    one = parse_registry(TEXT, "reg.yaml")
    assert parse_registry(json.dumps(yaml.safe_load(TEXT)), "reg.json").digest() == one.digest()
    assert one.regions[0].replica_branch == "main_replica_us"
    assert one.regions[0].catalog.write == one.regions[0].catalog.read


@pytest.mark.parametrize(
    ("find", "replace", "said"),
    [
        ("region: us\n", "region: mars\n", ["reg.yaml:8: locations[0].region:", "'mars'", "['us']"]),
        ("id: us\n", "id: US\n", ["reg.yaml:6: locations[0].id:", "pattern"]),
        (
            "prefix: s3://us-bucket",
            "prefix: us-bucket",
            ["reg.yaml:7: locations[0].prefix:", "expected a URI such as s3://bucket/path"],
        ),
        ("      type: s3", "      type: ftp", ["reg.yaml:11: locations[0].remote.type:", "'s3'"]),
        (
            "prefix:",
            "prefiks:",
            ["reg.yaml:7: locations[0].prefiks:", "reg.yaml:6: locations[0].prefix: is missing, and has to be there"],
        ),
        ("    region: us", "    region: us\n    transfers: many", ["reg.yaml:9: locations[0].transfers:", "integer"]),
        ("    region: us", "    region: us\n    transfers: 0", ["reg.yaml:9: locations[0].transfers:", "1"]),
        (
            "type: s3",
            "type: local",
            ["reg.yaml:6: locations[0]: a s3:// prefix is reached by remote.type 's3', not 'local'"],
        ),
    ],
)
def test_a_fault_is_named_with_file_line_and_field(find: str, replace: str, said: list[str]) -> None:
    message = refused(TEXT.replace(find, replace, 1))
    assert all(text in message for text in said), message


def test_every_fault_is_named_at_once() -> None:
    message = refused(TEXT.replace("id: us", "id: US").replace("type: s3", "type: ftp"))
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize("text", ["", "- a", "regions", "regions: [", "a: b: c", "a: &x [*y]", "\x00"])
def test_what_is_no_registry_at_all(text: str) -> None:
    assert refused(text).startswith("reg.yaml:")


@pytest.mark.parametrize(
    "option",
    [
        "secret_access_key",
        "access_key_id",
        "session_token",
        "key",
        "sas_url",
        "service_account_credentials",
        "pass",
        "client_secret",
        "sse_customer_key",
        "connection_string",
    ],
)
def test_a_secret_option_is_refused_and_not_repeated(option: str) -> None:
    message = refused(TEXT + f"        {option}: {SECRET}\n")
    assert f"reg.yaml:14: locations[0].remote.options.{option}: looks like a secret" in message
    assert "credential_id" in message


@pytest.mark.parametrize(
    ("find", "replace"),
    [
        ("prefix: s3://us-bucket", f"prefix: s3://login:{SECRET}@us-bucket"),
        ("prefix: s3://us-bucket", f"prefix: abfss://c:{SECRET}@acc.dfs.core.windows.net/x"),
        ("http://127.0.0.1:19120", f"http://login:{SECRET}@127.0.0.1:19120"),
        ("http://127.0.0.1:9000", f"http://login:{SECRET}@127.0.0.1:9000"),
        ("http://127.0.0.1:19120", f"http://login:{SECRET}/more@127.0.0.1:19120"),
        ("    catalog:", f'    spark: "sc://spark.example:15002/;use_ssl=true;token={SECRET}"\n    catalog:'),
        ("    catalog:", f'    spark: "sc://login:{SECRET}@spark.example:15002"\n    catalog:'),
        ("    region: us", f"    region: us\n    password: {SECRET}"),
        ("    region: us", f"    region: us\n    transfers: {SECRET}"),
        ("    region: us", f"    region: us\n  secret: [{SECRET}"),
        ("    region: us", f'    region: us\n    x: "\\{SECRET}"'),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(find: str, replace: str) -> None:
    assert refused(TEXT.replace(find, replace, 1))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://", "expected http"),
        ("http:///api/v2", "expected http"),
        ("http://nessie.example/api/v2?token=1", "without query and fragment"),
        ("http://nessie.example/api/v2#1", "without query and fragment"),
        ("http://nessie.example:99999/api/v2", "a port from"),
        ("http://[::1/api/v2", "expected http"),
    ],
)
def test_an_address_that_no_catalog_is_contacted_at(address: str, expected: str) -> None:
    """So that what `registry check --offline` takes is not refused when the catalog is contacted."""
    message = refused(TEXT.replace("http://127.0.0.1:19120/api/v2", address, 1))
    assert message.startswith("reg.yaml:4: regions[0].catalog.read: ") and expected in message


@pytest.mark.parametrize(
    "prefix",
    [
        "s3://us-bucket/a/../b",
        "s3://us-bucket/%2e%2e/b",
        "s3://us-bucket//b",
        "s3://us-bucket/b?x",
        '"s3://us-bucket/\\n"',
    ],
)
def test_a_prefix_that_no_uri_could_safely_have(prefix: str) -> None:
    assert "reg.yaml:7: locations[0].prefix:" in refused(TEXT.replace("prefix: s3://us-bucket", f"prefix: {prefix}", 1))


@pytest.mark.parametrize(
    ("locations", "regions", "said"),
    [
        ([samples.location("us", "s3://again")], None, "location id 'us' appears twice"),
        (
            [samples.location("a-b", "s3://ab"), samples.location("a_b", "s3://ab2")],
            None,
            "location id 'a_b' appears twice",
        ),
        ([samples.location("x", "s3://us-bucket")], None, "location prefix 's3://us-bucket' appears twice"),
        ([samples.location("x", "s3://us-bucket/replica/x")], None, "is below the replica root"),
        ([samples.location("x", "s3a://us-bucket/replica/x")], None, "is below the replica root"),
        (
            [],
            [samples.region("us", "s3://us-bucket/r"), samples.region("eu", "s3://us-bucket/r/x")],
            "is in no location",
        ),
        (
            [],
            [samples.region("us", "s3://us-bucket/r"), samples.region("us", "s3://us-bucket/s")],
            "region 'us' appears twice",
        ),
        (
            [samples.location("x", "s3://us-bucket/in", "eu")],
            [samples.region("us", "s3://us-bucket/in/r")],
            "is in no location",
        ),
        (
            [],
            [
                samples.region("us", "s3://us-bucket/r"),
                samples.region("eu", "s3://eu-bucket/r", replica_branch="main_replica_us"),
            ],
            "replica_branch 'main_replica_us' appears twice",
        ),
        (
            [samples.location("both", "s3a://us-bucket/eu", "eu")],
            [samples.region("us", "s3://us-bucket"), samples.region("eu", "s3a://us-bucket/eu/r")],
            "contain one another",
        ),
        ([], [samples.region("us", "s3://us-bucket/r", replica_branch="main")], "sterna never writes there"),
    ],
)
def test_contradictions(locations: list, regions: list | None, said: str) -> None:
    assert said in refused(json.dumps(samples.content(locations, regions)))


@pytest.mark.parametrize("name", ["a b", "a..b", "a/", "a.", "1a", "-", "a~b", "ä"])
def test_a_branch_that_nessie_would_refuse_is_refused(name: str) -> None:
    eu = samples.region("eu", "s3://eu-bucket/r", replica_branch=name)
    assert "replica_branch" in refused(json.dumps(samples.content([], [eu, samples.region("us", "s3://us-bucket/r")])))


@pytest.mark.parametrize("name", ["a", "eu/main.replica-1_", "a/.b", "a//b", ""])
def test_a_branch_that_nessie_takes_is_taken(name: str) -> None:
    eu = samples.region("eu", "s3://eu-bucket/r", replica_branch=name)
    content = samples.content([], [eu, samples.region("us", "s3://us-bucket/r")])
    branch = parse_registry(json.dumps(content), "reg.json").region("eu").replica_branch
    assert branch == (name or "main_replica_eu")


@pytest.mark.parametrize(("id", "taken"), [("lake/eu:1", True), ("", False), ("a b", False), ("a" * 251, False)])
def test_a_credential_has_a_name_that_airflow_takes(id: str, taken: bool) -> None:
    content = json.dumps(samples.content([samples.location("x", "s3://x", "eu", credential_id=id)]))
    if taken:
        assert parse_registry(content, "reg.json").locations[-1].credential_id == id
    else:
        assert "credential_id" in refused(content)


def test_a_bucket_for_replicas_alone_is_fine() -> None:
    content = samples.content(
        [samples.location("eu-replica", "s3://eu-replica", "eu")],
        [samples.region("eu", "s3://eu-replica"), samples.region("us", "s3://us-bucket/r")],
    )
    assert parse_registry(json.dumps(content), "reg.json").region("eu").replica_root == "s3://eu-replica"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**", "a.b.c", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.**", "a.b.c", True),
        ("*.b", "a.b", True),
        ("a", "a.b", False),
        ("a.b?", "a.b1", True),
        ("a.[bc]", "a.[bc]", True),
        ("a+b.*", "a+b.c", True),
        ("a.b", "axb", False),
        ("a?b", "a.b", False),
    ],
)
def test_a_policy_matches_within_elements(pattern: str, name: str, matches: bool) -> None:
    from sterna.config.registry.policy import Policy

    assert Policy(tables=[pattern]).matches(name) is matches


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in entries:
        yield from _places(part, (*path, name))


def _changed(document: Any, path: tuple[Any, ...], value: Any) -> str:
    copy = json.loads(json.dumps(document))
    part = copy
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return yaml.safe_dump(copy)


@pytest.mark.parametrize("value", [None, {}, {1: 2}, [None], 1.5, -1, "x", True], ids=repr)
def test_no_message_has_words_of_the_library_that_validates(value: Any) -> None:
    document = {"policies": [{"tables": ["a"], "history": {"latest": 1}}], **yaml.safe_load(TEXT)}
    refusals = 0
    for path in list(_places(document))[1:]:
        try:
            parse_registry(_changed(document, path, value), "reg.yaml")
        except RegistryError as error:
            refusals += 1
            assert not re.search("[Ii]nput should|pydantic|Keys should|valid |instance of|required", str(error))
    assert refusals
