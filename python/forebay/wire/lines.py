"""Messages as they come in, piece by piece: small ones as bytes, very large ones in a spool."""

import contextlib
import dataclasses
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import orjson

from forebay.errors import ForebayError
from forebay.wire.spool import Spool

__all__ = ["Begun", "Ends", "Kept", "Line", "Lines", "Unspooled", "ends_of", "widen"]

_CHUNK = 256 * 1024
_PIPE = 1024 * 1024
_END = 64 * 1024

_SCALAR = rb'(-?\d{1,20}|"(?:[^"\\]|\\.){0,256}")'
_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ID = rb'"id"\s*:\s*' + _SCALAR
_ID_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + _ID + rb"\s*,")
_REQUEST = re.compile(rb"\s*\{\s*" + _VERSION + rb"(?:" + _ID + rb'\s*,\s*)?"method"')
_ID_LAST = re.compile(rb"\}\s*,\s*" + _VERSION + _ID + rb"[^{}\"]*(?:,\s*\"jsonrpc\"\s*:\s*\"2\.0\"\s*)?\}\s*$")


@dataclasses.dataclass(slots=True)
class Ends:
    """Both ends of a line that cannot be read: enough to say so to who waits for it."""

    head: bytes
    tail: bytes

    @property
    def is_request(self) -> bool:
        """Whether it asks for something; else it may answer."""
        return _REQUEST.match(self.head) is not None

    def request_id(self) -> object:
        """The id of the message, which stands at its start or at its end; `None` if it is not to be found."""
        found = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        with contextlib.suppress(orjson.JSONDecodeError):
            return None if found is None else orjson.loads(found[1])
        return None


@dataclasses.dataclass(slots=True)
class Unspooled:
    """What is left of a line that was too large for memory and could not be spooled."""

    error: ForebayError
    size: int
    ends: Ends


Kept: TypeAlias = bytes | bytearray | Spool
"""A message, whole."""

Line: TypeAlias = Kept | Unspooled


def ends_of(line: Kept) -> Ends:
    """Where a message says what it is."""
    if isinstance(line, Spool):
        return Ends(b"".join(line.pieces(0, _END)), b"".join(line.pieces(max(len(line) - _END, 0))))
    return Ends(bytes(line[:_END]), bytes(line[-_END:]))


class Lines:
    """The lines of a file, without their ends, until there are no more; an unfinished last one, too."""

    def __init__(self, fd: int, *, most_bytes: int, make_spool: Callable[[], Spool], until: int | None = None) -> None:
        self._fd = fd
        self._most_bytes = most_bytes
        self._make_spool = make_spool
        self._until = until
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)
        if until is not None:
            self._poller.register(until, select.POLLIN)

    def _read(self, buffer: bytearray) -> int:
        """How many bytes there are now; 0 at the end."""
        while self._has_more():
            # Whoever we share it with may have made it one that does not wait.
            with contextlib.suppress(BlockingIOError):
                return os.readv(self._fd, [buffer])
            self._poller.poll()
        return 0

    def _has_more(self) -> bool:
        """Waits for more; whoever else may write to it, once `until` is over there is only what is in it already."""
        if self._until is None or any(fd == self._fd for fd, _ in self._poller.poll()):
            return True
        return any(fd == self._fd for fd, _ in self._poller.poll(0))

    def __iter__(self) -> Iterator[Line]:
        # One buffer for all: fresh memory costs more than reading into it.
        buffer = bytearray(_CHUNK)
        view = memoryview(buffer)
        begun = Begun(self._most_bytes, self._make_spool)
        while count := self._read(buffer):
            start = 0
            while (end := buffer.find(b"\n", start, count)) >= 0:
                if begun:
                    begun.add(view[start:end])
                    yield begun.take()
                elif end > start:
                    yield bytes(view[start:end])
                start = end + 1
            begun.add(view[start:count])
        if begun:
            yield begun.take()


class Begun:
    """A message of which the end is yet to come."""

    def __init__(self, most_bytes: int, make_spool: Callable[[], Spool]) -> None:
        self._most_bytes = most_bytes
        self._make_spool = make_spool
        self._line: bytearray | Spool | Unspooled = bytearray()

    def __bool__(self) -> bool:
        return not isinstance(self._line, bytearray) or bool(self._line)

    def add(self, piece: bytes | memoryview) -> None:
        if isinstance(self._line, bytearray):
            self._line += piece
            if len(self._line) > self._most_bytes:
                self._line = self._spooled(self._line)
        elif isinstance(self._line, Unspooled):
            self._lose(self._line, piece)
        else:
            try:
                self._line.write(piece)
            except ForebayError as error:
                spool = self._line
                self._line = Unspooled(error, len(spool), Ends(ends_of(spool).head, b""))
                spool.close()
                self._lose(self._line, piece)

    def _spooled(self, line: bytearray) -> Spool | Unspooled:
        try:
            spool = self._make_spool()
        except ForebayError as error:
            return Unspooled(error, len(line), ends_of(line))
        try:
            spool.write(line)
        except ForebayError as error:
            spool.close()
            return Unspooled(error, len(line), ends_of(line))
        return spool

    @staticmethod
    def _lose(lost: Unspooled, piece: bytes | memoryview) -> None:
        lost.size += len(piece)
        lost.ends.tail = (lost.ends.tail + bytes(piece))[-_END:]

    def take(self) -> Line:
        line, self._line = self._line, bytearray()
        return line

    def drop(self) -> None:
        """Its end will not come."""
        line = self.take()
        if isinstance(line, Spool):
            line.close()


def widen(fd: int) -> None:
    """Lets a pipe hold more, so that large messages take fewer turns; where that is not to be had, it works as well."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)
