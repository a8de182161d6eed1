"""From a handle to an open payload, for the principal it belongs to and until it expires."""

import collections
from collections.abc import Callable

from typing_extensions import Buffer

from forebay.arguments import short_repr
from forebay.errors import HandleCorrupt, HandleNotFound
from forebay.store.backends import Backend, Blob
from forebay.store.frames import Footer, read_footer
from forebay.store.handles import is_handle
from forebay.store.principals import OPERATOR, Principal
from forebay.store.reader import PayloadReader
from forebay.store.threads import ForkSafeLock

__all__ = ["Catalog"]


_MAX_CACHED_FOOTERS = 256
_MAX_CACHED_PAYLOAD_BYTES = 256 << 20


class Catalog:
    """Opens payloads, and remembers what recent ones said of themselves."""

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._lock = ForkSafeLock()
        self._footers: collections.OrderedDict[str, tuple[object, Footer]] = collections.OrderedDict()
        self._payloads: collections.OrderedDict[str, tuple[object, Buffer]] = collections.OrderedDict()
        self._cached_bytes = 0

    def open(self, handle: str, principal: Principal) -> PayloadReader:
        """The payload; `HandleNotFound` if there is none, or none any more, or not for this principal."""
        if not is_handle(handle):
            raise _not_found_error(handle)
        try:
            blob = self._backend.open(handle)
        except KeyError:
            raise _not_found_error(handle) from None
        try:
            contents = self.read_footer(handle, blob)
            is_theirs = principal is OPERATOR or contents.meta["principal"] == principal
            if not is_theirs or contents.meta["expires_at"] <= self._clock():
                raise _not_found_error(handle)
        except BaseException:
            blob.close()
            raise
        return PayloadReader(blob, contents)

    def read_footer(self, handle: str, blob: Blob) -> Footer:
        """What an object says of itself, read again only if it has changed."""
        with self._lock:
            known = self._footers.get(handle)
            if known is not None and known[0] == blob.version:
                self._footers.move_to_end(handle)
                return known[1]
        contents = read_footer(blob)
        if contents.meta["handle"] != handle:
            raise HandleCorrupt("the stored file is that of another handle; call the tool again")
        with self._lock:
            self._footers[handle] = (blob.version, contents)
            while len(self._footers) > _MAX_CACHED_FOOTERS:
                self._footers.popitem(last=False)
        return contents

    def get_cached_payload(self, reader: PayloadReader) -> Buffer | None:
        """All of a payload, if it is at hand."""
        handle = reader.footer.meta["handle"]
        with self._lock:
            known = self._payloads.get(handle)
            if known is None or known[0] != reader.version:
                return None
            self._payloads.move_to_end(handle)
            return known[1]

    def read_payload(self, reader: PayloadReader) -> Buffer:
        """All of a payload, kept for a while: whoever searches it mostly searches on."""
        kept = self.get_cached_payload(reader)
        if kept is not None:
            return kept
        handle = reader.footer.meta["handle"]
        data = reader.read_all()
        with self._lock:
            self._drop_payload(handle)
            self._payloads[handle] = (reader.version, data)
            self._cached_bytes += memoryview(data).nbytes
            while self._cached_bytes > _MAX_CACHED_PAYLOAD_BYTES and len(self._payloads) > 1:
                self._drop_payload(next(iter(self._payloads)))
        return data

    def _drop_payload(self, handle: str) -> None:
        dropped = self._payloads.pop(handle, None)
        if dropped is not None:
            self._cached_bytes -= memoryview(dropped[1]).nbytes

    def forget(self, handle: str) -> None:
        """Lets go of what is remembered of a handle."""
        with self._lock:
            self._footers.pop(handle, None)
            self._drop_payload(handle)


def _not_found_error(handle: object) -> HandleNotFound:
    # Whatever a model sent, shortened where it is no handle anyway.
    told = repr(handle) if isinstance(handle, str) and len(handle) <= 40 else short_repr(handle)
    return HandleNotFound(
        f"nothing is stored under {told}: it never was, or it has expired; call the tool again for a new handle"
    )
