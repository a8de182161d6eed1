"""JWTs of an issuer: only what it signed, for us, and still valid. The keys are made here and served on loopback."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from forebay.adapters.mcp import get_principal
from forebay.http.oauth import JWTVerifier
from hypothesis import given
from hypothesis import strategies as st
from issuing import AUDIENCE, ISSUER, KEYS, OTHER, Keys, claims, issuing, public, signed


@pytest.fixture
def keys() -> Iterator[Keys]:
    with issuing() as keys:
        yield keys


def verified(issuer: JWTVerifier, token: str) -> Any:
    return anyio.run(issuer.verify_token, token)


def issuer_at(keys: Keys, **options: Any) -> JWTVerifier:
    return JWTVerifier(ISSUER, AUDIENCE, keys.url, **options)


@pytest.mark.parametrize("algorithm", KEYS)
def test_who_the_issuer_says_they_are(algorithm: str, keys: Keys) -> None:
    token = signed(algorithm, scope="mcp:use other", client_id="app")
    found = verified(issuer_at(keys), token)
    assert (found.client_id, found.subject, found.scopes) == ("app", "alice", ["mcp:use", "other"])
    assert json.loads(get_principal(found) or "") == ["subject", ISSUER, "alice"]
    assert token not in repr(found)


def test_scopes_are_read_as_issuers_write_them(keys: Keys) -> None:
    issuer = issuer_at(keys)
    right: list[dict[str, Any]] = [{"scope": "a b"}, {"scp": ["a", "b"]}, {"scp": "a b"}]
    for more in right:
        assert verified(issuer, signed(**more)).scopes == ["a", "b"]
    wrong: list[dict[str, Any]] = [{}, {"scope": 3}, {"scope": {"a": 1}}]
    for more in wrong:
        assert verified(issuer, signed(**more)).scopes == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"exp": time.time() - 3600},
        {"exp": None},
        {"nbf": time.time() + 3600},
        {"aud": "https://other.example.com/mcp"},
        {"aud": AUDIENCE + "/more"},
        {"aud": ["https://other.example.com"]},
        {"aud": None},
        {"iss": "https://other.example"},
        {"iss": ISSUER + "/"},
        {"iss": None},
        {"sub": None},
        {"sub": 3},
    ],
)
def test_what_was_not_given_out_for_us_is_refused(more: dict[str, Any], keys: Keys) -> None:
    issuer = issuer_at(keys)
    assert verified(issuer, signed(**more)) is None
    assert verified(issuer, signed()) is not None


def test_one_audience_of_several_is_enough(keys: Keys) -> None:
    assert verified(issuer_at(keys), signed(aud=["https://other.example.com", AUDIENCE])) is not None


def encoded(part: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")


def forged(header: dict[str, Any], secret: bytes | None = None) -> str:
    said = encoded(header) + b"." + encoded(claims())
    signature = b"" if secret is None else hmac.digest(secret, said, hashlib.sha256)
    return (said + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_what_the_issuer_did_not_sign_is_refused(keys: Keys) -> None:
    issuer = issuer_at(keys)
    good = signed()
    assert verified(issuer, good) is not None
    head, body, signature = good.split(".")
    pem = (
        KEYS["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    attacks = [
        signed(key=OTHER),
        forged({"alg": "none", "kid": "RS256"}),
        forged({"alg": "None", "kid": "RS256"}),
        forged({"alg": "HS256", "kid": "RS256"}, pem),
        forged({"alg": "HS256", "kid": "RS256"}, pem.strip()),
        forged({"alg": "RS256", "kid": "RS256"}, pem),
        forged({"alg": ["RS256"], "kid": "RS256"}, pem),
        # A key of the caller's own, or where it is.
        jwt.encode(claims(), OTHER, "RS256", headers={"kid": "RS256", "jwk": public(OTHER, "RS256", "RS256")}),
        jwt.encode(claims(), OTHER, "RS256", headers={"kid": "RS256", "jku": "http://127.0.0.1:9/jwks"}),
        # One algorithm with the key of another.
        signed("ES256", kid="RS256"),
        jwt.encode(claims(), KEYS["RS256"], "RS512", headers={"kid": "RS256"}),
        jwt.encode(claims(), KEYS["RS256"], "RS256"),
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{encoded(claims(sub='root')).decode()}.{signature}",
        f" {good}",
        good + "A",
        "",
        "..",
        "é.é.é",
        good + "A" * (16 << 10),
    ]
    assert [verified(issuer, attack) for attack in attacks] == [None] * len(attacks)


def test_a_secret_among_the_keys_is_not_used(keys: Keys) -> None:
    secret = b"s" * 32
    shown = {"kty": "oct", "kid": "o", "alg": "HS256", "k": base64.urlsafe_b64encode(secret).decode().rstrip("=")}
    keys.show(shown, public(KEYS["RS256"], "RS256", "RS256"))
    issuer = issuer_at(keys)
    assert verified(issuer, forged({"alg": "HS256", "kid": "o"}, secret)) is None
    assert verified(issuer, signed()) is not None


def test_unknown_keys_do_not_make_us_ask_again_and_again(keys: Keys) -> None:
    issuer = issuer_at(keys)
    assert [verified(issuer, signed(kid=f"unknown {number}")) for number in range(10)] == [None] * 10
    assert verified(issuer, signed()) is not None
    assert keys.fetched == 1


def test_what_cannot_be_ours_asks_for_no_keys(keys: Keys) -> None:
    issuer = issuer_at(keys)
    for token in ("a.b.c", forged({"alg": "none", "kid": "x"}), forged({"alg": "HS256", "kid": "x"}, b"x"), "x"):
        assert verified(issuer, token) is None
    assert keys.fetched == 0


def test_keys_are_rotated(keys: Keys) -> None:
    issuer = issuer_at(keys, cooldown=0)
    assert verified(issuer, signed()) is not None
    keys.show(public(OTHER, "new", "RS256"))
    assert verified(issuer, signed(key=OTHER, kid="new")) is not None
    # What is gone from there is good no more.
    assert verified(issuer, signed()) is None


@pytest.mark.parametrize("shown", [b"", b"{", b"[]", b'{"keys": []}', b'{"keys": 3}', b'{"keys": [{"kty": "x"}]}'])
def test_keys_that_are_none_let_nobody_in(shown: bytes, keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    keys.shown = shown
    issuer = issuer_at(keys)
    token = signed()
    assert [verified(issuer, token) for _ in range(3)] == [None] * 3
    # It is not asked again at once.
    assert keys.fetched == 1
    assert "keys of the issuer cannot be read" in caplog.text
    assert token not in caplog.text


@given(st.text() | st.lists(st.sampled_from([".", "e30", "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ", "=", "é"])).map("".join))
def test_no_text_fails_otherwise(token: str) -> None:
    assert verified(JWTVerifier(ISSUER, AUDIENCE, "http://127.0.0.1:9/jwks"), token) is None
