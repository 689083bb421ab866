"""The same tokens to a real Nessie and to the gateway, which has the same settings: both say the same of each.

Where the gateway is stricter than Nessie the table says so, and why. It never is more lenient.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.servers.nessie import start_nessie
from sterna.serving.http.context import READER_ROLES
from sterna.serving.http.errors import RequestError
from sterna.serving.http.tokens import Verifier, build_verifier
from tests.support.issuer import NAMELESS, Issuer, IssuerAccess, encoded, issuer, public_key

# What somebody is told who wants to see main: Nessie's own statuses.
READS, NO_ROLE, REFUSED = 200, 403, 401
URI = "https://example.com/roles"


@dataclass(frozen=True)
class Case:
    """A token, and what becomes of it.

    Args:
        make: makes it, when it is sent: some are good for moments.
        nessie: what Nessie answers.
        gateway: what the gateway does, where it is stricter.
        reason: the reason why it is.
    """

    make: Callable[[Issuer], str]
    nessie: int
    gateway: int | None = None
    reason: str = ""


def claiming(expected: int, **claims: Any) -> Case:
    """A token with some claims changed; None takes one away."""
    return Case(lambda token_issuer: token_issuer.token(**claims), expected)


def timed(expected: int, **seconds: float | None) -> Case:
    """A token with times so many seconds from now."""

    def make(token_issuer: Issuer) -> str:
        now = int(time.time())
        return token_issuer.token(
            **{name: None if offset is None else now + offset for name, offset in seconds.items()}
        )

    return Case(make, expected)


def spelled(expected: int, old: str, new: str, **claims: Any) -> Case:
    """A token in whose claims' text something is replaced."""

    def make(token_issuer: Issuer) -> str:
        text = json.dumps(token_issuer.claims(**claims))
        assert old in text
        return token_issuer.signed(text.replace(old, new, 1))

    return Case(make, expected)


def header(expected: int, signer: str = "one", **header: Any) -> Case:
    """A good token with another header, or of another key."""
    return Case(lambda token_issuer: token_issuer.signed(signer=signer, **header), expected)


def shaped(expected: int, make: Callable[[Issuer], str]) -> Case:
    """Any text."""
    return Case(make, expected)


def stricter(reason: str, case: Case, gateway: int = REFUSED) -> Case:
    """Where the gateway doesn't follow Nessie."""
    return Case(case.make, case.nessie, gateway, reason)


def instead(expected: int, **claims: Any) -> Case:
    """A token with other claims instead of the one in which it has its role."""
    return Case(lambda token_issuer: token_issuer.token(**{token_issuer.roles: None, **claims}), expected)


ISSUERS = {
    "of another issuer": claiming(REFUSED, iss="https://else"),
    "of nobody": claiming(REFUSED, iss=None),
    "of an issuer called any": claiming(REFUSED, iss="any"),
    "of no text": claiming(REFUSED, iss=5),
    "of a list with the issuer": Case(lambda made: made.token(iss=[made.url]), REFUSED),
    "of the issuer with a slash": Case(lambda made: made.token(iss=f"{made.url}/"), REFUSED),
}
ANY_ISSUER = {**ISSUERS} | {
    name: Case(ISSUERS[name].make, READS)
    for name in ("of another issuer", "of nobody", "of an issuer called any", "of the issuer with a slash")
}
TIMES = {
    "ended by a second": timed(REFUSED, exp=-1),
    "ends now": timed(REFUSED, exp=0),
    "ended an hour ago": timed(REFUSED, iat=-7200, exp=-3600),
    "without an end": timed(REFUSED, exp=None),
    "end of text": Case(lambda made: made.token(exp=str(int(time.time()) + 600)), REFUSED),
    "end with a fraction": timed(READS, exp=600.5),
    "end true": claiming(REFUSED, exp=True),
    "end beyond numbers": claiming(REFUSED, exp=10**20),
    "end infinite": spelled(REFUSED, '"@"', "1e999", exp="@"),
    "end in a far age": claiming(READS, exp=10**15),
    "without a beginning": timed(REFUSED, iat=None),
    "made in a minute": timed(READS, iat=60),
    "made when it has ended": timed(REFUSED, iat=3600, exp=600),
    "made of text": Case(lambda made: made.token(iat=str(int(time.time()))), REFUSED),
    "not before a minute": timed(REFUSED, nbf=60),
    "not before an hour": timed(REFUSED, nbf=3600, exp=7200),
    "not before a minute ago": timed(READS, nbf=-60),
    "not before a text": claiming(REFUSED, nbf="1"),
    "not before null": spelled(READS, '"@"', "null", nbf="@"),
}
PEOPLE = {
    "of nobody's subject": claiming(READS, sub=None),
    "of a subject null": spelled(READS, '"@"', "null", sub="@"),
    "of an empty subject": claiming(READS, sub=""),
    "of a subject that is a number": claiming(REFUSED, sub=5),
    "with an id that is a number": claiming(REFUSED, jti=5),
    "of Keycloak for refreshing": claiming(REFUSED, typ="Refresh"),
    "of Keycloak for access": claiming(READS, typ="Bearer"),
}
DEFAULT_ROLES = {
    "groups": claiming(READS),
    "no groups": instead(NO_ROLE),
    "groups: empty": claiming(NO_ROLE, groups=[]),
    "groups: another case": claiming(NO_ROLE, groups=["Reader"]),
    "groups: words": claiming(READS, groups="a reader"),
    "groups: with a tab": claiming(NO_ROLE, groups="a\treader"),
    "groups: with a comma": claiming(NO_ROLE, groups="a,reader"),
    "groups: words in a list": claiming(NO_ROLE, groups=["a reader"]),
    "groups: among numbers": claiming(READS, groups=[1, "reader"]),
    "groups: in a list of lists": claiming(NO_ROLE, groups=[["reader"]]),
    "groups: an object": stricter(
        "Nessie reads the words of its text",
        claiming(READS, groups={"a": "b reader c"}),
        NO_ROLE,
    ),
    "Entra's roles without their path": instead(NO_ROLE, roles=["reader"]),
    "a scope": instead(NO_ROLE, scope="reader"),
    "Keycloak's realm": instead(READS, realm_access={"roles": ["reader"]}),
    "Keycloak's realm: words": instead(READS, realm_access={"roles": "a reader"}),
    "Keycloak's realm beside groups": claiming(NO_ROLE, groups=["a"], realm_access={"roles": ["reader"]}),
    "Keycloak's realm beside empty groups": claiming(READS, groups=[""], realm_access={"roles": ["reader"]}),
    "Keycloak's realm beside a number": claiming(NO_ROLE, groups=[1], realm_access={"roles": ["reader"]}),
    "Keycloak's realm without roles": instead(NO_ROLE, realm_access={}),
    "Keycloak's client": instead(READS, resource_access={"lake": {"roles": ["reader"]}}),
    "Keycloak's other client": instead(NO_ROLE, resource_access={"pond": {"roles": ["reader"]}}),
    "Keycloak's realm and client": instead(
        READS, realm_access={"roles": ["a"]}, resource_access={"lake": {"roles": ["reader"]}}
    ),
    "Keycloak's realm cut short": stricter(
        "Nessie takes what stands where a path can't go on",
        instead(READS, realm_access=["reader"]),
        NO_ROLE,
    ),
}
DOUBLED = {
    "two issuers": spelled(REFUSED, "{", '{"iss": "https://else", '),
    "two groups": spelled(REFUSED, "{", '{"groups": ["admin"], '),
    "two of what nobody reads": spelled(REFUSED, "{", '{"a": 1, "a": 1, '),
    "two inside": spelled(REFUSED, "{", '{"realm_access": {"roles": ["a"], "roles": ["reader"]}, ', groups=None),
    "two algorithms": shaped(REFUSED, lambda made: made.headed('{"alg": "none", "kid": "one", "alg": "RS256"}')),
    "two names of a key": shaped(REFUSED, lambda made: made.headed('{"alg": "RS256", "kid": "one", "kid": "one"}')),
}
KEYS = {
    "RS512": header(READS, alg="RS512"),
    "PS256": header(READS, alg="PS256"),
    "of an elliptic curve": header(READS, "ec"),
    "of an Edwards curve": header(READS, "ed"),
    "of a curve by another's name": header(REFUSED, "ec", kid="one"),
    "of an unknown key": header(REFUSED, kid="zzz"),
    "of a key without a name": header(READS, NAMELESS, kid=None),
    "of a key with an empty name": header(REFUSED, NAMELESS, kid=""),
    "of a key with a name, without it": header(REFUSED, kid=None),
    "of a certificate": header(REFUSED, NAMELESS, kid=None, x5t="abc"),
    "by a name that is a number": header(REFUSED, kid=1),
}
ONE_KEY = {
    "PS256": header(READS, alg="PS256"),
    "of another's name": header(READS, kid="zzz"),
    "without a name": header(READS, kid=None),
    "of an elliptic curve": header(REFUSED, "ec"),
}
FORGED = {
    "not signed": header(REFUSED, alg="none"),
    "signed with the public key": header(REFUSED, alg="HS256"),
    "of another key": header(REFUSED, "evil", kid="one"),
    "cut": shaped(REFUSED, lambda made: made.token()[:-10]),
    "without its signature": shaped(REFUSED, lambda made: made.token().rpartition(".")[0] + "."),
    "of other claims": shaped(REFUSED, lambda made: _with_swapped_claims(made, groups=["admin"])),
    "with one part more": shaped(REFUSED, lambda made: f"{made.token()}.x"),
    "encrypted": shaped(REFUSED, lambda _: "a.b.c.d.e"),
    "garbage": shaped(REFUSED, lambda _: "garbage"),
    "dots": shaped(REFUSED, lambda _: ".."),
}
SHAPES = {
    "padded": shaped(READS, lambda made: f"{made.token()}=="),
    "another token inside": header(REFUSED, cty="JWT"),
    "of another type": header(READS, typ="at+jwt"),
    "with an extension": header(REFUSED, crit=["a"], a=1),
    "with an empty list of extensions": stricter("the standard forbids it", header(READS, crit=[])),
    "a list": shaped(REFUSED, lambda made: made.signed('["reader"]')),
    "a number that is none": spelled(REFUSED, "{", '{"a": NaN, '),
    "more than JSON": shaped(REFUSED, lambda made: made.signed(json.dumps(made.claims()) + " x")),
    "after a mark of order": shaped(REFUSED, lambda made: made.signed("\ufeff" + json.dumps(made.claims()))),
    "not in UTF-8": stricter(
        "what can't be read is read by nobody",
        shaped(READS, lambda made: made.signed(json.dumps(made.claims(a="@")).encode().replace(b"@", b"\xff"))),
    ),
    "of 9 KB": stricter("so long is none that the gateway looks at", claiming(READS, a="x" * 7_000)),
    "deep": claiming(READS, a=json.loads("[" * 90 + "]" * 90)),
}
AUDIENCES = {
    "for one of two": claiming(READS, aud="other"),
    "for a list with one of them": claiming(READS, aud=["a", "other"]),
    "for somebody else": claiming(REFUSED, aud="else"),
    "for a list of others": claiming(REFUSED, aud=["else"]),
    "for an empty list": claiming(REFUSED, aud=[]),
    "for nobody": claiming(REFUSED, aud=None),
    "for any": claiming(REFUSED, aud="any"),
    "for both in one text": claiming(REFUSED, aud="nessie,other"),
    "for a number in a list": claiming(REFUSED, aud=[5, "nessie"]),
    "for a name with a comma": claiming(READS, aud="b,c"),
    "for half of a name with a comma": claiming(REFUSED, aud="c"),
}
ANY_AUDIENCE = {
    "for somebody else": claiming(READS, aud="else"),
    "for nobody": claiming(READS, aud=None),
    "for a number": claiming(READS, aud=5),
}
PATHS = {
    "groups beside a path": instead(NO_ROLE, groups=["reader"]),
    "nowhere": instead(NO_ROLE),
    "quoted path": instead(READS, **{URI: ["reader"]}),
    "quoted path: words": instead(READS, **{URI: "a reader"}),
    "quoted path, nested": instead(NO_ROLE, **{"https:": {"": {"example.com": {"roles": ["reader"]}}}}),
    "Keycloak's realm by its path": instead(READS, realm_access={"roles": ["reader"]}),
    "both": instead(READS, **{URI: ["a"]}, realm_access={"roles": ["reader"]}),
    "path with spaces around": instead(READS, a={"b": ["reader"]}),
    "nested too deeply": instead(NO_ROLE, a={"b": {"c": ["reader"]}}),
    "nested missing": instead(NO_ROLE, a={}),
    "partly quoted": instead(READS, q={"a/b": ["reader"]}),
    "Entra's roles": instead(READS, roles=["reader"]),
    "Entra's roles as a text": instead(READS, roles="a reader"),
    "path that begins with a slash": instead(READS, **{"/first": ["reader"]}),
    "path that begins with a slash, nested": instead(NO_ROLE, **{"": {"first": ["reader"]}}),
    "path that ends with a slash": instead(READS, last=["reader"]),
    "path cut short": stricter(
        "Nessie takes what stands where a path can't go on", instead(READS, a=["reader"]), NO_ROLE
    ),
}


def _with_swapped_claims(token_issuer: Issuer, **claims: Any) -> str:
    head, _, signature = token_issuer.token().split(".")
    return f"{head}.{encoded(json.dumps(token_issuer.claims(**claims)))}.{signature}"


@dataclass(frozen=True)
class VerifierPair:
    """A Nessie and what verifies tokens for the gateway, by the same settings."""

    token_issuer: Issuer
    uri: str
    verify: Verifier

    def nessie(self, token: str) -> int:
        """Ask Nessie for main."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.uri}/trees/main", headers=headers, timeout=60).status_code

    def gateway(self, token: str) -> int:
        """Ask as the gateway does."""
        try:
            return READS if self.verify(token).roles & READER_ROLES else NO_ROLE
        except RequestError as refused:
            return refused.status

    def check(self, cases: Mapping[str, Case]) -> None:
        """Send all tokens to both, and compare."""
        statuses, expected = {}, {}
        for name, case in cases.items():
            token = case.make(self.token_issuer)
            statuses[name] = self.nessie(token), self.gateway(token)
            expected[name] = case.nessie, case.gateway or case.nessie
        assert {name: statuses[name] for name in statuses if statuses[name] != expected[name]} == {}


@pytest.fixture
def made() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


def pair(token_issuer: Issuer, folder: Path, **settings: str) -> Iterator[VerifierPair]:
    variables = {f"QUARKUS_OIDC_{name}": value for name, value in settings.items()}
    verify = build_verifier(variables)
    assert verify is not None
    server = start_nessie(folder, token_issuer=IssuerAccess(issuer=token_issuer, variables=variables))
    try:
        yield VerifierPair(token_issuer, server.uri, verify)
    finally:
        server.stop()


@pytest.fixture
def by_url(made: Issuer, tmp_path: Path) -> Iterator[VerifierPair]:
    """The issuer's URL, and nothing that says who it is; beside it a key, which doesn't count."""
    yield from pair(made, tmp_path, AUTH_SERVER_URL=made.url, CLIENT_ID="lake", PUBLIC_KEY=public_key())


@pytest.fixture
def by_rules(made: Issuer, tmp_path: Path) -> Iterator[VerifierPair]:
    """Anybody's tokens by the issuer's keys, for some audiences, with roles in several places."""
    yield from pair(
        replace(made, roles="roles"),
        tmp_path,
        AUTH_SERVER_URL=made.url,
        CLIENT_ID="lake",
        TOKEN_ISSUER="any",
        TOKEN_AUDIENCE="nessie,other,b\\,c",
        ROLES_ROLE_CLAIM_PATH=f'"{URI}",realm_access/roles, a/b ,q/"a/b",roles,/first,last/',
    )


@pytest.fixture
def by_key(made: Issuer, tmp_path: Path) -> Iterator[VerifierPair]:
    """A key alone."""
    yield from pair(made, tmp_path, PUBLIC_KEY=public_key(), TOKEN_AUDIENCE="any")


def test_with_the_issuer_s_url_alone_both_say_the_same_of_each_token(by_url: VerifierPair) -> None:
    by_url.check(ISSUERS | TIMES | PEOPLE | DEFAULT_ROLES | DOUBLED | KEYS | FORGED | SHAPES | ANY_AUDIENCE)


def test_with_audiences_and_paths_of_roles_both_say_the_same_of_each_token(by_rules: VerifierPair) -> None:
    by_rules.check(ANY_ISSUER | AUDIENCES | PATHS)


def test_with_a_key_alone_both_say_the_same_of_each_token(by_key: VerifierPair) -> None:
    by_key.check(ANY_ISSUER | TIMES | ONE_KEY | FORGED | ANY_AUDIENCE)


def test_where_the_gateway_is_stricter_it_says_why() -> None:
    every = [ISSUERS, TIMES, PEOPLE, DEFAULT_ROLES, DOUBLED, KEYS, FORGED, SHAPES, ANY_AUDIENCE, AUDIENCES, PATHS]
    apart = {name: case for cases in every for name, case in cases.items() if case.gateway is not None}
    assert all(case.reason and case.gateway in (NO_ROLE, REFUSED) and case.nessie == READS for case in apart.values())
    assert sorted(apart) == [
        "Keycloak's realm cut short",
        "groups: an object",
        "not in UTF-8",
        "of 9 KB",
        "path cut short",
        "with an empty list of extensions",
    ]
