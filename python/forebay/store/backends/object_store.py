"""A backend of objects in a bucket: of Amazon S3 and compatible servers, Google Cloud Storage, or Azure.

h/<class>/<handle>         an object; the class says how long it can live, see `handles.LIFETIMES`
accounts                   the ledger of the accounts
lease/sweep                the lock of the store
index/<class>/<day>/       what sweeps must know of the objects
journal/, calls/           the log and the counts of calls
"""

import atexit
import os
import secrets
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager

from forebay.errors import HandleNotFound, StoreUnavailable
from forebay.store.address import RemoteAddress
from forebay.store.backends import Listed
from forebay.store.backends.object_accounts import ObjectAccounts
from forebay.store.backends.object_client import ObjectClient, ObjectState
from forebay.store.backends.object_counts import ObjectCountTable
from forebay.store.backends.object_errors import Conflict, OutcomeUnknown
from forebay.store.backends.object_index import ObjectIndex
from forebay.store.backends.object_lease import hold_lease
from forebay.store.backends.object_log import ObjectLog
from forebay.store.backends.object_recount import ObjectRecount
from forebay.store.backends.object_upload import ObjectUpload
from forebay.store.backends.remote_blob import RemoteBlob
from forebay.store.entries import Entry
from forebay.store.handles import LIFETIMES, get_lifetime_class, is_handle

__all__ = ["ObjectStoreBackend"]

_FOLDER = "h"
_LEASE_KEY = "lease/sweep"

_TAIL_BYTES = 256 << 10
"""How much of the end of an object the first request reads: the footer of most objects."""

_EXPIRY_MARGIN_SECONDS = 3600.0
"""How much the clock of a writer may differ from that of the server."""

_TOMBSTONE = b"forebay: being deleted by "
_TOMBSTONE_BYTES = len(_TOMBSTONE) + 41
"""Size of the text that replaces an object while it is deleted. Few objects have the same, and these are read."""

_MAX_TOMBSTONE_SECONDS = 600.0
_MAX_CLAIM_ATTEMPTS = 5

_open_backends: "weakref.WeakSet[ObjectStoreBackend]" = weakref.WeakSet()


class ObjectStoreBackend:
    """Objects in a bucket, which must exist. Opening makes one request."""

    expires_by_handle = True

    def __init__(self, address: RemoteAddress, *, clock: Callable[[], float] = time.time) -> None:
        self._client = ObjectClient(address)
        self._clock = clock
        self.accounts = ObjectAccounts(self._client, self._is_empty)
        self.index = ObjectIndex(self._client)
        self.log = ObjectLog(self._client)
        self.call_counts = ObjectCountTable(self._client)
        self.pid = os.getpid()
        # Shows at once if the bucket or the credentials are wrong.
        self.accounts.read_ledger()
        _open_backends.add(self)

    @property
    def folder(self) -> None:
        """`None`: objects are not files."""

    def check(self) -> None:
        self._client.head(_LEASE_KEY)

    def create(self, handle: str) -> ObjectUpload:
        return ObjectUpload(self._client, self.accounts, self.index, handle, _make_key(handle))

    def open(self, handle: str, version: object = None) -> RemoteBlob:
        if isinstance(version, ObjectState):
            return self._make_blob(handle, version, b"")
        found = self._client.read_tail(_make_key(handle), _TAIL_BYTES)
        if found is None or _is_tombstone(found[1]):
            raise KeyError(handle)
        return self._make_blob(handle, *found)

    def _make_blob(self, handle: str, state: ObjectState, tail: bytes) -> RemoteBlob:
        key = _make_key(handle)

        def fetch(start: int, length: int) -> bytes:
            data = self._client.read_range(key, state, start, start + length)
            if data is None:
                raise _make_gone_error(handle)
            return data

        def check() -> None:
            current = self._client.head(key)
            if current is None or current.version != state.version:
                raise _make_gone_error(handle)

        return RemoteBlob(fetch, check, size=state.size, modified_at=state.modified_at, version=state, tail=tail)

    def is_committed(self, handle: str, version: object) -> bool:  # noqa: ARG002 - a commit is one step
        return True

    def list(self) -> Iterator[Listed]:
        now = self._get_time()
        number = self.index.read(now)
        for key, state in self._client.list(_FOLDER):
            handle = key.rpartition("/")[2]
            if not is_handle(handle) or key != _make_key(handle) or self._remove_tombstone(key, state):
                continue
            yield Listed(handle, self.index.find(handle, state.size, number) or _estimate_entry(handle, state, now))
        self.index.forget_unlisted(number)

    def _get_time(self) -> float:
        # A clock that a test has set does not expire what the server has dated.
        return min(self._clock(), time.time())

    def _remove_tombstone(self, key: str, state: ObjectState) -> bool:
        """Return whether an object is being deleted, and delete it if that process has died."""
        if state.size != _TOMBSTONE_BYTES:
            return False
        found = self._client.read_tail(key, _TOMBSTONE_BYTES)
        if found is not None and not _is_tombstone(found[1]):
            return False
        if found is not None and found[0].modified_at + _MAX_TOMBSTONE_SECONDS < time.time():
            self._client.delete(key)
        return True

    def delete(self, handle: str, size: int, accounts: Collection[str]) -> bool:
        """Delete an object. One of several that delete it at once returns true, and subtracts the size.

        A deletion tells nobody whether the object existed. So the object is first replaced by a tombstone, on the
        condition that it has not changed: only one can do that.
        """
        position = self.accounts.get_position()
        if not self._claim(_make_key(handle)):
            return False
        self._client.delete(_make_key(handle))
        self.accounts.release(size, accounts, position)
        return True

    def _claim(self, key: str) -> bool:
        tombstone = _TOMBSTONE + secrets.token_hex(20).encode() + b"\n"
        for _ in range(_MAX_CLAIM_ATTEMPTS):
            found = self._client.head(key)
            if found is None or self._remove_tombstone(key, found):
                return False
            if self._client.head(key) != found:
                # The first answer may have had the size of the object, and the version of a tombstone.
                continue
            try:
                self._client.put(key, [tombstone], found.version)
            except Conflict:
                continue
            except OutcomeUnknown as error:
                raise StoreUnavailable(f"{error}; the object may be deleted already") from None
            return True
        raise StoreUnavailable("an object is being replaced again and again, and was not deleted; call again")

    def usage(self, accounts: Collection[str] | None = None) -> dict[str, int]:
        return self.accounts.usage(accounts)

    def begin_recount(self) -> ObjectRecount:
        return ObjectRecount(self.accounts)

    def _is_empty(self) -> bool:
        return next(self._client.list(_FOLDER), None) is None

    def remove_leftovers(self) -> int:
        """Remove old parts of the index, the log and the counts; return 0.

        Parts of unfinished uploads cannot be listed. A rule of the bucket removes them: `forebay store lifecycle`.
        """
        self.index.remove_old(self._get_time())
        self.log.remove_old()
        self.call_counts.remove_old()
        return 0

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        return hold_lease(self._client, _LEASE_KEY, wait=wait)

    def close(self) -> None:
        self.index.close()
        self.log.close()
        self.accounts.close()
        _open_backends.discard(self)


def _make_key(handle: str) -> str:
    return f"{_FOLDER}/{get_lifetime_class(handle)}/{handle}"


def _estimate_entry(handle: str, state: ObjectState, now: float) -> Entry | None:
    """Return the entry of an object whose lifetime class shows that it has expired."""
    lifetime = LIFETIMES[get_lifetime_class(handle)]
    if lifetime is None or state.modified_at + lifetime + _EXPIRY_MARGIN_SECONDS > now:
        return None
    expired_at = state.modified_at + lifetime + _EXPIRY_MARGIN_SECONDS
    return Entry(state.modified_at, expired_at, state.size, None, is_estimate=True)


def _is_tombstone(tail: bytes) -> bool:
    return len(tail) == _TOMBSTONE_BYTES and tail.startswith(_TOMBSTONE)


def _make_gone_error(handle: str) -> HandleNotFound:
    return HandleNotFound(
        f"what was stored under {handle!r} is gone: it was deleted or has expired; call the tool again for a new handle"
    )


@atexit.register
def _close_all() -> None:
    pid = os.getpid()
    for backend in list(_open_backends):
        if backend.pid == pid:
            backend.close()
