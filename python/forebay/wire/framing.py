"""Messages as they come in, piece by piece: small ones as bytes, very large ones in a spool."""

import contextlib
import dataclasses
import os
import re
import select
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import orjson
from typing_extensions import Buffer

from forebay.errors import ForebayError
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.payload import CHUNK_BYTES

__all__ = [
    "HeadTail",
    "Line",
    "LineBuffer",
    "LineReader",
    "LostMessage",
    "Message",
    "Spool",
    "create_spool",
    "enlarge_pipe",
    "read_head_tail",
]


class Spool:
    """Takes pieces, is read by spans, and is gone once it is closed.

    Raises `StoreFull` or `StoreUnavailable` where the disk does not do its part.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = str(folder)
        """Where it is, and where there is room for another one."""
        with translate_os_errors:
            self._fd, self.path, name = _open_file(self.folder)
        self.size = 0
        # Messages have no place where they end: one that nobody has any more is closed.
        self._finalizer = weakref.finalize(self, _delete, self._fd, name)

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._fd

    def write(self, piece: Buffer) -> None:
        """Appends a piece, all of it."""
        view = memoryview(piece).cast("B")
        with translate_os_errors:
            while view:
                written = os.write(self._fd, view)
                self.size += written
                view = view[written:]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """What is between two places, in pieces."""
        end = self.size if end is None else end
        with translate_os_errors, Path(self.path).open("rb", buffering=0) as file:
            file.seek(start)
            while start < end and (piece := file.read(min(CHUNK_BYTES, end - start))):
                start += len(piece)
                yield piece

    def close(self) -> None:
        """Deletes the file; whoever reads it now still can, but nobody later."""
        with translate_os_errors:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_file(folder: str) -> tuple[int, str, str | None]:
    """A file, what it is opened by again, and its name if it has one.

    Without a name nothing is left of it whatever happens to this process.
    """
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            return file, f"/proc/self/fd/{file}", None
    file, name = tempfile.mkstemp(prefix="message-", suffix=".spool", dir=folder)
    return file, name, name


def create_spool(store: "Store") -> Spool:
    """Where there is room for what is in it; but a store that is gone is no reason to lose what is not stored."""
    with contextlib.suppress(ForebayError):
        return Spool(store.folder or tempfile.gettempdir())
    return Spool(tempfile.gettempdir())


def _delete(file: int, name: str | None) -> None:
    os.close(file)
    if name is not None:
        Path(name).unlink(missing_ok=True)


_READ_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
_END_BYTES = 64 * 1024

_SCALAR_PATTERN = rb'(-?\d{1,20}|"(?:[^"\\]|\\.){0,256}")'
_JSONRPC_PATTERN = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ID_PATTERN = rb'"id"\s*:\s*' + _SCALAR_PATTERN
_ID_FIRST = re.compile(rb"\s*\{\s*" + _JSONRPC_PATTERN + _ID_PATTERN + rb"\s*,")
_REQUEST = re.compile(rb"\s*\{\s*" + _JSONRPC_PATTERN + rb"(?:" + _ID_PATTERN + rb'\s*,\s*)?"method"')
_ID_LAST = re.compile(
    rb"\}\s*,\s*" + _JSONRPC_PATTERN + _ID_PATTERN + rb"[^{}\"]*(?:,\s*\"jsonrpc\"\s*:\s*\"2\.0\"\s*)?\}\s*$"
)


@dataclasses.dataclass(slots=True)
class HeadTail:
    """Both ends of a line that cannot be read: enough to say so to who waits for it."""

    head: bytes
    tail: bytes

    @property
    def is_request(self) -> bool:
        """Whether it asks for something; else it may answer."""
        return _REQUEST.match(self.head) is not None

    def find_id(self) -> object:
        """The id of the message, which stands at its start or at its end; `None` if it is not to be found."""
        found = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        with contextlib.suppress(orjson.JSONDecodeError):
            return None if found is None else orjson.loads(found[1])
        return None


@dataclasses.dataclass(slots=True)
class LostMessage:
    """What is left of a line that was too large for memory and could not be spooled."""

    error: ForebayError
    size: int
    head_tail: HeadTail


Message: TypeAlias = bytes | bytearray | Spool
"""A message, whole."""

Line: TypeAlias = Message | LostMessage


def read_head_tail(line: Message) -> HeadTail:
    """Where a message says what it is."""
    if isinstance(line, Spool):
        return HeadTail(b"".join(line.chunks(0, _END_BYTES)), b"".join(line.chunks(max(len(line) - _END_BYTES, 0))))
    return HeadTail(bytes(line[:_END_BYTES]), bytes(line[-_END_BYTES:]))


class LineReader:
    """The lines of a file, without their ends, until there are no more; an unfinished last one, too."""

    def __init__(
        self, fd: int, *, spool_above_bytes: int, make_spool: Callable[[], Spool], end_fd: int | None = None
    ) -> None:
        self._fd = fd
        self._spool_above_bytes = spool_above_bytes
        self._make_spool = make_spool
        self._end_fd = end_fd
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)
        if end_fd is not None:
            self._poller.register(end_fd, select.POLLIN)

    def _read_into(self, buffer: bytearray) -> int:
        """How many bytes there are now; 0 at the end."""
        while self._wait_readable():
            # Whoever we share it with may have made it one that does not wait.
            with contextlib.suppress(BlockingIOError):
                return os.readv(self._fd, [buffer])
            self._poller.poll()
        return 0

    def _wait_readable(self) -> bool:
        """Waits for more; whoever else may write to it, once `until` is over there is only what is in it already."""
        if self._end_fd is None or any(fd == self._fd for fd, _ in self._poller.poll()):
            return True
        return any(fd == self._fd for fd, _ in self._poller.poll(0))

    def __iter__(self) -> Iterator[Line]:
        # One buffer for all: fresh memory costs more than reading into it.
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        begun = LineBuffer(self._spool_above_bytes, self._make_spool)
        while count := self._read_into(buffer):
            start = 0
            while (end := buffer.find(b"\n", start, count)) >= 0:
                if begun:
                    begun.append(view[start:end])
                    yield begun.take()
                elif end > start:
                    yield bytes(view[start:end])
                start = end + 1
            begun.append(view[start:count])
        if begun:
            yield begun.take()


class LineBuffer:
    """A message of which the end is yet to come."""

    def __init__(self, spool_above_bytes: int, make_spool: Callable[[], Spool]) -> None:
        self._spool_above_bytes = spool_above_bytes
        self._make_spool = make_spool
        self._line: bytearray | Spool | LostMessage = bytearray()

    def __bool__(self) -> bool:
        return not isinstance(self._line, bytearray) or bool(self._line)

    def append(self, piece: bytes | memoryview) -> None:
        if isinstance(self._line, bytearray):
            self._line += piece
            if len(self._line) > self._spool_above_bytes:
                self._line = self._spool(self._line)
        elif isinstance(self._line, LostMessage):
            self._append_lost(self._line, piece)
        else:
            try:
                self._line.write(piece)
            except ForebayError as error:
                spool = self._line
                self._line = LostMessage(error, len(spool), HeadTail(read_head_tail(spool).head, b""))
                spool.close()
                self._append_lost(self._line, piece)

    def _spool(self, line: bytearray) -> Spool | LostMessage:
        try:
            spool = self._make_spool()
        except ForebayError as error:
            return LostMessage(error, len(line), read_head_tail(line))
        try:
            spool.write(line)
        except ForebayError as error:
            spool.close()
            return LostMessage(error, len(line), read_head_tail(line))
        return spool

    @staticmethod
    def _append_lost(lost: LostMessage, piece: bytes | memoryview) -> None:
        lost.size += len(piece)
        lost.head_tail.tail = (lost.head_tail.tail + bytes(piece))[-_END_BYTES:]

    def take(self) -> Line:
        line, self._line = self._line, bytearray()
        return line

    def discard(self) -> None:
        """Its end will not come."""
        line = self.take()
        if isinstance(line, Spool):
            line.close()


def enlarge_pipe(fd: int) -> None:
    """Lets a pipe hold more, so that large messages take fewer turns; where that is not to be had, it works as well."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


if TYPE_CHECKING:
    from forebay.store import Store
