"""An issuer of JWTs on loopback, with keys of its own."""

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
OTHER = rsa.generate_private_key(65537, 2048)


def public(key: Any, kid: str, algorithm: str) -> dict[str, Any]:
    kind: Any = jwt.get_algorithm_by_name(algorithm)
    shown: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return {**shown, "kid": kid, "alg": algorithm, "use": "sig"}


class Keys(http.server.ThreadingHTTPServer):
    """What an issuer says its keys are."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.shown: bytes = b""
        self.fetched = 0
        self.show(*(public(key, name, name) for name, key in KEYS.items()))

    def show(self, *keys: dict[str, Any]) -> None:
        self.shown = json.dumps({"keys": keys}).encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/jwks"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Keys

    def do_GET(self) -> None:
        self.server.fetched += 1
        self.send_response(200)
        self.send_header("content-length", str(len(self.server.shown)))
        self.end_headers()
        self.wfile.write(self.server.shown)

    def log_message(self, *_: object) -> None:
        """Nobody asked."""


@contextlib.contextmanager
def issuing() -> Iterator[Keys]:
    with Keys() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def claims(**more: Any) -> dict[str, Any]:
    told = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **more}
    return {name: value for name, value in told.items() if value is not None}


def signed(algorithm: str = "RS256", key: Any = None, kid: str | None = None, **more: Any) -> str:
    headers = {"kid": kid or algorithm}
    return jwt.encode(claims(**more), key or KEYS[algorithm], algorithm, headers=headers)
