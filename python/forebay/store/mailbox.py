"""Messages between processes that use one store, each under a key that both processes know.

A message is an object of the backend, as a sidecar is: it counts in the quotas, expires, and is evicted first if a full
store makes room. So a message may get lost, and a process that waits for one needs a timeout.
"""

import io
from collections.abc import Callable

from forebay.errors import HandleCorrupt, HandleNotFound
from forebay.store.backends import Backend
from forebay.store.frames import read_footer
from forebay.store.handles import LIFETIMES, get_message_handle
from forebay.store.quota import Quota
from forebay.store.sidecars import delete_hidden, write_hidden

__all__ = ["Mailbox"]

_LIFETIME_CLASS = 2
"""The lifetime class of all messages, which is part of their handles: a day."""

_MAX_TTL_SECONDS = LIFETIMES[_LIFETIME_CLASS] or 0


class Mailbox:
    """The messages of a store."""

    def __init__(self, backend: Backend, quota: Quota, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._quota = quota
        self._clock = clock

    def post(self, key: str, content: bytes, ttl: float, principal: str | None = None) -> None:
        """Store a message for `ttl` seconds, at most a day, in place of the one with the same key."""
        now = self._clock()
        meta = {
            "handle": get_message_handle(key, _LIFETIME_CLASS),
            "created_at": now,
            "expires_at": now + min(ttl, _MAX_TTL_SECONDS),
            "principal": principal,
        }
        write_hidden(self._backend, self._quota, meta, io.BytesIO(content))

    def read(self, key: str) -> bytes | None:
        """Return a message, or `None` if there is none."""
        found = self._find(key)
        return None if found is None else found[0]

    def take(self, key: str) -> bytes | None:
        """Return a message and delete it. Only one of several processes gets it; the others get `None`."""
        found = self._find(key)
        if found is None:
            return None
        content, principal = found
        is_mine = delete_hidden(self._backend, self._quota, get_message_handle(key, _LIFETIME_CLASS), principal)
        return content if is_mine else None

    def _find(self, key: str) -> tuple[bytes, str | None] | None:
        handle = get_message_handle(key, _LIFETIME_CLASS)
        try:
            with self._backend.open(handle) as blob:
                footer = read_footer(blob)
                if footer.meta["handle"] != handle or footer.meta["expires_at"] <= self._clock():
                    return None
                return b"".join(footer.iter_chunks(blob)), footer.meta["principal"]
        except (KeyError, HandleNotFound, HandleCorrupt):
            return None
