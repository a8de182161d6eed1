"""Bearer tokens in a file, each a principal's."""

import hmac
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mcp.server.auth.provider import AccessToken, TokenVerifier

from forebay.errors import InvalidArgument
from forebay.http.token_lines import digest_of, parsed

__all__ = ["TokenFile"]

_log = logging.getLogger("forebay")

_LARGEST = 1 << 20


class TokenFile(TokenVerifier):
    """What the file has; when it changes it is read again, and until it can be read what it had before stays in force.

    Raises `InvalidArgument` if it cannot be read at the start. No error says what is in it.
    """

    def __init__(self, path: str, scopes: Iterable[str] = (), *, may_be_open: bool = False) -> None:
        self._path = Path(path)
        self._scopes = list(scopes)
        self._may_be_open = may_be_open
        # Before it is read: a change in between is seen the next time.
        self._seen = self._signature()
        self._entries = self._read()
        if not self._entries:
            raise InvalidArgument(f"{path} has no tokens; `forebay token NAME` prints a line for it")

    async def verify_token(self, token: str) -> AccessToken | None:
        self._refresh()
        digest = digest_of(token)
        found = None
        # All of them, so that how long it takes says nothing.
        for known, name in self._entries:
            if hmac.compare_digest(known, digest):
                found = name
        # The token itself goes no further than here.
        return None if found is None else AccessToken(token="", client_id=found, scopes=self._scopes)

    def _refresh(self) -> None:
        now = self._signature()
        if now == self._seen:
            return
        self._seen = now
        try:
            self._entries = self._read()
        except InvalidArgument as error:
            _log.error("the tokens that were read before stay in force: %s", error)

    def _signature(self) -> tuple[int, ...] | None:
        """What is another when the file is."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _read(self) -> list[tuple[bytes, str]]:
        try:
            with open(self._path, "rb", opener=_opened) as file:
                self._check(os.fstat(file.fileno()))
                text = file.read(_LARGEST).decode()
        except (OSError, UnicodeDecodeError) as error:
            # A decoding error shows what it could not decode.
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidArgument(f"tokens cannot be read from {self._path}: {why}; check the file") from None
        return parsed(text, str(self._path))

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise InvalidArgument(f"{self._path} is no file of tokens; name one with a `name: token` on each line")
        if status.st_mode & 0o077 and not self._may_be_open:
            raise InvalidArgument(f"others can read the tokens in {self._path}; run: chmod 600 {self._path}")


def _opened(path: str, flags: int) -> int:
    # A pipe in its place would keep us waiting.
    return os.open(path, flags | os.O_NONBLOCK)
