"""Newline-delimited messages from a file descriptor: small ones in memory, very large ones in a temporary file."""

import contextlib
import dataclasses
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import orjson
from typing_extensions import Buffer

from forebay.errors import ForebayError
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.payload import CHUNK_BYTES
from forebay.system import files
from forebay.system.pipes import EndSignal, PipeInput

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = [
    "HeadTail",
    "Line",
    "LineBuffer",
    "LineReader",
    "LineSplitter",
    "LostMessage",
    "Message",
    "Spool",
    "count_memory_bytes",
    "create_spool",
    "read_head_tail",
]

_READ_BYTES = 256 * 1024
"""Size of the read buffer."""

_KEPT_END_BYTES = 64 * 1024
"""Bytes to keep from the start and from the end of a message that is too large, to find its id."""

_SCALAR_PATTERN = rb'(-?\d{1,20}|"(?:[^"\\]|\\.){0,256}")'
_JSONRPC_PATTERN = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ID_PATTERN = rb'"id"\s*:\s*' + _SCALAR_PATTERN
_ID_FIRST_PATTERN = re.compile(rb"\s*\{\s*" + _JSONRPC_PATTERN + _ID_PATTERN + rb"\s*,")
_REQUEST_PATTERN = re.compile(rb"\s*\{\s*" + _JSONRPC_PATTERN + rb"(?:" + _ID_PATTERN + rb'\s*,\s*)?"method"')
_ID_LAST_PATTERN = re.compile(
    rb"\}\s*,\s*" + _JSONRPC_PATTERN + _ID_PATTERN + rb"[^{}\"]*(?:,\s*\"jsonrpc\"\s*:\s*\"2\.0\"\s*)?\}\s*$"
)


class Spool:
    """Temporary file that holds one large message and is deleted when it is closed or garbage-collected.

    Raises `StoreFull` or `StoreUnavailable` when the disk fails.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = str(folder)
        with translate_os_errors:
            self._fd, self.path, name = files.create_temporary(self.folder)
        self.size = 0
        # A finalizer deletes the file, because a message has no single owner that could close its spool.
        self._finalizer = weakref.finalize(self, _delete_file, self._fd, name)

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._fd

    def write(self, chunk: Buffer) -> None:
        """Append all of `chunk`."""
        view = memoryview(chunk).cast("B")
        with translate_os_errors:
            while view:
                count = os.write(self._fd, view)
                self.size += count
                view = view[count:]

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end` in chunks."""
        end = self.size if end is None else end
        with translate_os_errors, os.fdopen(files.open_shared(self.path), "rb", buffering=0) as file:
            file.seek(start)
            while start < end and (chunk := file.read(min(CHUNK_BYTES, end - start))):
                start += len(chunk)
                yield chunk

    def close(self) -> None:
        """Delete the file. Reads that have started can finish."""
        with translate_os_errors:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def create_spool(store: "Store") -> Spool:
    """Create a spool in the store's folder, or in the temporary folder if the store is unusable."""
    with contextlib.suppress(ForebayError):
        return Spool(store.folder or tempfile.gettempdir())
    return Spool(tempfile.gettempdir())


def _delete_file(fd: int, name: str | None) -> None:
    os.close(fd)
    if name is not None:
        Path(name).unlink(missing_ok=True)


@dataclasses.dataclass(slots=True)
class HeadTail:
    """First and last bytes of a message that cannot be parsed, from which its id can be recovered."""

    head: bytes
    tail: bytes

    @property
    def is_request(self) -> bool:
        """Whether the message starts like a request or notification; otherwise it may be a response."""
        return _REQUEST_PATTERN.match(self.head) is not None

    def find_id(self) -> object:
        """Return the message id, which is usually the first or the last member, or `None` if it is not found."""
        match = _ID_FIRST_PATTERN.match(self.head) or _ID_LAST_PATTERN.search(self.tail)
        with contextlib.suppress(orjson.JSONDecodeError):
            return None if match is None else orjson.loads(match[1])
        return None


@dataclasses.dataclass(slots=True)
class LostMessage:
    """Size and ends of a message that was too large for memory and could not be spooled."""

    error: ForebayError
    size: int
    head_tail: HeadTail


Message: TypeAlias = bytes | bytearray | Spool
"""The raw bytes of one complete message."""

Line: TypeAlias = Message | LostMessage
"""One line from a stream."""


def count_memory_bytes(message: Message) -> int:
    """Return how many bytes of a message are in memory: none of a spooled one."""
    return 0 if isinstance(message, Spool) else len(message)


def read_head_tail(message: Message) -> HeadTail:
    """Return the first and last bytes of a message."""
    if isinstance(message, Spool):
        tail_start = max(len(message) - _KEPT_END_BYTES, 0)
        return HeadTail(b"".join(message.chunks(0, _KEPT_END_BYTES)), b"".join(message.chunks(tail_start)))
    return HeadTail(bytes(message[:_KEPT_END_BYTES]), bytes(message[-_KEPT_END_BYTES:]))


class LineBuffer:
    """Incomplete message that grows chunk by chunk and moves to a spool above `spool_above_bytes`."""

    def __init__(self, spool_above_bytes: int, make_spool: Callable[[], Spool]) -> None:
        self.spool_above_bytes = spool_above_bytes
        self._make_spool = make_spool
        self._line: bytearray | Spool | LostMessage = bytearray()

    def __bool__(self) -> bool:
        return not isinstance(self._line, bytearray) or bool(self._line)

    def append(self, chunk: bytes | memoryview) -> None:
        if isinstance(self._line, bytearray):
            self._line += chunk
            if len(self._line) > self.spool_above_bytes:
                self._line = self._move_to_spool(self._line)
        elif isinstance(self._line, LostMessage):
            self._append_to_lost(self._line, chunk)
        else:
            try:
                self._line.write(chunk)
            except ForebayError as error:
                spool = self._line
                self._line = LostMessage(error, len(spool), HeadTail(read_head_tail(spool).head, b""))
                spool.close()
                self._append_to_lost(self._line, chunk)

    def _move_to_spool(self, line: bytearray) -> Spool | LostMessage:
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
    def _append_to_lost(lost_message: LostMessage, chunk: bytes | memoryview) -> None:
        lost_message.size += len(chunk)
        lost_message.head_tail.tail = (lost_message.head_tail.tail + bytes(chunk))[-_KEPT_END_BYTES:]

    def take(self) -> Line:
        """Return the message, and start a new one."""
        line, self._line = self._line, bytearray()
        return line

    def discard(self) -> None:
        """Drop the incomplete message."""
        line = self.take()
        if isinstance(line, Spool):
            line.close()


class LineSplitter:
    """Splits what is read into lines, without newlines and empty lines; the last newline may be missing."""

    def __init__(self, line: LineBuffer) -> None:
        self._line = line
        """The incomplete line at the end."""

    def push(self, buffer: bytearray, count: int) -> list[Line]:
        """Return the lines that end in the first `count` bytes of a buffer."""
        start, lines = 0, list[Line]()
        line, view = self._line, memoryview(buffer)
        if line and (end := buffer.find(b"\n", 0, count)) >= 0:
            line.append(view[:end])
            lines.append(line.take())
            start = end + 1
        if (end := buffer.rfind(b"\n", start, count)) >= 0:
            lines += filter(None, bytes(view[start:end]).split(b"\n"))
            start = end + 1
        line.append(view[start:count])
        return lines

    @property
    def is_in_line(self) -> bool:
        """Whether the last line is incomplete."""
        return bool(self._line)

    def finish(self) -> list[Line]:
        """Return the last line, if its newline is missing."""
        return [self._line.take()] if self._line else []


class LineReader:
    """Iterable over the lines of a file descriptor, without newlines and empty lines; the last newline may be missing.

    Once `end` is set, reading stops after the bytes that are already in the pipe, even if other processes still hold
    its write end.
    """

    def __init__(
        self, fd: int, *, spool_above_bytes: int, make_spool: Callable[[], Spool], end: EndSignal | None = None
    ) -> None:
        self._input = PipeInput(fd, end)
        self._spool_above_bytes = spool_above_bytes
        self._make_spool = make_spool

    def __iter__(self) -> Iterator[Line]:
        for lines in self.batches():
            yield from lines

    def batches(self) -> Iterator[list[Line]]:
        """Yield the lines that each read has completed."""
        # One buffer for all reads: allocating fresh memory costs more than reading into it.
        buffer = bytearray(_READ_BYTES)
        splitter = LineSplitter(LineBuffer(self._spool_above_bytes, self._make_spool))
        while count := self._input.read_into(buffer):
            if lines := splitter.push(buffer, count):
                yield lines
        if lines := splitter.finish():
            yield lines
