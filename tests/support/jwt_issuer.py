"""An issuer of JWTs that serves its keys on loopback."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER, AUDIENCE = "https://issuer.example", "https://mcp.example.com/mcp"
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
OTHER_KEY = rsa.generate_private_key(65537, 2048)


def make_jwk(key: Any, kid: str, algorithm: str) -> dict[str, Any]:
    kind: Any = jwt.get_algorithm_by_name(algorithm)
    jwk: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return {**jwk, "kid": kid, "alg": algorithm, "use": "sig"}


class JwksServer(http.server.ThreadingHTTPServer):
    """Serves the issuer's public keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _JwksHandler)
        self.body: bytes = b""
        self.fetch_count = 0
        self.location: str | None = None
        """Where callers are redirected to."""
        self.delays: list[float] = []
        """Seconds to wait before each of the first bytes, which are spaces."""
        self.publish(*(make_jwk(key, name, name) for name, key in KEYS.items()))

    def publish(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/jwks"


class _JwksHandler(http.server.BaseHTTPRequestHandler):
    server: JwksServer

    def do_GET(self) -> None:
        self.server.fetch_count += 1
        location, delays = self.server.location, self.server.delays
        self.send_response(200 if location is None or self.path == "/moved" else 302)
        self.send_header("content-length", str(len(self.server.body) + len(delays)))
        self.send_header("location", location or "")
        self.end_headers()
        with contextlib.suppress(OSError):
            for delay in delays:
                time.sleep(delay)
                self.wfile.write(b" ")
            self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serve_jwks() -> Iterator[JwksServer]:
    with JwksServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def make_claims(**changes: Any) -> dict[str, Any]:
    all_claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **changes}
    return {name: value for name, value in all_claims.items() if value is not None}


def sign_token(algorithm: str = "RS256", key: Any = None, kid: str | None = None, **changes: Any) -> str:
    headers = {"kid": kid or algorithm}
    return jwt.encode(make_claims(**changes), key or KEYS[algorithm], algorithm, headers=headers)
