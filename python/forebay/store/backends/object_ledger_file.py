"""The ledger's object in a bucket: read and replaced by one thread of a process at a time."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping

from forebay.errors import StoreUnavailable
from forebay.store.backends.object_client import CREATE, ObjectClient, Version
from forebay.store.backends.object_errors import Conflict
from forebay.store.backends.object_ledger import Ledger
from forebay.store.threads import fork_safe_lock

__all__ = ["LedgerFile"]

_KEY = "accounts"


class LedgerFile:
    """The ledger as this process read or wrote it last. The methods are called inside `lock`."""

    def __init__(
        self, client: ObjectClient, is_store_empty: Callable[[], bool], on_change: Callable[[Ledger | None], None]
    ) -> None:
        self._client = client
        self._is_store_empty = is_store_empty
        self._on_change = on_change
        self._lock = fork_safe_lock()
        self._failure = (0.0, "")
        self._view: tuple[bytes, Version] | None = None
        self._viewed_at = 0.0
        self.position: int | None = None
        """The ledger's position when it was last seen."""

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the right to read and write. A thread that waited for a request that failed does not make it again."""
        waiting_since = time.monotonic()
        with self._lock:
            failed_at, message = self._failure
            if failed_at > waiting_since:
                raise StoreUnavailable(message)
            try:
                yield
            except StoreUnavailable as error:
                self._failure = (time.monotonic(), str(error))
                raise

    @property
    def age_seconds(self) -> float:
        """How long ago the ledger was seen."""
        return time.monotonic() - self._viewed_at

    def get_last(self) -> tuple[Ledger, Version] | None:
        """Return the ledger as it was last seen, and its version."""
        ledger = None if self._view is None else Ledger.decode(self._view[0])
        return None if ledger is None or self._view is None else (ledger, self._view[1])

    def read(self) -> Ledger | None:
        """Read the ledger; `None` if there is none. That of an empty store is created."""
        ledger = self._read()
        if self._view is None and self._is_store_empty():
            if not self.write(Ledger.create({}), CREATE):
                return self._read()
            return self._decode()
        return ledger

    def _read(self) -> Ledger | None:
        found = self._client.read_all(_KEY)
        self._set_view(None if found is None else (found[1], found[0].version))
        return self._decode()

    def _decode(self) -> Ledger | None:
        last = self.get_last()
        return None if last is None else last[0]

    def create(self, sums: Mapping[str, int]) -> None:
        """Write the first ledger, or one in place of a damaged one."""
        if self._read() is None:
            self.write(Ledger.create(sums), CREATE if self._view is None else self._view[1])

    def write(self, ledger: Ledger, version: Version) -> bool:
        """Write the ledger if it still has this version, and return whether it had."""
        data = ledger.encode(secrets.token_hex(8))
        self._view = None
        try:
            version = self._client.put(_KEY, [data], version)
        except Conflict:
            return False
        self._set_view((data, version))
        return True

    def _set_view(self, view: tuple[bytes, Version] | None) -> None:
        self._view, self._viewed_at = view, time.monotonic()
        ledger = self._decode()
        self.position = None if ledger is None else ledger.position
        self._on_change(ledger)
