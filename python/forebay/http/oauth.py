"""JWTs of an OAuth issuer, as a resource server verifies them."""

import logging
import time
from typing import Any

import anyio
import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier

__all__ = ["JWTVerifier"]

_log = logging.getLogger("forebay")

# None that is symmetric: a key that anyone can read must not be taken for a secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 10.0
_MAX_TOKEN_CHARS = 16 << 10
_FETCH_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 5.0
_MAX_THREADS = 4
"""So that an issuer that is slow keeps no more than these waiting, and nobody who needs none of them."""


class JWTVerifier(TokenVerifier):
    """Takes what `issuer` signed for `audience`; its keys are fetched when a token needs one that is not known.

    That is done once in `cooldown` seconds at most, whatever the tokens say.
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
            # What it says may have been made up by the caller.
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
            # The token itself goes no further than here.
            token="",
            client_id=str(client),
            scopes=_parse_scopes(claims.get("scope") or claims.get("scp")),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=subject,
            claims={"iss": claims["iss"]},
        )


class _JWKSClient(jwt.PyJWKClient):
    """The keys of an issuer; one that cannot be reached is not asked again at once."""

    _not_before = 0.0

    def fetch_data(self) -> Any:
        if time.monotonic() < self._not_before:
            raise jwt.PyJWKClientConnectionError("the keys could not be read a moment ago")
        try:
            return super().fetch_data()
        except (jwt.PyJWTError, ValueError, OSError) as error:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            # Its address may have a secret in it.
            _log.warning("the keys of the issuer cannot be read; check oauth_jwks_url: %s", type(error).__name__)
            raise jwt.PyJWKClientConnectionError("the keys cannot be read") from None


def _parse_scopes(said: object) -> list[str]:
    """Issuers write them with spaces between them, or as a list."""
    if isinstance(said, str):
        return said.split()
    return [scope for scope in said if isinstance(scope, str)] if isinstance(said, list) else []
