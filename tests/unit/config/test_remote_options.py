"""Options of a remote: rclone's own list says which there are, and what says a thing twice is refused.

Of this kind is every setting that is handed on by name to somebody who takes what he knows and drops the rest: rclone's
options, and an option that says what another setting, or sterna itself, says already.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from sterna.config.registry.credential import RCLONE_ENCODING, rclone_environment
from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import Location
from sterna.config.registry.remote_types import STORE_TYPES
from sterna.config.registry.types import SECRET_OPTION
from sterna.errors import RegistryError
from sterna.storage.rclone.transfer import find_rclone, rclone_version
from tests.unit.config import samples

SECRET = "wJalrXUtnFEMIsecret"


def content(kind: str, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    lake = samples.location("lake", samples.PREFIXES[kind], **more)
    lake["remote"]["options"] = options
    return samples.content([lake])


def refused(kind: str, options: dict[str, Any], **more: Any) -> list[str]:
    with pytest.raises(RegistryError) as raised:
        parse_registry(json.dumps(content(kind, options, **more), indent=1), "r.json")
    assert SECRET not in str(raised.value)
    return [line.partition(": ")[2] for line in str(raised.value).splitlines()]


@pytest.fixture(scope="module")
def backends() -> dict[str, list[dict[str, Any]]]:
    command = [str(find_rclone()), "config", "providers"]
    environment = {**os.environ, "RCLONE_CONFIG": os.devnull}
    output = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60).stdout
    return {backend["Name"]: backend["Options"] for backend in json.loads(output)}


@pytest.mark.parametrize("kind", STORE_TYPES)
def test_the_options_are_those_of_the_rclone_that_is_installed(
    kind: str, backends: dict[str, list[dict[str, Any]]]
) -> None:
    assert {option["Name"] for option in backends[kind]} == STORE_TYPES[kind].options, rclone_version()


@pytest.mark.parametrize("kind", STORE_TYPES)
def test_what_rclone_calls_a_password_is_refused(kind: str, backends: dict[str, list[dict[str, Any]]]) -> None:
    for option in backends[kind]:
        name = option["Name"]
        if option["IsPassword"] or SECRET_OPTION.search(name):
            (line,) = refused(kind, {name: SECRET})
            assert line.startswith(f"locations[2].remote.options.{name}: looks like a secret"), line


@pytest.mark.parametrize("kind", STORE_TYPES)
def test_every_option_that_is_no_secret_is_handed_on(kind: str) -> None:
    own = {"encoding": RCLONE_ENCODING, "account": "acc"}
    options = {name: own.get(name, "true") for name in STORE_TYPES[kind].options if not SECRET_OPTION.search(name)}
    lake = Location.model_validate(content(kind, options)["locations"][2])
    handed = rclone_environment("x", lake, None)
    missing = {name for name, value in options.items() if handed.get(f"RCLONE_CONFIG_X_{name.upper()}") != value}
    assert missing <= {"endpoint"}, "an endpoint has a form of its own for rclone"


@pytest.mark.parametrize(
    ("kind", "option", "hint"),
    [
        ("s3", "endpont", "did you mean endpoint?"),
        ("s3", "Endpoint", "did you mean endpoint?"),
        ("s3", "ENDPOINT", "did you mean endpoint?"),
        ("s3", "force-path-style", "did you mean force_path_style?"),
        ("s3", "path_style", "did you mean force_path_style?"),
        ("s3", "regoin", "did you mean region?"),
        ("s3", "type", "`rclone help backend 's3'` lists them"),
        ("s3", "bwlimit", "`rclone help backend 's3'` lists them"),
        ("s3", "project_number", "`rclone help backend 's3'` lists them"),
        ("google cloud storage", "anonymus", "did you mean anonymous?"),
        ("azureblob", "acount", "did you mean account?"),
        ("local", "endpoint", "`rclone help backend 'local'` lists them"),
    ],
)
def test_an_option_that_rclone_does_not_have_is_refused(kind: str, option: str, hint: str) -> None:
    assert refused(kind, {option: "x"}) == [
        f"locations[2].remote.options.{option}: rclone's backend {kind!r} has no such option: {hint}"
    ]


def test_each_one_is_told_with_its_own_line() -> None:
    document = content("s3", {"endpont": "x", "region": "eu", "regoin": "us"})
    text = json.dumps(document, indent=1)
    with pytest.raises(RegistryError) as raised:
        parse_registry(text, "r.json")
    lines = [1 + next(n for n, line in enumerate(text.splitlines()) if name in line) for name in ("endpont", "regoin")]
    assert [line.split(":")[1] for line in str(raised.value).splitlines()] == [str(line) for line in lines]


def test_a_name_has_one_line_and_no_control_character() -> None:
    (line,) = refused("s3", {"end\n\x1bpoint": "x"})
    assert line.isprintable() and "did you mean endpoint?" in line


@pytest.mark.parametrize(
    ("kind", "options", "field", "said"),
    [
        ("s3", {"encoding": "Slash"}, "encoding", "is always 'Slash,Ctl,Del,Dot' here"),
        ("s3", {"no_check_bucket": "false"}, "no_check_bucket", "is always 'true' here"),
        ("azureblob", {"no_check_container": "false"}, "no_check_container", "is always 'true' here"),
        ("s3", {"force_path_style": "0"}, "force_path_style", 'expected "true" or "false"'),
        ("google cloud storage", {"anonymous": "1"}, "anonymous", 'expected "true" or "false"'),
        ("azureblob", {"account": "other"}, "account", "the prefix names another one, 'acc'"),
        ("s3", {"endpoint": f"http://a:{SECRET}@h"}, "endpoint", "holds user-info"),
    ],
)
def test_what_sterna_says_itself_or_reads_otherwise(kind: str, options: dict[str, str], field: str, said: str) -> None:
    (line,) = refused(kind, options)
    assert line.startswith(f"locations[2].remote.options.{field}: {said}"), line


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("s3", {"encoding": RCLONE_ENCODING, "no_check_bucket": "true", "force_path_style": "false"}),
        ("azureblob", {"account": "acc"}),
        ("google cloud storage", {"bucket_policy_only": "false", "anonymous": "false"}),
    ],
)
def test_to_repeat_it_is_fine(kind: str, options: dict[str, str]) -> None:
    parse_registry(json.dumps(content(kind, options, credential_id="lake")), "r.json")


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("s3", "env_auth"),
        ("s3", "profile"),
        ("google cloud storage", "anonymous"),
        ("google cloud storage", "service_account_file"),
        ("azureblob", "use_msi"),
        ("azureblob", "tenant"),
        ("azureblob", "use_emulator"),
    ],
)
def test_two_logins_are_refused(kind: str, option: str) -> None:
    assert refused(kind, {option: "true"}, credential_id="lake") == [
        f"locations[2].remote.options.{option}: names another login than credential_id: remove one of them"
    ]
    parse_registry(json.dumps(content(kind, {option: "true"})), "r.json")


def test_a_configuration_that_nothing_is_read_from() -> None:
    document = content("s3", {})
    document["locations"][2]["remote"]["config"] = "/etc/rclone.conf"
    with pytest.raises(RegistryError, match=r"locations\[2\]\.remote\.config: it is for a remote of that file"):
        parse_registry(json.dumps(document), "r.json")
