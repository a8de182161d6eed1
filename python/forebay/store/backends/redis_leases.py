"""Leases on a Redis server, renewed while this process is alive: of its unfinished uploads, and of the store's lock."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator

from forebay.errors import ForebayError
from forebay.store.backends.redis_client import RedisClient
from forebay.store.backends.redis_keys import RedisKeys
from forebay.store.backends.redis_scripts import ACQUIRE_LOCK, RELEASE_LOCK, RENEW_UPLOADS
from forebay.store.threads import fork_safe_lock

__all__ = ["UPLOAD_SECONDS", "RedisLeases"]

UPLOAD_SECONDS = 120
"""How long a writer may be silent until a sweep removes its upload."""

_LOCK_SECONDS = 30
_RENEW_SECONDS = 10
_MAX_POLL_SECONDS = 0.5


class RedisLeases:
    """The leases of this process. A thread renews them while there are any."""

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys
        self._lock = fork_safe_lock()
        self._wake = threading.Event()
        self._uploads: set[str] = set()
        self._tokens: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def register_upload(self, name: str) -> None:
        """Register an upload before anything of it is written."""
        self._client.run(RENEW_UPLOADS, [self._keys.uploads], [UPLOAD_SECONDS, 1, name])
        self._renew_later(self._uploads, name)

    def end_upload(self, name: str) -> None:
        """Renew the lease of an upload no more."""
        with self._lock:
            self._uploads.discard(name)

    @contextlib.contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Hold the store's lock and yield true. Without `wait`, yield false if another process holds the lock."""
        token = secrets.token_hex(8)
        pause = 0.01
        is_acquired = self._acquire(token)
        while wait and not is_acquired:
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
            is_acquired = self._acquire(token)
        if not is_acquired:
            yield False
            return
        self._renew_later(self._tokens, token)
        try:
            yield True
        finally:
            with self._lock:
                self._tokens.discard(token)
            # Otherwise the lease ends soon.
            with contextlib.suppress(ForebayError):
                self._client.run(RELEASE_LOCK, [self._keys.lock], [token])

    def _acquire(self, token: str) -> bool:
        return bool(self._client.run(ACQUIRE_LOCK, [self._keys.lock], [token, _LOCK_SECONDS]))

    def _renew_later(self, names: set[str], name: str) -> None:
        with self._lock:
            if self._pid != os.getpid():
                # A forked child has neither the thread nor the leases.
                self._pid, self._thread = os.getpid(), None
                self._uploads.clear()
                self._tokens.clear()
            names.add(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_all, name="forebay-leases", daemon=True)
                self._thread.start()

    def _renew_all(self) -> None:
        while not self._wake.wait(_RENEW_SECONDS):
            with self._lock:
                uploads, tokens = [*self._uploads], [*self._tokens]
                if not uploads and not tokens:
                    self._thread = None
                    return
            # The next time may work.
            with contextlib.suppress(ForebayError):
                if uploads:
                    self._client.run(RENEW_UPLOADS, [self._keys.uploads], [UPLOAD_SECONDS, 0, *uploads])
                for token in tokens:
                    self._acquire(token)

    def close(self) -> None:
        """Renew nothing any more."""
        self._wake.set()
