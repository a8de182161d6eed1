"""Opening payloads by handle, for the principal they belong to and until they expire."""

from collections.abc import Callable

from cachetools import LRUCache
from typing_extensions import Buffer

from forebay.arguments import short_repr
from forebay.errors import HandleCorrupt, HandleNotFound
from forebay.store.backends import Backend, Blob
from forebay.store.frames import Footer, read_footer
from forebay.store.handles import is_handle
from forebay.store.principals import OPERATOR, Principal
from forebay.store.reader import PayloadReader
from forebay.store.threads import fork_safe_lock

__all__ = ["Catalog"]

_MAX_CACHED_FOOTERS = 256
_MAX_CACHED_PAYLOAD_BYTES = 256 << 20


class Catalog:
    """Opens payloads, with caches of recent footers and of recently searched payloads.

    Each cache entry has the version of the file it was read from.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._lock = fork_safe_lock()
        self._footers: LRUCache[str, tuple[object, Footer]] = LRUCache(_MAX_CACHED_FOOTERS)
        self._payloads: LRUCache[str, tuple[object, Buffer]] = LRUCache(_MAX_CACHED_PAYLOAD_BYTES, _get_payload_size)

    def open(self, handle: str, principal: Principal) -> PayloadReader:
        """Open a payload. Raises `HandleNotFound` if it does not exist, has expired or belongs to someone else."""
        if not is_handle(handle):
            raise _make_not_found_error(handle)
        try:
            blob = self._backend.open(handle)
        except KeyError:
            raise _make_not_found_error(handle) from None
        try:
            footer = self.read_footer(handle, blob)
            is_owner = principal is OPERATOR or footer.meta["principal"] == principal
            if not is_owner or footer.meta["expires_at"] <= self._clock():
                raise _make_not_found_error(handle)
        except BaseException:
            blob.close()
            raise
        return PayloadReader(blob, footer)

    def read_footer(self, handle: str, blob: Blob) -> Footer:
        """Return the footer of an object, from the cache if the object has not changed."""
        with self._lock:
            version, footer = self._footers.get(handle, (None, None))
        if footer is not None and version == blob.version:
            return footer
        footer = read_footer(blob)
        if footer.meta["handle"] != handle:
            raise HandleCorrupt("the stored file is that of another handle; call the tool again")
        with self._lock:
            self._footers[handle] = (blob.version, footer)
        return footer

    def get_cached_payload(self, reader: PayloadReader) -> Buffer | None:
        """Return a whole payload if it is in the cache."""
        with self._lock:
            version, data = self._payloads.get(reader.footer.meta["handle"], (None, None))
        return data if version == reader.version else None

    def read_payload(self, reader: PayloadReader) -> Buffer:
        """Return a whole payload and cache it: one search is often followed by another."""
        data = self.get_cached_payload(reader)
        if data is None:
            data = reader.read_all()
            with self._lock:
                self._payloads[reader.footer.meta["handle"]] = (reader.version, data)
        return data

    def forget(self, handle: str) -> None:
        """Remove a handle from the caches."""
        with self._lock:
            self._footers.pop(handle, None)
            self._payloads.pop(handle, None)


def _get_payload_size(entry: tuple[object, Buffer]) -> int:
    # A payload larger than the cache is counted with the cache's size, so that it replaces all others.
    return min(memoryview(entry[1]).nbytes, _MAX_CACHED_PAYLOAD_BYTES)


def _make_not_found_error(handle: object) -> HandleNotFound:
    # A model may send anything; only a text about as short as a handle is repeated in full.
    text = repr(handle) if isinstance(handle, str) and len(handle) <= 40 else short_repr(handle)
    return HandleNotFound(
        f"nothing is stored under {text}: it never was, or it has expired; call the tool again for a new handle"
    )
