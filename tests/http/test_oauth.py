"""JWT verification: signature, audience, issuer and expiry, with generated keys served on loopback."""

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
from forebay.http.oauth import JWTVerifier
from hypothesis import given
from hypothesis import strategies as st
from jwt_issuer import AUDIENCE, ISSUER, KEYS, OTHER_KEY, JwksServer, make_claims, make_jwk, serve_jwks, sign_token


@pytest.fixture
def keys() -> Iterator[JwksServer]:
    with serve_jwks() as keys:
        yield keys


def verify(issuer: JWTVerifier, token: str) -> Any:
    return anyio.run(issuer.verify_token, token)


def make_verifier(keys: JwksServer, **options: Any) -> JWTVerifier:
    return JWTVerifier(ISSUER, AUDIENCE, keys.url, **options)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_signed_token_gives_client_subject_and_scopes(algorithm: str, keys: JwksServer) -> None:
    token = sign_token(algorithm, scope="mcp:use other", client_id="app")
    found = verify(make_verifier(keys), token)
    assert (found.client_id, found.subject, found.scopes) == ("app", "alice", ["mcp:use", "other"])
    assert json.loads(found.principal) == ["subject", ISSUER, "alice"]
    assert token not in repr(found)


def test_scopes_may_be_a_text_or_a_list(keys: JwksServer) -> None:
    issuer = make_verifier(keys)
    right: list[dict[str, Any]] = [{"scope": "a b"}, {"scp": ["a", "b"]}, {"scp": "a b"}]
    for more in right:
        assert verify(issuer, sign_token(**more)).scopes == ["a", "b"]
    wrong: list[dict[str, Any]] = [{}, {"scope": 3}, {"scope": {"a": 1}}]
    for more in wrong:
        assert verify(issuer, sign_token(**more)).scopes == []


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
def test_tokens_with_wrong_claims_are_refused(more: dict[str, Any], keys: JwksServer) -> None:
    issuer = make_verifier(keys)
    assert verify(issuer, sign_token(**more)) is None
    assert verify(issuer, sign_token()) is not None


def test_one_audience_of_several_is_enough(keys: JwksServer) -> None:
    assert verify(make_verifier(keys), sign_token(aud=["https://other.example.com", AUDIENCE])) is not None


def encode_part(part: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")


def forge_token(header: dict[str, Any], secret: bytes | None = None) -> str:
    signed_part = encode_part(header) + b"." + encode_part(make_claims())
    signature = b"" if secret is None else hmac.digest(secret, signed_part, hashlib.sha256)
    return (signed_part + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_forged_tokens_are_refused(keys: JwksServer) -> None:
    issuer = make_verifier(keys)
    good = sign_token()
    assert verify(issuer, good) is not None
    head, body, signature = good.split(".")
    pem = (
        KEYS["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    attacks = [
        sign_token(key=OTHER_KEY),
        forge_token({"alg": "none", "kid": "RS256"}),
        forge_token({"alg": "None", "kid": "RS256"}),
        forge_token({"alg": "HS256", "kid": "RS256"}, pem),
        forge_token({"alg": "HS256", "kid": "RS256"}, pem.strip()),
        forge_token({"alg": "RS256", "kid": "RS256"}, pem),
        forge_token({"alg": ["RS256"], "kid": "RS256"}, pem),
        # The caller's own key, or a URL to it.
        jwt.encode(
            make_claims(), OTHER_KEY, "RS256", headers={"kid": "RS256", "jwk": make_jwk(OTHER_KEY, "RS256", "RS256")}
        ),
        jwt.encode(make_claims(), OTHER_KEY, "RS256", headers={"kid": "RS256", "jku": "http://127.0.0.1:9/jwks"}),
        # One algorithm with another one's key.
        sign_token("ES256", kid="RS256"),
        jwt.encode(make_claims(), KEYS["RS256"], "RS512", headers={"kid": "RS256"}),
        jwt.encode(make_claims(), KEYS["RS256"], "RS256"),
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{encode_part(make_claims(sub='root')).decode()}.{signature}",
        f" {good}",
        good + "A",
        "",
        "..",
        "é.é.é",
        good + "A" * (16 << 10),
    ]
    assert [verify(issuer, attack) for attack in attacks] == [None] * len(attacks)


def test_a_symmetric_key_is_not_used(keys: JwksServer) -> None:
    secret = b"s" * 32
    shown = {"kty": "oct", "kid": "o", "alg": "HS256", "k": base64.urlsafe_b64encode(secret).decode().rstrip("=")}
    keys.publish(shown, make_jwk(KEYS["RS256"], "RS256", "RS256"))
    issuer = make_verifier(keys)
    assert verify(issuer, forge_token({"alg": "HS256", "kid": "o"}, secret)) is None
    assert verify(issuer, sign_token()) is not None


def test_unknown_key_ids_do_not_cause_repeated_fetches(keys: JwksServer) -> None:
    issuer = make_verifier(keys)
    assert [verify(issuer, sign_token(kid=f"unknown {number}")) for number in range(10)] == [None] * 10
    assert verify(issuer, sign_token()) is not None
    assert keys.fetch_count == 1


def test_invalid_tokens_do_not_cause_a_fetch(keys: JwksServer) -> None:
    issuer = make_verifier(keys)
    for token in (
        "a.b.c",
        forge_token({"alg": "none", "kid": "x"}),
        forge_token({"alg": "HS256", "kid": "x"}, b"x"),
        "x",
    ):
        assert verify(issuer, token) is None
    assert keys.fetch_count == 0


def test_rotated_keys_are_fetched(keys: JwksServer) -> None:
    issuer = make_verifier(keys, refetch_cooldown=0)
    assert verify(issuer, sign_token()) is not None
    keys.publish(make_jwk(OTHER_KEY, "new", "RS256"))
    assert verify(issuer, sign_token(key=OTHER_KEY, kid="new")) is not None
    # A key that is no longer published is no longer accepted.
    assert verify(issuer, sign_token()) is None


@pytest.mark.parametrize(
    "shown",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"keys": []}',
        b'{"keys": 3}',
        b'{"keys": [{"kty": "x"}]}',
        # A key that does not sign.
        json.dumps({"keys": [{**make_jwk(KEYS["RS256"], "RS256", "RS256"), "use": "enc"}]}).encode(),
    ],
    ids=lambda shown: shown[:20].decode(),
)
def test_invalid_key_sets_refuse_all_tokens(shown: bytes, keys: JwksServer, caplog: pytest.LogCaptureFixture) -> None:
    keys.body = shown
    issuer = make_verifier(keys)
    token = sign_token()
    assert [verify(issuer, token) for _ in range(3)] == [None] * 3
    # The keys are not fetched again at once.
    assert keys.fetch_count == 1
    assert "keys of the issuer cannot be read" in caplog.text
    assert token not in caplog.text


def test_an_issuer_that_has_no_keys_at_its_url_refuses_all_tokens(keys: JwksServer) -> None:
    keys.location = "/nothing/here"
    keys.body = b"{}"
    assert verify(make_verifier(keys), sign_token()) is None


def test_tokens_beyond_the_cache_are_verified_again(keys: JwksServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.http.oauth._MAX_CACHED_TOKENS", 1)
    issuer = make_verifier(keys)
    tokens = [sign_token(sub=name) for name in ("alice", "bob", "alice")]
    assert [verify(issuer, token).subject for token in tokens] == ["alice", "bob", "alice"]


def test_a_redirect_to_another_server_is_not_followed(keys: JwksServer) -> None:
    with serve_jwks() as other:
        keys.location = other.url
        assert verify(make_verifier(keys), sign_token()) is None
        assert (keys.fetch_count, other.fetch_count) == (1, 0)


def test_a_redirect_within_the_server_is_followed(keys: JwksServer) -> None:
    keys.location = "/moved"
    assert verify(make_verifier(keys), sign_token()) is not None


def test_a_key_set_that_is_too_large_is_not_read(keys: JwksServer) -> None:
    keys.body += b" " * (1 << 20)
    assert verify(make_verifier(keys), sign_token()) is None


def test_a_fetch_that_takes_too_long_is_ended(keys: JwksServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.http.oauth._FETCH_TIMEOUT_SECONDS", 0.2)
    keys.delays = [0.05] * 20
    assert verify(make_verifier(keys), sign_token()) is None


@given(st.text() | st.lists(st.sampled_from([".", "e30", "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ", "=", "é"])).map("".join))
def test_any_text_is_refused_without_another_error(token: str) -> None:
    assert verify(JWTVerifier(ISSUER, AUDIENCE, "http://127.0.0.1:9/jwks"), token) is None
