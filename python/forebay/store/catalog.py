"""From a handle to an open payload, for the principal it belongs to and until it expires."""

import collections
from collections.abc import Callable
from typing import Final, TypeGuard

from typing_extensions import Buffer

from forebay.arguments import is_text, shown
from forebay.errors import HandleCorrupt, HandleNotFound
from forebay.store.backends import Backend, Blob
from forebay.store.frames import Contents, read_contents
from forebay.store.handles import is_handle
from forebay.store.locks import Lock
from forebay.store.reader import Reader

__all__ = ["LONGEST_NAME", "OPERATOR", "Catalog", "Principal", "is_name"]


class _Operator:
    """In place of a principal: whoever runs the store, and sees all of it."""

    def __repr__(self) -> str:
        return "OPERATOR"


OPERATOR: Final = _Operator()

Principal = str | _Operator | None
"""Whose a handle is. `None` is nobody in particular: a program that serves one user."""

LONGEST_NAME = 1024
"""What a tool or a principal is called stands in every event of the journal."""


def is_name(value: object) -> TypeGuard[str]:
    """Whether a tool or a principal may be called so."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and is_text(value)


_MOST_FOOTERS = 256
_MOST_WHOLE = 256 << 20


class Catalog:
    """Opens payloads, and remembers what recent ones said of themselves."""

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._lock = Lock()
        self._footers: collections.OrderedDict[str, tuple[object, Contents]] = collections.OrderedDict()
        self._wholes: collections.OrderedDict[str, tuple[object, Buffer]] = collections.OrderedDict()
        self._wholes_size = 0

    def open(self, handle: str, principal: Principal) -> Reader:
        """The payload; `HandleNotFound` if there is none, or none any more, or not for this principal."""
        if not is_handle(handle):
            raise _not_found(handle)
        try:
            blob = self._backend.open(handle)
        except KeyError:
            raise _not_found(handle) from None
        try:
            contents = self.contents(handle, blob)
            is_theirs = principal is OPERATOR or contents.meta["principal"] == principal
            if not is_theirs or contents.meta["expires_at"] <= self._clock():
                raise _not_found(handle)
        except BaseException:
            blob.close()
            raise
        return Reader(blob, contents)

    def contents(self, handle: str, blob: Blob) -> Contents:
        """What an object says of itself, read again only if it has changed."""
        with self._lock:
            known = self._footers.get(handle)
            if known is not None and known[0] == blob.version:
                self._footers.move_to_end(handle)
                return known[1]
        contents = read_contents(blob)
        if contents.meta["handle"] != handle:
            raise HandleCorrupt("the stored file is that of another handle; call the tool again")
        with self._lock:
            self._footers[handle] = (blob.version, contents)
            while len(self._footers) > _MOST_FOOTERS:
                self._footers.popitem(last=False)
        return contents

    def kept(self, reader: Reader) -> Buffer | None:
        """All of a payload, if it is at hand."""
        handle = reader.contents.meta["handle"]
        with self._lock:
            known = self._wholes.get(handle)
            if known is None or known[0] != reader.version:
                return None
            self._wholes.move_to_end(handle)
            return known[1]

    def whole(self, reader: Reader) -> Buffer:
        """All of a payload, kept for a while: whoever searches it mostly searches on."""
        kept = self.kept(reader)
        if kept is not None:
            return kept
        handle = reader.contents.meta["handle"]
        data = reader.whole()
        with self._lock:
            self._drop_whole(handle)
            self._wholes[handle] = (reader.version, data)
            self._wholes_size += memoryview(data).nbytes
            while self._wholes_size > _MOST_WHOLE and len(self._wholes) > 1:
                self._drop_whole(next(iter(self._wholes)))
        return data

    def _drop_whole(self, handle: str) -> None:
        dropped = self._wholes.pop(handle, None)
        if dropped is not None:
            self._wholes_size -= memoryview(dropped[1]).nbytes

    def forget(self, handle: str) -> None:
        """Lets go of what is remembered of a handle."""
        with self._lock:
            self._footers.pop(handle, None)
            self._drop_whole(handle)


def _not_found(handle: object) -> HandleNotFound:
    # Whatever a model sent, shortened where it is no handle anyway.
    told = repr(handle) if isinstance(handle, str) and len(handle) <= 40 else shown(handle)
    return HandleNotFound(
        f"nothing is stored under {told}: it never was, or it has expired; call the tool again for a new handle"
    )
