"""The format of the token file: lines of `name: token` or `name: sha256:…`, where the name is the principal.

This module is separate from `tokens`, because `forebay token` must start without importing the `mcp` SDK.
"""

import hashlib
import re
import secrets

from forebay.errors import InvalidArgument

__all__ = ["hash_token", "make_token", "parse_token_lines"]

_LINE_PATTERN = re.compile(r"([^\s:#](?:[^:]{0,198}[^\s:])?)\s*:\s*(?:sha256:([0-9a-fA-F]{64})|([A-Za-z0-9._~+/-]+=*))")
_HEX_PATTERN = re.compile(r"[0-9a-fA-F]*")
_MIN_HEX_CHARS, _MIN_BASE64_CHARS = 32, 22
"""Length of a token with 128 random bits, in hexadecimal and in base64; shorter tokens are refused."""


def make_token(name: str, *, is_hashed: bool = False) -> tuple[str, str]:
    """Return a new random token of a principal, and its line for the token file."""
    token = secrets.token_urlsafe(32)
    line = f"{name}: sha256:{hash_token(token).hex()}" if is_hashed else f"{name}: {token}"
    match = _match_line(line)
    if match is None or match[1] != name:
        raise InvalidArgument(
            "a principal has a name without colons, without spaces around it, of at most 200 characters, such as alice"
        )
    return token, line


def parse_token_lines(text: str, path: str) -> list[tuple[bytes, str]]:
    """Return the digest and the principal of each token.

    Raises `InvalidArgument`, which names the line number but shows nothing of the line.
    """
    entries: dict[bytes, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, digest = _parse_entry(line.strip(), f"{path}:{number}")
        if entries.setdefault(digest, name) != name:
            raise InvalidArgument(f"{path}:{number}: this token is another principal's already; make a new one")
    return list(entries.items())


def hash_token(token: str) -> bytes:
    """Return the SHA-256 digest of a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _parse_entry(line: str, location: str) -> tuple[str, bytes]:
    match = _match_line(line)
    if match is None:
        raise InvalidArgument(f"{location}: this is no `name: token`; `forebay token NAME` prints such a line")
    name, digest, token = match.groups()
    if digest is not None:
        return name, bytes.fromhex(digest)
    if len(token) < (_MIN_HEX_CHARS if _HEX_PATTERN.fullmatch(token) else _MIN_BASE64_CHARS):
        raise InvalidArgument(f"{location}: this token can be guessed; `forebay token NAME` prints a better one")
    return name, hash_token(token)


def _match_line(line: str) -> re.Match[str] | None:
    match = _LINE_PATTERN.fullmatch(line)
    return match if match is not None and match[1].isprintable() else None
