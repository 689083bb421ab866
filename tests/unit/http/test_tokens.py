"""What a token must say; that a real catalog says the same is in tests/integration/http/test_tokens_oracle.py."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from sterna.errors import CredentialError
from sterna.serving.http.errors import RequestError
from sterna.serving.http.tokens import build_verifier
from tests.support.issuer import Issuer, encoded, public_key

ISSUER = Issuer("https://id")


def roles_of(token: str, **settings: str) -> set[str] | None:
    """The roles of a token, None where it is refused."""
    verify = build_verifier({"QUARKUS_OIDC_PUBLIC_KEY": public_key(), **settings})
    assert verify is not None
    try:
        return set(verify(token).roles)
    except RequestError as refused:
        assert refused.status == 401
        return None


@pytest.mark.parametrize(
    "member", ['"iss": "https://id"', '"exp": 9999999999', '"groups": ["admin"]', '"a": {}, "a": {}']
)
def test_a_token_that_says_something_twice_is_refused(member: str) -> None:
    claims = json.dumps(ISSUER.claims())
    assert roles_of(ISSUER.signed(claims)) == {"reader"}
    assert roles_of(ISSUER.signed(claims.replace("{", f"{{{member}, ", 1))) is None
    assert roles_of(ISSUER.headed('{"alg": "HS256", "alg": "RS256"}')) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"iat": None},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": 1e300},
        {"nbf": "0"},
        {"iat": 9_999_999_998, "exp": 9_999_999_997},
        {"iss": ["https://id"]},
        {"sub": 5},
        {"typ": "Refresh"},
    ],
)
def test_claims_that_are_absent_or_of_another_kind_are_no_claims(claims: dict[str, Any]) -> None:
    assert roles_of(ISSUER.token(**claims)) is None


def test_a_token_that_is_nested_endlessly_is_refused() -> None:
    deep = '{"alg": "RS256", "a": ' + "[" * 2_000 + "]" * 2_000 + "}"
    for text in ("[" * 4_000, '{"a": ' * 600, deep):
        assert roles_of(ISSUER.signed(text)) is None
    _, claims, signature = ISSUER.token().split(".")
    assert roles_of(f"{encoded(deep)}.{claims}.{signature}") is None


def test_an_issuer_s_clock_may_be_ahead_of_this_one() -> None:
    now = int(time.time())
    assert roles_of(ISSUER.token(iat=now + 60)) == {"reader"}
    assert roles_of(ISSUER.token(nbf=now + 60)) is None


def test_roles_that_are_no_text_keep_keycloak_s_from_being_asked_for() -> None:
    realm = {"roles": ["reader"]}
    assert roles_of(ISSUER.token(groups=[None, ""], realm_access=realm)) == {"reader"}
    for groups in ([1], {"a": 1}, True, 0):
        assert roles_of(ISSUER.token(groups=groups, realm_access=realm)) == set()


def test_a_path_finds_what_it_names_and_nothing_on_the_way() -> None:
    path = {"QUARKUS_OIDC_ROLES_ROLE_CLAIM_PATH": 'a/"b/c", d\\,e'}
    assert roles_of(ISSUER.token(a={"b/c": "x y"}, **{"d,e": ["z"]}), **path) == {"x", "y", "z"}
    assert roles_of(ISSUER.token(a=["x"]), **path) == roles_of(ISSUER.token(a={"b": {"c": ["x"]}}), **path) == set()


@pytest.mark.parametrize("name", ["TOKEN_AGE", "TOKEN_REQUIRED_CLAIMS__TENANT_", "ROLES_ROLE_CLAIM_SEPARATOR"])
def test_a_setting_by_which_the_catalog_refuses_more_is_not_passed_over(name: str) -> None:
    with pytest.raises(CredentialError, match=name):
        build_verifier({"QUARKUS_OIDC_AUTH_SERVER_URL": "http://127.0.0.1:1", f"QUARKUS_OIDC_{name}": "5"})
    assert build_verifier({f"QUARKUS_OIDC_{name}": "5"}) is None
