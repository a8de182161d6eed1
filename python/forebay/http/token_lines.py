"""The lines of a file of bearer tokens: `name: token`, or `name: sha256:…`; the name is the principal."""

import hashlib
import re
import secrets

from forebay.errors import InvalidArgument

__all__ = ["digest_of", "made", "parsed"]

_LINE = re.compile(r"([^\s:#](?:[^:]{0,198}[^\s:])?)\s*:\s*(?:sha256:([0-9a-fA-F]{64})|([A-Za-z0-9._~+/-]+=*))")
_HEX = re.compile(r"[0-9a-fA-F]*")
_FEWEST_HEX, _FEWEST = 32, 22
"""What 128 bits take, as digits and as base64."""


def made(name: str, *, is_hashed: bool = False) -> tuple[str, str]:
    """A new token, and its line for the file."""
    token = secrets.token_urlsafe(32)
    line = f"{name}: sha256:{digest_of(token).hex()}" if is_hashed else f"{name}: {token}"
    found = _matched(line)
    if found is None or found[1] != name:
        raise InvalidArgument(
            "a principal has a name without colons, without spaces around it, of at most 200 characters, such as alice"
        )
    return token, line


def parsed(text: str, path: str) -> list[tuple[bytes, str]]:
    """The digest of each token, and whose it is.

    Raises `InvalidArgument`, which names the line and shows nothing of it.
    """
    entries: dict[bytes, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, digest = _entry(line.strip(), f"{path}:{number}")
        if entries.setdefault(digest, name) != name:
            raise InvalidArgument(f"{path}:{number}: this token is another principal's already; make a new one")
    return list(entries.items())


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _entry(line: str, place: str) -> tuple[str, bytes]:
    found = _matched(line)
    if found is None:
        raise InvalidArgument(f"{place}: this is no `name: token`; `forebay token NAME` prints such a line")
    name, digest, token = found.groups()
    if digest is not None:
        return name, bytes.fromhex(digest)
    if len(token) < (_FEWEST_HEX if _HEX.fullmatch(token) else _FEWEST):
        raise InvalidArgument(f"{place}: this token can be guessed; `forebay token NAME` prints a better one")
    return name, digest_of(token)


def _matched(line: str) -> re.Match[str] | None:
    found = _LINE.fullmatch(line)
    return found if found is not None and found[1].isprintable() else None
