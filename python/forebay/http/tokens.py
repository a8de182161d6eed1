"""Bearer tokens of a file: lines of `name: token` or `name: sha256:…`, where the name is the principal."""

import dataclasses
import functools
import hashlib
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable
from typing import Protocol

from forebay.errors import InvalidArgument
from forebay.store.handles import make_token_principal
from forebay.system import files

__all__ = ["AccessToken", "TokenFile", "TokenVerifier", "hash_token", "make_token", "parse_token_lines"]

_log = logging.getLogger("forebay")

_MAX_FILE_BYTES = 1 << 20

_LINE_PATTERN = re.compile(r"([^\s:#](?:[^:]{0,198}[^\s:])?)\s*:\s*(?:sha256:([0-9a-fA-F]{64})|([A-Za-z0-9._~+/-]+=*))")
_HEX_PATTERN = re.compile(r"[0-9a-fA-F]*")
_MIN_HEX_CHARS, _MIN_BASE64_CHARS = 32, 22
"""Length of a token with 128 random bits, in hexadecimal and in base64; shorter tokens are refused."""


@dataclasses.dataclass(frozen=True)
class AccessToken:
    """What is known of a verified token. The token itself is not kept."""

    client_id: str
    scopes: list[str]
    expires_at: int | None = None
    """Unix time after which the token is refused; `None` if it is valid until it is removed from the file."""
    issuer: str | None = None
    subject: str | None = None

    @functools.cached_property
    def principal(self) -> str:
        return make_token_principal(self.client_id, self.issuer, self.subject)


class TokenVerifier(Protocol):
    """Verifier of bearer tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what is known of a valid token, or `None`."""


class TokenFile:
    """Verifier that accepts the tokens in a file. The file is read again when it changes.

    If the changed file cannot be read, the previous tokens stay valid. Raises `InvalidArgument` if the file cannot be
    read at the start. Error messages never show the content of the file.
    """

    def __init__(self, path: str, scopes: Iterable[str] = (), *, allow_others_to_read: bool = False) -> None:
        self._path = path
        self._scopes = list(scopes)
        self._allow_others_to_read = allow_others_to_read
        # Get the signature before reading the file, so that a change during the reading is noticed next time.
        self._last_signature = self._get_signature()
        self._tokens = self._read()
        if not self._tokens:
            raise InvalidArgument(f"{path} has no tokens; `forebay token NAME` prints a line for it")

    async def verify_token(self, token: str) -> AccessToken | None:
        self._refresh()
        # The time of the lookup depends on the digest, which a caller cannot choose, so it reveals nothing.
        return self._tokens.get(hash_token(token))

    def _refresh(self) -> None:
        signature = self._get_signature()
        if signature == self._last_signature:
            return
        self._last_signature = signature
        try:
            self._tokens = self._read()
        except InvalidArgument as error:
            _log.error("the tokens that were read before stay in force: %s", error)

    def _get_signature(self) -> tuple[int, ...] | None:
        """Return a value that changes when the file changes."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - for each request, and `Path.stat` takes three times as long
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[bytes, AccessToken]:
        try:
            with open(self._path, "rb", opener=_open_nonblocking) as file:
                self._check_file(file.fileno())
                text = file.read(_MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            # The message of a decoding error would show bytes of the file.
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidArgument(
                f"tokens cannot be read from {self._path}: {reason}; `forebay token NAME` prints a line for it"
            ) from None
        return {digest: AccessToken(name, self._scopes) for digest, name in parse_token_lines(text, self._path)}

    def _check_file(self, fd: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise InvalidArgument(f"{self._path} is not a file of tokens; name one with a `name: token` on each line")
        command = files.describe_readers(fd, str(self._path))
        if command is not None and not self._allow_others_to_read:
            raise InvalidArgument(f"others can read the tokens in {self._path}; run: {command}")


def _open_nonblocking(path: str, flags: int) -> int:
    # Without `O_NONBLOCK`, opening a named pipe would block. Windows has no such pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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
        raise InvalidArgument(f"{location}: this is not `name: token`; `forebay token NAME` prints such a line")
    name, digest, token = match.groups()
    if digest is not None:
        return name, bytes.fromhex(digest)
    if len(token) < (_MIN_HEX_CHARS if _HEX_PATTERN.fullmatch(token) else _MIN_BASE64_CHARS):
        raise InvalidArgument(f"{location}: this token can be guessed; `forebay token NAME` prints a better one")
    return name, hash_token(token)


def _match_line(line: str) -> re.Match[str] | None:
    match = _LINE_PATTERN.fullmatch(line)
    return match if match is not None and match[1].isprintable() else None
