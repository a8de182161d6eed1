"""The lock of a store in a bucket: an object that its holder renews, so that others can tell that it is alive.

Two holders at once do no harm: every delete has one winner, and every recount is valid on its own. So an expiry by the
clocks of the machines, with a margin, is enough.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator

import orjson

from forebay.errors import ForebayError, StoreUnavailable
from forebay.store.backends.object_client import CREATE, ObjectClient, Version
from forebay.store.backends.object_errors import Conflict

__all__ = ["hold_lease"]

_LEASE_SECONDS = 60.0
_MARGIN_SECONDS = 60.0
"""How much the clocks of two machines may differ."""

_RENEWAL_SECONDS = 20.0
_POLL_SECONDS = 0.5
_MAX_WAIT_SECONDS = 300.0


@contextlib.contextmanager
def hold_lease(client: ObjectClient, key: str, *, wait: bool) -> Iterator[bool]:
    """Hold a lease and yield true. Without `wait`, yield false if another process holds it."""
    lease = _Lease(client, key)
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while not lease.acquire():
        if not wait:
            yield False
            return
        if time.monotonic() >= deadline:
            raise StoreUnavailable(
                f"other processes have held the lock of this store for {_MAX_WAIT_SECONDS:.0f} seconds; call again"
            )
        time.sleep(_POLL_SECONDS)
    stopped = threading.Event()
    thread = threading.Thread(target=lease.keep_renewing, args=[stopped], name="forebay-lease", daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stopped.set()
        thread.join()
        lease.release()


class _Lease:
    """One attempt to hold a lease."""

    def __init__(self, client: ObjectClient, key: str) -> None:
        self._client = client
        self._key = key
        self._holder = secrets.token_hex(8)
        self._version: Version | None = None

    def acquire(self) -> bool:
        """Take the lease unless somebody holds it, and return whether it was taken."""
        found = self._client.read_all(self._key)
        if found is not None and _get_end(found[1]) + _MARGIN_SECONDS > time.time():
            return False
        return self._write(CREATE if found is None else found[0].version, time.time() + _LEASE_SECONDS)

    def _write(self, condition: Version, end: float) -> bool:
        # The text is unique, so that the client recognizes it after a lost answer.
        data = orjson.dumps({"holder": self._holder, "end": end, "id": secrets.token_hex(4)})
        try:
            self._version = self._client.put(self._key, [data], condition)
        except Conflict:
            self._version = None
            return False
        return True

    def keep_renewing(self, stopped: threading.Event) -> None:
        """Renew the lease until it is released, or lost."""
        while not stopped.wait(_RENEWAL_SECONDS) and self._version is not None:
            with contextlib.suppress(ForebayError):
                self._write(self._version, time.time() + _LEASE_SECONDS)

    def release(self) -> None:
        """Let others take the lease. It is written, because some servers ignore the condition of a deletion."""
        if self._version is not None:
            with contextlib.suppress(ForebayError):
                self._write(self._version, -_MARGIN_SECONDS)


def _get_end(data: bytes) -> float:
    """Return when a lease ends; a damaged one has ended."""
    try:
        return float(orjson.loads(data)["end"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return -_MARGIN_SECONDS
