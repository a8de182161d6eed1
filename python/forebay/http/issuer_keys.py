"""The public keys of an OAuth issuer, fetched within limits of time and size."""

import contextlib
import json
import logging
import threading
import time
from typing import Any

import jwt

from forebay.errors import UpstreamFailed
from forebay.proxy.http.connection import Endpoint, iter_body

__all__ = ["IssuerKeys"]

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
        self._endpoint = Endpoint(url)
        self._refetch_cooldown = refetch_cooldown
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")

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
        with self._endpoint.borrow_connection() as connection:
            # The timeout of the connection is for each read, of which a slow server may need very many.
            timer = threading.Timer(_FETCH_TIMEOUT_SECONDS, connection.abort)
            timer.daemon = True
            timer.start()
            try:
                response = self._endpoint.open(
                    connection, "GET", self._endpoint.url, {"accept": "application/json"}, None, _FETCH_TIMEOUT_SECONDS
                )
                with contextlib.closing(response):
                    if response.status_code != 200:
                        raise UpstreamFailed(f"the issuer answered HTTP {response.status_code}")
                    body = bytearray()
                    for chunk in iter_body(response):
                        body += chunk
                        if len(body) > _MAX_BODY_BYTES:
                            raise ValueError(f"the key set has more than {_MAX_BODY_BYTES} bytes")
            finally:
                timer.cancel()
        key_set = json.loads(body)
        if not isinstance(key_set, dict):
            raise ValueError("the key set is no object")
        return key_set
