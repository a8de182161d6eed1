"""Verification of JWT access tokens with the public keys of an OAuth issuer.

Only imported where an issuer is configured, because PyJWT and its cryptography take a while to import.
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jwt

from forebay.errors import UpstreamFailed
from forebay.http.tokens import AccessToken, hash_token
from forebay.proxy.http.connection import Endpoint

__all__ = ["IssuerKeys", "JWTVerifier"]

_log = logging.getLogger("forebay")

_LIFESPAN_SECONDS = 300.0
"""How long fetched keys are used."""

_FETCH_TIMEOUT_SECONDS = 10.0
"""How long a whole fetch may take."""

_FETCH_RETRY_SECONDS = 5.0
"""Delay after a failed fetch."""

_MAX_BODY_BYTES = 1 << 20


class IssuerKeys:
    """Keys of an issuer by id, fetched when they are old and when an unknown key is needed.

    The latter happens at most once in `refetch_cooldown` seconds. Redirects to other servers are not followed: they
    could lead to keys that the issuer does not have.
    """

    def __init__(self, url: str, refetch_cooldown: float) -> None:
        # Parse now, so that an invalid URL fails at startup.
        Endpoint(url)
        self._url = url
        self._refetch_cooldown = refetch_cooldown
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")

    @property
    def version(self) -> float | None:
        """A value that changes with the keys; `None` if they are too old to be used."""
        is_old = time.monotonic() - self._fetched_at >= _LIFESPAN_SECONDS
        return None if is_old else self._fetched_at

    def get_key(self, key_id: str) -> jwt.PyJWK:
        """Return the key with this id. Raises `jwt.PyJWKClientError` if there is none, or it cannot be fetched."""
        with self._lock:
            age_seconds = time.monotonic() - self._fetched_at
            is_missing = key_id not in self._keys
            if age_seconds >= _LIFESPAN_SECONDS or (is_missing and age_seconds >= self._refetch_cooldown):
                self._fetch()
            if key_id not in self._keys:
                raise jwt.PyJWKClientError("the issuer has no such key")
            return self._keys[key_id]

    def _fetch(self) -> None:
        if time.monotonic() - self._failed_at < _FETCH_RETRY_SECONDS:
            raise jwt.PyJWKClientConnectionError("the keys could not be fetched a moment ago")
        try:
            key_set = jwt.PyJWKSet.from_dict(self._fetch_key_set())
            keys = {key.key_id: key for key in key_set.keys if key.key_id and key.public_key_use in ("sig", None)}
            if not keys:
                raise ValueError("there are no signing keys")
        except (UpstreamFailed, jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._failed_at = time.monotonic()
            # Only the type, because the URL may contain a secret.
            _log.warning("the keys of the issuer cannot be read; check oauth_jwks_url: %s", type(error).__name__)
            raise jwt.PyJWKClientConnectionError("the keys cannot be fetched") from None
        self._keys, self._fetched_at = keys, time.monotonic()

    def _fetch_key_set(self) -> dict[str, Any]:
        """Return the key set. Raises `UpstreamFailed`, or `ValueError` if the body is too large or no JSON object."""
        try:
            key_set = json.loads(asyncio.run(asyncio.wait_for(_fetch_body(self._url), _FETCH_TIMEOUT_SECONDS)))
        except TimeoutError:
            raise UpstreamFailed("the issuer takes too long") from None
        if not isinstance(key_set, dict):
            raise ValueError("the key set is not an object")
        return key_set


async def _fetch_body(url: str) -> bytes:
    endpoint = Endpoint(url)
    with contextlib.closing(endpoint):
        response = await endpoint.open("GET", endpoint.url, {"accept": "application/json"})
        with contextlib.closing(response):
            if response.status != 200:
                raise UpstreamFailed(f"the issuer answered HTTP {response.status}")
            body = bytearray()
            async for chunk in response:
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    raise ValueError(f"the key set has more than {_MAX_BODY_BYTES} bytes")
    return bytes(body)


# No symmetric algorithm: the public key would be accepted as the shared secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 10.0
"""Allowed difference between our clock and the issuer's."""

_MAX_TOKEN_CHARS = 16 << 10

_MAX_FETCH_THREADS = 4
"""Maximum number of threads that fetch keys: a slow issuer must not block all worker threads."""

_MAX_CACHED_TOKENS = 1024


class _CachedToken(NamedTuple):
    access_token: AccessToken
    keys_version: float


class JWTVerifier:
    """Verifier that accepts JWT access tokens that `issuer` signed for `audience`.

    The issuer's keys are fetched when a token names an unknown key, at most once in `refetch_cooldown` seconds. A token
    that was verified with the current keys is not verified again until it expires.
    """

    def __init__(self, issuer: str, audience: str, jwks_url: str, *, refetch_cooldown: float = 30.0) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = IssuerKeys(jwks_url, refetch_cooldown)
        self._threads = ThreadPoolExecutor(_MAX_FETCH_THREADS, "forebay-jwt")
        self._cache: OrderedDict[bytes, _CachedToken] = OrderedDict()
        """Verified tokens by their digest, the least recently verified first."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if len(token) > _MAX_TOKEN_CHARS or token.count(".") != 2:
            return None
        digest = hash_token(token)
        cached = self._cache.get(digest)
        if cached is not None and cached.keys_version == self._keys.version and not _is_expired(cached.access_token):
            return cached.access_token
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS or not isinstance(header.get("kid"), str):
                return None
            loop = asyncio.get_running_loop()
            key = await loop.run_in_executor(self._threads, self._keys.get_key, header["kid"])
            version = self._keys.version
            claims = await loop.run_in_executor(self._threads, self._decode, token, key)
        except jwt.PyJWTError as error:
            # The error message is not logged, because it may repeat what the caller sent.
            _log.info("a token was refused: %s", type(error).__name__)
            return None
        access_token = _make_access_token(claims)
        if version is not None:
            self._cache[digest] = _CachedToken(access_token, version)
            self._cache.move_to_end(digest)
            if len(self._cache) > _MAX_CACHED_TOKENS:
                self._cache.popitem(last=False)
        return access_token

    def _decode(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED_CLAIMS, "enforce_minimum_key_length": True},
        )


def _make_access_token(claims: dict[str, Any]) -> AccessToken:
    subject = claims["sub"]
    return AccessToken(
        client_id=str(claims.get("client_id") or claims.get("azp") or subject),
        scopes=_parse_scopes(claims.get("scope") or claims.get("scp")),
        expires_at=int(claims["exp"]),
        issuer=str(claims["iss"]),
        subject=subject,
    )


def _is_expired(access_token: AccessToken) -> bool:
    return access_token.expires_at is not None and access_token.expires_at < time.time()


def _parse_scopes(claim: object) -> list[str]:
    """Return the scopes of a claim, which is a space-separated string or a list."""
    if isinstance(claim, str):
        return claim.split()
    return [scope for scope in claim if isinstance(scope, str)] if isinstance(claim, list) else []
