"""Verification of JWT access tokens from an OAuth issuer."""

import logging
import time
from typing import Any

import anyio
import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier

__all__ = ["JWTVerifier"]

_log = logging.getLogger("forebay")

# No symmetric algorithm: the public key would be accepted as the shared secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 10.0
_MAX_TOKEN_CHARS = 16 << 10
_FETCH_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 5.0
_MAX_THREADS = 4
"""Maximum number of threads that fetch keys: a slow issuer must not block all worker threads."""


class JWTVerifier(TokenVerifier):
    """Accepts tokens that `issuer` signed for `audience`.

    The issuer's keys are fetched when a token names an unknown key, at most once in `cooldown` seconds.
    """

    def __init__(self, issuer: str, audience: str, jwks_url: str, *, cooldown: float = 30.0) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = _JWKSClient(jwks_url, timeout=_FETCH_TIMEOUT_SECONDS, cooldown_duration=cooldown)
        self._limiter = anyio.CapacityLimiter(_MAX_THREADS)

    async def verify_token(self, token: str) -> AccessToken | None:
        if len(token) > _MAX_TOKEN_CHARS or token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS or "kid" not in header:
                return None
            claims = await anyio.to_thread.run_sync(self._decode, token, header["kid"], limiter=self._limiter)
        except jwt.PyJWTError as error:
            # The message may repeat what the caller sent.
            _log.info("a token was refused: %s", type(error).__name__)
            return None
        return self._make_access_token(claims)

    def _decode(self, token: str, kid: str) -> dict[str, Any]:
        return jwt.decode(
            token,
            self._keys.get_signing_key(kid),
            algorithms=_ALGORITHMS,
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED_CLAIMS, "enforce_minimum_key_length": True},
        )

    def _make_access_token(self, claims: dict[str, Any]) -> AccessToken:
        subject = claims["sub"]
        client = claims.get("client_id") or claims.get("azp") or subject
        return AccessToken(
            # The token itself is not passed on.
            token="",
            client_id=str(client),
            scopes=_parse_scopes(claims.get("scope") or claims.get("scp")),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=subject,
            claims={"iss": claims["iss"]},
        )


class _JWKSClient(jwt.PyJWKClient):
    """A JWKS client that waits after a failed fetch before it tries again."""

    _not_before = 0.0

    def fetch_data(self) -> Any:
        if time.monotonic() < self._not_before:
            raise jwt.PyJWKClientConnectionError("the keys could not be read a moment ago")
        try:
            return super().fetch_data()
        except (jwt.PyJWTError, ValueError, OSError) as error:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            # The URL may contain a secret.
            _log.warning("the keys of the issuer cannot be read; check oauth_jwks_url: %s", type(error).__name__)
            raise jwt.PyJWKClientConnectionError("the keys cannot be read") from None


def _parse_scopes(claim: object) -> list[str]:
    """Return the scopes of a claim, which is a space-separated string or a list."""
    if isinstance(claim, str):
        return claim.split()
    return [scope for scope in claim if isinstance(scope, str)] if isinstance(claim, list) else []
