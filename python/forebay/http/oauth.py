"""JWTs of an OAuth issuer, as a resource server verifies them."""

import logging
import time
from typing import Any

import anyio
import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier

__all__ = ["Issuer"]

_log = logging.getLogger("forebay")

# None that is symmetric: a key that anyone can read must not be taken for a secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED = ["exp", "iss", "aud", "sub"]
_LEEWAY = 10.0
_LONGEST = 16 << 10
_FETCH_TIMEOUT = 10.0
_RETRY = 5.0
_THREADS = 4
"""So that an issuer that is slow keeps no more than these waiting, and nobody who needs none of them."""


class Issuer(TokenVerifier):
    """Takes what `issuer` signed for `audience`; its keys are fetched when a token needs one that is not known.

    That is done once in `cooldown` seconds at most, whatever the tokens say.
    """

    def __init__(self, issuer: str, audience: str, jwks_url: str, *, cooldown: float = 30.0) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = _Keys(jwks_url, timeout=_FETCH_TIMEOUT, cooldown_duration=cooldown)
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def verify_token(self, token: str) -> AccessToken | None:
        if len(token) > _LONGEST or token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS or "kid" not in header:
                return None
            claims = await anyio.to_thread.run_sync(self._verified, token, header["kid"], limiter=self._limiter)
        except jwt.PyJWTError as error:
            # What it says may have been made up by the caller.
            _log.info("a token was refused: %s", type(error).__name__)
            return None
        return self._access(claims)

    def _verified(self, token: str, kid: str) -> dict[str, Any]:
        return jwt.decode(
            token,
            self._keys.get_signing_key(kid),
            algorithms=_ALGORITHMS,
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY,
            options={"require": _REQUIRED, "enforce_minimum_key_length": True},
        )

    def _access(self, claims: dict[str, Any]) -> AccessToken:
        subject = claims["sub"]
        client = claims.get("client_id") or claims.get("azp") or subject
        return AccessToken(
            # The token itself goes no further than here.
            token="",
            client_id=str(client),
            scopes=_scopes(claims.get("scope") or claims.get("scp")),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=subject,
            claims={"iss": claims["iss"]},
        )


class _Keys(jwt.PyJWKClient):
    """The keys of an issuer; one that cannot be reached is not asked again at once."""

    _not_before = 0.0

    def fetch_data(self) -> Any:
        if time.monotonic() < self._not_before:
            raise jwt.PyJWKClientConnectionError("the keys could not be read a moment ago")
        try:
            return super().fetch_data()
        except (jwt.PyJWTError, ValueError, OSError) as error:
            self._not_before = time.monotonic() + _RETRY
            # Its address may have a secret in it.
            _log.warning("the keys of the issuer cannot be read; check oauth_jwks_url: %s", type(error).__name__)
            raise jwt.PyJWKClientConnectionError("the keys cannot be read") from None


def _scopes(said: object) -> list[str]:
    """Issuers write them with spaces between them, or as a list."""
    if isinstance(said, str):
        return said.split()
    return [scope for scope in said if isinstance(scope, str)] if isinstance(said, list) else []
